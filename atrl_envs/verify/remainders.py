"""Are two fractions equal? a / b = p / q is a * q = p * b, and that is so if it holds modulo enough numbers.

    equal, undefined = same_ratio(found, digit, value, parts, gold, tables)       # [B] bool each

Whole numbers that agree modulo numbers without common factors, whose product is larger than both, are equal: no
approximation. A number of any length leaves its remainders by one multiplication with a table of powers of ten, in
float64, where every sum stays far below 2^53 and so is exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from atrl_envs.verify.labels import OVER, UNDER, WHOLE
from atrl_envs.verify.masks import Array, at_most, equals, scattered, to_floats, to_integers, where
from atrl_envs.verify.peek import may_look, places

if TYPE_CHECKING:
    from atrl_envs.verify.numbers import Gold, Value
    from atrl_envs.verify.walk import Tables

FIGURES = 18  # digits of an integer that surely fits int64
MOST_SIDE = 256  # digits of the numerator or the denominator of a gold answer
MOST_FIGURES = (
    320  # digits of a part of an answer; of a mixed number, of its whole part and denominator together
)
_MODULI, _MODULI_OF_INT64 = 64, 7  # their products have more than 597 and 65 digits

_SMALL = 1 << 20  # products of three numbers below this fit int64


@functools.cache
def moduli() -> tuple[int, ...]:
    """The largest numbers below 2^31 without common factors: a product of two remainders fits int64."""
    found: list[int] = []
    product, number = 1, 2**31 - 1
    while len(found) < _MODULI:
        if math.gcd(product, number) == 1:
            found.append(number)
            product *= number
        number -= 1
    return tuple(found)


@functools.cache
def powers() -> list[list[float]]:
    """Remainders of the powers of ten: MOST_FIGURES rows, one column a modulus."""
    return [[float(pow(10, place, modulus)) for modulus in moduli()] for place in range(MOST_FIGURES)]


def same_ratio(
    found: Array, digit: Array, value: Value, parts: Sequence[Array], gold: Gold, tables: Tables
) -> tuple[Array, Array]:
    """Whether a fraction has the size of the gold, signs apart, and whether its denominator is zero: [B], [B].

    True where no part has more than MOST_FIGURES digits; where one has more, both mean nothing. What has no
    denominator at all may be anything, too.
    """
    if not may_look(found):
        return _in_full(found, digit, value, gold[2], tables)
    whole, over, under = parts
    top, bottom, sides = gold[1][:, 4], gold[1][:, 5], gold[2]
    has_over, is_fraction = value.over > 0, value.under > 0
    numerator = where(has_over, whole * under + over, whole)
    equal, undefined = numerator * bottom == under * top, under == 0
    large = (whole | over | under | top | bottom) >= _SMALL
    long = (value.whole > FIGURES) | (value.over > FIGURES) | (value.under > FIGURES)
    if sides.shape[2] > FIGURES:
        long = long | (sides[:, :, FIGURES:] > 0).any((1, 2))
    rows = places(large & is_fraction)
    if rows.size:
        few = tables.moduli[:_MODULI_OF_INT64, None]
        some = [part[rows] % few for part in (*parts, top, bottom)]
        equal[rows] = _across(some[:3], some[3:], has_over[rows], few)[0]
    rows = places(long & is_fraction)
    if rows.size:
        equal[rows], undefined[rows] = _in_full(
            found[:, rows], digit[:, rows], value.of_rows(rows), sides[rows], tables
        )
    return equal, undefined


def _in_full(found: Array, digit: Array, value: Value, sides: Array, tables: Tables) -> tuple[Array, Array]:
    """`same_ratio` from the digits themselves."""
    behind = at_most(value.behind(found, tables), MOST_FIGURES)
    parts = []
    for label in (WHOLE, OVER, UNDER):
        home = where(equals(found, label), behind, MOST_FIGURES)
        digits = scattered(home, digit, MOST_FIGURES + 1)
        parts.append(_remainders(digits[:MOST_FIGURES].T, tables).T)
    wanted = [_remainders(sides[:, side, :MOST_FIGURES], tables).T for side in (0, 1)]
    return _across(parts, wanted, value.over > 0, tables.moduli[:, None])


def _remainders(digits: Array, tables: Tables) -> Array:
    """[B, F] digits, the last one first, to [B, P] remainders."""
    return to_integers(to_floats(digits) @ tables.powers[: digits.shape[1]]) % tables.moduli


def _across(
    parts: Sequence[Array], wanted: Sequence[Array], has_over: Array, modulus: Array
) -> tuple[Array, Array]:
    """parts: remainders of whole, numerator, denominator; wanted: those of the gold; [P, B] each; modulus: [P, 1]."""
    whole, over, under = parts
    top, bottom = wanted
    numerator = where(has_over, whole * under % modulus + over, whole)
    return ((numerator * bottom - under * top) % modulus == 0).all(0), (under == 0).all(0)
