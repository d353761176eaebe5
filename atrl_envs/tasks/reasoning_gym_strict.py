"""What an answer must be besides what the scorer of its data set asks: scorers overlook things, see FLAWS in the table.

    ALSO["puzzle24"]("8*3*1*1", entry)       # False: it makes 24, but not of the numbers that were given

A check may raise whatever it likes for an answer that it cannot read. It comes before the scorer, so that those which
evaluate an answer as Python see only formulas of known names.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

Check = Callable[[str, dict[str, Any]], bool]
_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)"
_FUNCTIONS = (
    "sin cos tan sec csc cot asin acos atan sinh cosh tanh asinh acosh atanh exp log ln sqrt Abs pi E".split()
)
_OPERATORS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def nothing(answer: str, entry: dict[str, Any]) -> bool:
    """For data sets whose scorers suffice."""
    return True


def value_of(expression: str) -> Fraction:
    """The exact value of whole numbers, + - * / and brackets; ValueError or SyntaxError for anything else."""

    def value(node: ast.expr) -> Fraction:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return Fraction(node.value)
        raise ValueError(f"not + - * / of whole numbers: {ast.unparse(node)}")

    return value(ast.parse(expression.strip(), mode="eval").body)


def _made_of(pattern: str) -> Check:
    """The whole answer is written in this way."""
    return lambda answer, entry: re.fullmatch(pattern, answer.strip()) is not None


def _each(pattern: str, separator: str) -> Check:
    """Each part of the answer is."""
    return lambda answer, entry: all(
        re.fullmatch(pattern, p.strip()) for p in re.split(separator, answer.strip())
    )


def _polynomial(answer: str, entry: dict[str, Any]) -> bool:
    """One formula of single letters and numbers: not `x or 7`."""
    return re.fullmatch(r"([a-zA-Z](?![a-zA-Z])|[\d\s.+*/^()-])+", answer) is not None


def _integral(answer: str, entry: dict[str, Any]) -> bool:
    """One formula of the variable, the constant C and functions: not `x + C or 7`."""
    words = set(re.findall(r"[^\W\d]\w*", answer))
    plain = re.fullmatch(r"[\w\s.,+*/^()-]+", answer) is not None
    return plain and words <= {entry["metadata"]["variable"], "C", *_FUNCTIONS}


def _exact_probability(answer: str, entry: dict[str, Any]) -> bool:
    exact = entry["metadata"]["rational"]
    value = Fraction(answer.replace(",", "").strip())
    return value in (Fraction(exact["numerator"], exact["denominator"]), Fraction(entry["answer"]))


def _same_board(answer: str, entry: dict[str, Any]) -> bool:
    return bool(json.loads(answer) == json.loads(entry["answer"]))


def _names_and_roles(answer: str, entry: dict[str, Any]) -> bool:
    given, known = (set(re.findall(r"\w+", text.lower())) for text in (answer, entry["answer"]))
    return given <= known | {"is", "a", "an", "and"}


def _same_numbers(answer: str, entry: dict[str, Any]) -> bool:
    given = json.loads(answer.replace("'", '"'), parse_float=str, parse_int=str)
    return [Decimal(number) for number in given] == [Decimal(n) for n in entry["metadata"]["sorted_numbers"]]


def _same_solutions(answer: str, entry: dict[str, Any]) -> bool:
    given, wanted = (
        sorted(Decimal(p.strip()) for p in text.split(",")) for text in (answer, entry["answer"])
    )
    return given == wanted


def _same_rounded(answer: str, entry: dict[str, Any]) -> bool:
    """Each number in its place, equal, or the gold rounded to two places or more."""
    rows, gold = ([line.split() for line in text.strip().splitlines()] for text in (answer, entry["answer"]))
    if [len(row) for row in rows] != [len(row) for row in gold]:
        return False
    for given, wanted in zip(answer.split(), entry["answer"].split(), strict=True):
        ours, theirs = Decimal(given), Decimal(wanted)
        places = -int(ours.as_tuple().exponent)
        if ours != theirs and (places < 2 or abs(ours - theirs) > Decimal(5).scaleb(-places - 1)):
            return False
    return True


def _makes_24(answer: str, entry: dict[str, Any]) -> bool:
    used = sorted(map(int, re.findall(r"\d+", answer)))
    return used == sorted(entry["metadata"]["numbers"]) and value_of(answer) == 24


def _makes_target(answer: str, entry: dict[str, Any]) -> bool:
    return value_of(answer) == entry["metadata"]["target"]


def _one_formula(answer: str, entry: dict[str, Any]) -> bool:
    bare = re.sub(r"[\s()]", "", answer)
    return re.fullmatch(r"¬*[A-Z]([∧∨→↔]¬*[A-Z])*", bare) is not None


def _same_words(answer: str, entry: dict[str, Any]) -> bool:
    return [word.strip() for word in answer.split(",")] == entry["metadata"]["sorted_words"]


ALSO: dict[str, Check] = {
    "advanced_geometry": _made_of(rf"{_NUMBER}\s*°?|\(?\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)?"),
    "coin_flip": _exact_probability,
    "complex_arithmetic": lambda answer, entry: "nan" not in answer.lower(),
    "countdown": _makes_target,
    "fraction_simplification": _made_of(
        r"\$*\s*(\\d?frac\s*\{\s*\d+\s*\}\s*\{\s*\d+\s*\}|\d+\s*/\s*\d+)\s*\$*"
    ),
    "game_of_life": _same_board,
    "intermediate_integration": _integral,
    "kakurasu": _made_of(r"[01\s]+"),
    "knights_knaves": _names_and_roles,
    "n_queens": lambda answer, entry: answer in entry["metadata"]["valid_answers"],
    "number_sorting": _same_numbers,
    "polynomial_equations": _same_solutions,
    "polynomial_multiplication": _polynomial,
    "pool_matrix": _same_rounded,
    "propositional_logic": _one_formula,
    "puzzle24": _makes_24,
    "quantum_lock": _made_of(r"[A-Ca-c\s,→>-]+"),
    "rubiks_cube": _each(r"[A-Za-z]{1,2}'?\d*", r"\s+"),
    "simple_integration": _integral,
    "sokoban": _made_of(r"[LRUDlrud\s]+"),
    "survo": _made_of(r"[-\d\s]+"),
    "time_intervals": _made_of(r"\d+( days?)?|(\d+ days, )?\d+:\d+(:\d+(\.\d+)?)?"),
    "tower_of_hanoi": _each(r"(?i:Move disk \d+ from Peg \d+ to Peg \d+)\.?", r"\s*\n\s*"),
    "word_sorting": _same_words,
}
