"""Equations and inequalities, and names before a value: what may be dropped, and when two say the same.

same_relation(shape("y = 2x"), shape("2x - y = 0"), same)           # True: one is a multiple of the other
same_relation(shape("AB = 4"), shape("4"), same)                    # True: a name is no part of the value
"""

from __future__ import annotations

import re
from collections.abc import Callable

from atrl_envs.verify import vocabulary
from atrl_envs.verify.formulas.equality import digits_for, same_value
from atrl_envs.verify.formulas.formula import Unreadable, evaluated
from atrl_envs.verify.formulas.sets import as_set, variable_of
from atrl_envs.verify.formulas.shapes import RELATION, Shape

Same = Callable[[str, str], "bool | None"]
_FLIPPED = {">": "<", r"\geq": r"\leq"}
_INDEX = re.compile(r"_\{[^{}]*\}|_\w|(?<=[A-Za-z])\^\{-1\}")
_ARGUMENTS = re.compile(r"(?<=[A-Za-z'])\s*\((?:\d+|[A-Za-z](?:\s*,\s*[A-Za-z])*)\)")
_AROUND_NAMES = re.compile(r"\\(?:angle|triangle|overline|overrightarrow|vec|hat|bar|frac|text)(?![A-Za-z])")
_NAME_COMMANDS = re.compile(
    r"\\text\{[A-Za-z ]*\}|\\(?:angle|triangle|overline|overrightarrow|vec|hat|bar|frac|sin|cos|tan|theta|alpha|beta|"
    r"gamma|delta|lambda|mu|rho|sigma|phi|varphi|psi|omega|ell|Delta|Omega)(?![A-Za-z])"
)


def is_name(text: str) -> bool:
    """Whether it only names something: `x`, `f(2)`, `AB`, `\\frac{NO}{BO}`, `(p,q)`, `total cost`."""
    bare = _ARGUMENTS.sub("", _INDEX.sub("", text))
    words = [word for word in re.findall(r"[A-Za-z]+", text) if not word.isupper()]
    if any(word.casefold() in vocabulary.NOT_NAMES for word in words):
        return False  # `not x = 5`; but NO is a segment
    only_letters = re.fullmatch(r"[A-Za-z\s|:'(),{}]*", _NAME_COMMANDS.sub(" ", bare))
    return only_letters is not None and re.search(r"[A-Za-z]", _AROUND_NAMES.sub("", bare)) is not None


def values(relation: Shape) -> list[str] | None:
    """What stands for the value in `name = value = value`, approximations left out; None for an inequality."""
    sides, operators = list(relation.parts), list(relation.marks)  # type: ignore[arg-type]
    if r"\approx" in operators:
        first = operators.index(r"\approx")
        sides, operators = sides[: first + 1], operators[:first]
    if operators == [r"\in"] and is_name(sides[0]):
        return sides[1:]
    if any(operator != "=" for operator in operators):
        return None
    while len(sides) > 1 and is_name(sides[0]):
        sides = sides[1:]
    return sides


def same_relation(gold: Shape, answer: Shape, texts: tuple[str, str], same: Same) -> bool | None:
    """Whether two answers, at least one of them a relation, say the same. texts: the two as they were written."""
    if gold.kind == RELATION and answer.kind == RELATION:
        return _both(gold, answer, texts, same)
    if gold.kind == RELATION:
        found = values(gold)
        if not found:
            return _same_sets(*texts)
        # `2x - y = 0` has no value; `6 * 7 = 42` has one.
        computed = all(same(found[-1], side) for side in found[:-1])
        return computed and same(found[-1], texts[1])
    found = values(answer)
    if found is None:
        return _same_sets(*texts)
    said = [same(texts[0], value) for value in found]
    return False if False in said else (None if None in said else True)


def _both(gold: Shape, answer: Shape, texts: tuple[str, str], same: Same) -> bool | None:
    gold, answer = _upward(gold), _upward(answer)
    if gold.marks == answer.marks:
        said = [same(a, b) for a, b in zip(gold.parts, answer.parts, strict=True)]
        if False not in said:
            return None if None in said else True
        if len(gold.parts) == 2 and gold.marks[0] in ("=", "<", r"\leq", r"\neq"):  # type: ignore[index]
            return _proportional(gold, answer)
    variables = [(variable_of(relation) or "").strip("|") for relation in (gold, answer)]
    if variables[0] and variables[0] == variables[1]:
        return _same_sets(*texts)
    return False


def _upward(relation: Shape) -> Shape:
    """The same relation with < and <= only, where it has only > and >=."""
    if all(operator in _FLIPPED for operator in relation.marks):  # type: ignore[union-attr]
        flipped = tuple(_FLIPPED[operator] for operator in reversed(relation.marks))  # type: ignore[arg-type]
        return Shape(RELATION, relation.parts[::-1], flipped)
    return relation


def _proportional(gold: Shape, answer: Shape) -> bool | None:
    """Whether left minus right of one is a multiple of the other's; of an inequality, a positive one."""
    import sympy

    try:
        first = evaluated(gold.parts[0]) - evaluated(gold.parts[1])
    except Unreadable:
        return None
    try:
        second = evaluated(answer.parts[0]) - evaluated(answer.parts[1])
    except Unreadable:
        return False
    symbols = sorted(first.free_symbols, key=str)
    if not symbols or symbols != sorted(second.free_symbols, key=str):
        return False
    point = {symbol: sympy.Rational(37 + 40 * i, 29 + 2 * i) for i, symbol in enumerate(symbols)}
    at_first, at_second = first.subs(point), second.subs(point)
    if not all(value.is_real and value.is_zero is False for value in (at_first, at_second)):
        return None
    if gold.marks[0] in ("<", r"\leq") and bool(at_first > 0) != bool(at_second > 0):  # type: ignore[index]
        return False
    digits = digits_for(*gold.parts, *answer.parts)
    return same_value(first * at_second, second * at_first, digits)


def _same_sets(gold: str, answer: str) -> bool:
    first, second = as_set(gold), as_set(answer)
    return first is not None and second is not None and bool(first == second)
