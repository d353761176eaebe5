"""What the answer to a prompt is, and how difficult it is, worked out again from the prompt alone.

value, difficulty = SOLVERS["Carries"]("478+264=")        # Fraction(742), 2

Nothing here is shared with the tasks: numbers are read from the text, and the standard library calculates.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import statistics
from collections.abc import Callable
from fractions import Fraction
from typing import Any

_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


def value_of(expression: str, **names: Fraction) -> Fraction:
    """An expression in whole numbers, names, + - * / mod and brackets, exactly."""

    def walk(node: ast.AST) -> Fraction:
        if isinstance(node, ast.Constant):
            return Fraction(node.value)
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        assert isinstance(node, ast.BinOp), ast.dump(node)
        return _OPERATIONS[type(node.op)](walk(node.left), walk(node.right))

    return walk(ast.parse(expression.replace(" mod ", " % "), mode="eval").body)


def numbers_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", text)]


def _figures(number: int) -> int:
    return sum(map(int, str(number)))


def carries(prompt: str) -> tuple[Fraction, int]:
    """Each carry makes a ten into a one, so that the sum of all digits falls by nine."""
    a, operation, b = re.fullmatch(r"(\d+)([+-])(\d+)=", prompt).groups()  # type: ignore[union-attr]
    assert len(a) == len(b)
    a, b = int(a), int(b)
    value = a + b if operation == "+" else a - b
    parts = (a, b, value) if operation == "+" else (b, value, a)
    lost = _figures(parts[0]) + _figures(parts[1]) - _figures(parts[2])
    return Fraction(value), lost // 9


def decimals(prompt: str) -> tuple[Fraction, int]:
    left, operation, right = re.fullmatch(r"([\d.]+)([*+-])([\d.]+)=", prompt).groups()  # type: ignore[union-attr]
    places = [len(number.partition(".")[2]) for number in (left, right)]
    assert not any(number.endswith("0") for number, count in zip((left, right), places, strict=True) if count)
    x, y = Fraction(left), Fraction(right)
    return {"+": x + y, "-": x - y, "*": x * y}[operation], sum(places) - 1


def fractions(prompt: str) -> tuple[Fraction, int]:
    parts = re.fullmatch(r"\(?(\d+)/(\d+)\)?([+*/-])\(?(\d+)/(\d+)\)?=", prompt)
    assert parts is not None
    a, b, c, d = (int(parts[i]) for i in (1, 2, 4, 5))
    assert math.gcd(a, b) == math.gcd(c, d) == 1
    assert ("(" in prompt) == (parts[3] == "/")
    x, y = Fraction(a, b), Fraction(c, d)
    value = {"+": x + y, "-": x - y, "*": x * y, "/": x / y}[parts[3]]
    bottom = {"*": b * d, "/": b * c}.get(parts[3], math.lcm(b, d))
    steps = [parts[3] in "+-" and b != d, parts[3] == "/", bottom > value.denominator]
    return value, sum(steps)


def brackets(prompt: str) -> tuple[Fraction, int]:
    text = prompt.removesuffix("=")
    return value_of(text), text.count("(")


def linear_equation(prompt: str) -> tuple[Fraction, int]:
    """A linear function is known from its values at 0 and 1."""
    left, right = prompt.removesuffix(", x=").split("=")
    spelled = [re.sub(r"(?<=\d)(?=[x(])", "*", side) for side in (left, right)]
    at_zero, at_one = (
        value_of(spelled[0], x=Fraction(x)) - value_of(spelled[1], x=Fraction(x)) for x in (0, 1)
    )
    if "(" in left:
        level = 3
    elif "x" in right:
        level = 2
    else:
        level = int(not left.endswith("x"))
    return at_zero / (at_zero - at_one), level


def gcd_lcm(prompt: str) -> tuple[Fraction, int]:
    name, a, b = re.fullmatch(r"(gcd|lcm)\((\d+),(\d+)\)=", prompt).groups()  # type: ignore[union-attr]
    a, b = int(a), int(b)

    def divisions(x: int, y: int) -> int:
        return 0 if y == 0 else 1 + divisions(y, x % y)

    value = math.gcd(a, b) if name == "gcd" else math.lcm(a, b)
    return Fraction(value), divisions(max(a, b), min(a, b)) - 1


def modular(prompt: str) -> tuple[Fraction, int]:
    """Powers by multiplying out, inverses by trying every number."""
    term, m = prompt.removesuffix("=").split(" mod ")
    modulus = int(m)
    a, sign, b = re.fullmatch(r"\(?(\d+)([-+*^])(-?\d+)\)?", term).groups()  # type: ignore[union-attr]
    a, b = int(a), int(b)
    if sign == "^" and b == -1:
        (value,) = [x for x in range(modulus) if a * x % modulus == 1]
        return Fraction(value), 3
    whole = a**b if sign == "^" else {"+": a + b, "-": a - b, "*": a * b}[sign]
    return Fraction(whole % modulus), {"^": 2, "*": 1}.get(sign, 0)


def statistics_of(prompt: str) -> tuple[Fraction, int]:
    name, listed = re.fullmatch(r"(\w+)\((.*)\)=", prompt).groups()  # type: ignore[union-attr]
    numbers = [Fraction(number) for number in listed.split(",")]
    if name == "range":
        value = max(numbers) - min(numbers)
    elif name == "mode":
        (value,) = statistics.multimode(numbers)
    else:
        value = (statistics.mean if name == "mean" else statistics.median)(numbers)
    return value, len(numbers) - 3


def word_problems(prompt: str) -> tuple[Fraction, int]:
    """Sentence by sentence: what becomes of the number, of the one before a comparison, and in how many steps."""
    *sentences, question = re.findall(r"[^.?]+[.?]", prompt)
    value, own, steps = Fraction(0), Fraction(0), 0
    for sentence in sentences:
        rule = next(rule for pattern, rule in _SENTENCES.items() if re.search(pattern, sentence))
        value, own, done = rule(value, own, *map(Fraction, numbers_in(sentence)))
        steps += done
    if "together" in question:
        value, steps = value + own, steps + 1
    return value, steps - 1


# Pattern of a sentence: (value, own, *numbers) -> value, own, steps. The first pattern that is found counts.
_SENTENCES: dict[str, Callable[..., tuple[Fraction, Fraction, int]]] = {
    r"One \w+ costs": lambda v, own, n: (n, own, 0),
    r"boxes with|every hour": lambda v, own, n, m: (n * m, own, 1),
    r"cut into|shares \d+": lambda v, own, n, m: (n / m, own, 1),
    r"has \d+ \w+ and buys": lambda v, own, n, m: (n + m, own, 1),
    r"shares them": lambda v, own, n: (v / n, own, 1),
    r"pays with|whole way": lambda v, own, n: (n - v, own, 1),
    r"buys \d+\.": lambda v, own, n: (v * n, own, 1),
    r"times as many": lambda v, own, n: (v * n, v, 1),
    r"has \d+ more": lambda v, own, n: (v + n, v, 1),
    r"more|also has|joined": lambda v, own, n: (v + n, own, 1),
    r"Together": lambda v, own, n: (v + own - n, own, 2),
    r"gives|loses|sells|cut off": lambda v, own, n: (v - n, own, 1),
    r"has \d+ \w+\.": lambda v, own, n: (n, own, 0),
}

SOLVERS: dict[str, Callable[[str], tuple[Fraction, int]]] = {
    "Carries": carries,
    "Decimals": decimals,
    "Fractions": fractions,
    "Brackets": brackets,
    "LinearEquation": linear_equation,
    "GcdLcm": gcd_lcm,
    "Modular": modular,
    "Statistics": statistics_of,
    "WordProblems": word_problems,
}
