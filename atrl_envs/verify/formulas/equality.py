"""Whether two evaluated formulas have one value, without rounding.

    same_value(evaluated(r"\\frac{\\sqrt{6}}{6}"), evaluated(r"\\frac{1}{\\sqrt{6}}"), digits=100)       # True
    same_value(evaluated(r"\\frac{1}{2006!}"), evaluated(r"\\frac{1}{2004!}"), digits=100)             # False

Rational numbers are compared as such. Any other difference is computed, at several points where there are variables,
to so many digits that formulas as short as these do not agree by chance (`digits_for`). At rational points what is
rational stays exact, so x and x + 10^{-300} differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sympy

# Values of the variables; every other one is positive.
_POINTS = tuple("13/17 -29/23 31/11 -7/3 101/37 -53/97 5/41 -211/19 7/43 -3/59 71/13 -19/7".split())
_ENOUGH_POINTS = 3


def digits_for(*texts: str) -> int:
    """Decimal digits that formulas of this length must agree in."""
    return 60 + 2 * sum(map(len, texts))


def same_value(first: sympy.Expr, second: sympy.Expr, digits: int) -> bool | None:
    """Whether two formulas are equal for all real values of their variables; None: not known.

    Roots and logarithms of variables are meant where they are real.
    """
    import sympy

    if first == second:
        return True
    if first.is_Rational and second.is_Rational:
        return False
    if any(formula.has(sympy.oo, -sympy.oo) for formula in (first, second)):
        return False
    difference = first - second
    symbols = sorted(difference.free_symbols, key=str)
    if not symbols:
        return _is_zero(difference, digits)
    rooted = [] if difference.has(sympy.I) else [*_under_roots(first), *_under_roots(second)]
    agreed = 0
    for turn in range(len(_POINTS)):
        point = {symbol: _coordinate(turn, place) for place, symbol in enumerate(symbols)}
        if not all(_positive(part.subs(point)) for part in rooted):
            continue
        zero = _is_zero(difference.subs(point), digits)
        if zero is False:
            return False
        agreed += zero is True
    return True if agreed >= _ENOUGH_POINTS else None


def _coordinate(turn: int, place: int) -> sympy.Rational:
    """The value of one variable: at even turns all are positive."""
    import sympy

    step = 2 + turn % 2
    return sympy.Rational(_POINTS[(turn + step * place) % len(_POINTS)]) + step * place // len(_POINTS)


def _under_roots(formula: sympy.Expr) -> list[sympy.Expr]:
    """What stands under roots and in logarithms, where there are variables in it."""
    import sympy

    powers = [p for p in formula.atoms(sympy.Pow) if p.exp.is_Rational and not p.exp.is_Integer]
    found = [power.base for power in powers] + [logarithm.args[0] for logarithm in formula.atoms(sympy.log)]
    return [part for part in found if part.free_symbols]


def _positive(value: sympy.Expr) -> bool:
    """Whether a formula without variables is real and above zero."""
    number = value.evalf(20)
    return bool(number.is_extended_real and number > 0)


def _is_zero(value: sympy.Expr, digits: int) -> bool | None:
    """Whether a formula without variables is zero, as far as `digits` digits show."""
    import sympy

    if value.is_Rational:
        return bool(value == 0)
    if value.has(sympy.nan, sympy.zoo, sympy.oo):
        return None
    parts = value.evalf(20, maxn=digits).as_real_imag()
    if not all(part.is_Float or part.is_Rational for part in parts):
        return None
    # evalf marks by a precision of one bit what is no different from zero in so many digits.
    return all(part == 0 or (part.is_Float and part._prec == 1) for part in parts)
