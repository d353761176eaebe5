"""Answers that describe a set of real numbers, as a set: intervals, unions, inequalities in one variable.

as_set("x \\\\leq 5")                    # Interval(-oo, 5)
as_set("(-\\\\infty, 5]")                # the same
as_set("(p, q)")                       # None: its ends are no numbers
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from atrl_envs.verify.formulas.formula import Unreadable, evaluated
from atrl_envs.verify.formulas.notation import key
from atrl_envs.verify.formulas.rationals import read_number
from atrl_envs.verify.formulas.shapes import FORMULA, LIST, PAIR, RELATION, SET, UNION, Shape, shape

if TYPE_CHECKING:
    import sympy

_VARIABLE = re.compile(r"[A-Za-z](?:_\{?\w\}?)?|\\(?:theta|alpha|beta|lambda|mu|phi|omega)")
NAMED_SETS = {
    r"\mathbbR": "Reals",
    r"\emptyset": "EmptySet",
    r"\mathbbZ": "Integers",
    r"\mathbbN": "Naturals",
}
_FLIPPED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq"}


def as_set(text: str) -> sympy.Set | None:
    """The set, None where this is no description of one. Raises Malformed, Refused."""
    return _of_shape(shape(text))


def variable_of(relation: Shape) -> str | None:
    """The one variable that stands alone on a side of a relation, None if there is none or there are several."""
    names = {side.replace(" ", "") for side in relation.parts if _VARIABLE.fullmatch(side.strip().strip("|"))}
    return names.pop() if len(names) == 1 else None


def _of_shape(form: Shape) -> sympy.Set | None:
    import sympy

    if form.kind == FORMULA and (name := NAMED_SETS.get(key(form.parts[0]))):
        return getattr(sympy.S, name)
    if form.kind == PAIR and len(form.parts) == 2 and form.marks != "<>":
        low, high = (_real(part) for part in form.parts)
        if low is None or high is None or not low < high:
            return None
        return sympy.Interval(low, high, form.marks[0] == "(", form.marks[1] == ")")  # type: ignore[index]
    if form.kind == SET:
        values = [_real(part) for part in form.parts]
        return None if None in values else sympy.FiniteSet(*values)
    if form.kind == UNION or (form.kind == LIST and form.marks in ("or", "and")):
        parts = [as_set(part) for part in form.parts]
        if any(part is None for part in parts):
            return None
        if form.marks == r"\setminus":
            return parts[0] - sympy.Union(*parts[1:])
        return sympy.Intersection(*parts) if form.marks == "and" else sympy.Union(*parts)
    if form.kind == RELATION:
        return _of_relation(form)
    return None


def _of_relation(form: Shape) -> sympy.Set | None:
    import sympy

    variable, operators = variable_of(form), form.marks
    if variable is None or not isinstance(operators, tuple):
        return None
    place = [side.replace(" ", "") for side in form.parts].index(variable)
    if variable.startswith("|"):  # an absolute value
        sides = [variable.strip("|") if at == place else side for at, side in enumerate(form.parts)]
        sizes = _of_relation(Shape(RELATION, tuple(sides), operators))
        if sizes is None:
            return None
        sizes = sympy.Intersection(sizes, sympy.Interval(0, sympy.oo))
        size = sympy.Symbol("size", real=True)
        return sympy.Union(sizes, sympy.imageset(sympy.Lambda(size, -size), sizes))
    if operators == (r"\in",) and place == 0:
        return as_set(form.parts[1])
    found: Any = sympy.S.Reals
    if len(form.parts) > 3 or (len(form.parts) == 3 and place != 1):
        return None
    for at, operator in enumerate(operators):
        other = form.parts[at] if at + 1 == place else form.parts[at + 1]
        bound = _real(other)
        operator = _FLIPPED.get(operator, operator) if at + 1 == place else operator
        if bound is None:
            return None
        sets = {
            "<": lambda b: sympy.Interval.open(-sympy.oo, b),
            ">": lambda b: sympy.Interval.open(b, sympy.oo),
            r"\leq": lambda b: sympy.Interval(-sympy.oo, b),
            r"\geq": lambda b: sympy.Interval(b, sympy.oo),
            "=": lambda b: sympy.FiniteSet(b),
            r"\neq": lambda b: sympy.S.Reals - sympy.FiniteSet(b),
        }
        if operator not in sets:
            return None
        found = sympy.Intersection(found, sets[operator](bound))
    return found


def _real(text: str) -> sympy.Expr | None:
    """The value of a number or a closed formula that is real or infinite."""
    import sympy

    number = read_number(text)
    if number is not None:
        return sympy.Rational(number.numerator, number.denominator)
    try:
        value = evaluated(text)
    except Unreadable:
        return None
    return value if not value.free_symbols and value.is_extended_real else None
