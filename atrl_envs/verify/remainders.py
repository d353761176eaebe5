"""Are two fractions equal? a / b = p / q is a * q = p * b, and that is so if it holds modulo enough numbers.

    equal, undefined = same_ratio(found, digit, value, (top, bottom, sides), tables)       # [B] bool each

Whole numbers that agree modulo numbers without common factors, whose product is larger than both, are equal: no
approximation. A number of any length leaves its remainders by one multiplication with a table of powers of ten, in
float64, where every sum stays far below 2^53 and so is exact.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from atrl_envs.verify.masks import each
from atrl_envs.verify.peek import may_look, places

if TYPE_CHECKING:
    from atrl_envs.verify.numbers import Value
    from atrl_envs.verify.walk import Tables

FIGURES = 18  # digits of an integer that surely fits int64
MOST_SIDE = 256  # digits of the numerator or the denominator of a gold answer
MOST_FIGURES = (
    320  # digits of a part of an answer; of a mixed number, of its whole part and denominator together
)
_MODULI, _MODULI_OF_INT64 = 64, 7  # their products have more than 597 and 65 digits

Sides = tuple[Tensor, Tensor, Tensor]  # numerator, denominator [B] int64, and the digits of both [B, 2, F]


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
    found: Tensor, digit: Tensor, value: Value, gold: Sides, tables: Tables
) -> tuple[Tensor, Tensor]:
    """Whether a fraction has the size of the gold, signs apart, and whether its denominator is zero: [B], [B].

    True where no part has more than MOST_FIGURES digits; where one has more, both mean nothing.
    """
    top, bottom, sides = gold
    if not may_look(found):
        return _in_full(found, digit, value.count, sides, tables)
    few = tables.moduli[:_MODULI_OF_INT64].unsqueeze(1)
    parts = value.number[:3].unsqueeze(1) % few
    wanted = torch.stack([top, bottom]).unsqueeze(1) % few
    equal, undefined = _across(parts, wanted, value.count[1] > 0, few)
    long = value.count[:3].amax(0) > FIGURES
    if sides.shape[2] > FIGURES:
        long = long | (sides[:, :, FIGURES:] > 0).flatten(1).any(1)
    rows = places(long)
    if rows.numel():
        some = _in_full(found[rows], digit[rows], value.count[:, rows], sides[rows], tables)
        equal, undefined = equal.index_copy(0, rows, some[0]), undefined.index_copy(0, rows, some[1])
    return equal, undefined


def _in_full(
    found: Tensor, digit: Tensor, count: Tensor, sides: Tensor, tables: Tables
) -> tuple[Tensor, Tensor]:
    """`same_ratio` from the digits themselves."""
    member = each(found, tables.fields[:3])  # WHOLE, OVER, UNDER
    place = count[:3].unsqueeze(2) - member.cumsum(2, dtype=torch.int32)
    rows = found.shape[0]
    digits = torch.zeros(3, rows, MOST_FIGURES + 1, dtype=torch.uint8, device=found.device)
    home = torch.where(member, place.clamp(max=MOST_FIGURES), MOST_FIGURES).long()
    digits.scatter_(2, home, digit.expand(3, *digit.shape))
    parts = _remainders(digits[:, :, :MOST_FIGURES], tables).permute(0, 2, 1)
    wanted = _remainders(sides[:, :, :MOST_FIGURES], tables).permute(1, 2, 0)
    return _across(parts, wanted, count[1] > 0, tables.moduli.unsqueeze(1))


def _remainders(digits: Tensor, tables: Tables) -> Tensor:
    """[..., F] digits, the last one first, to [..., P] remainders."""
    return (digits.double() @ tables.powers[: digits.shape[-1]]).long() % tables.moduli


def _across(parts: Tensor, wanted: Tensor, has_over: Tensor, modulus: Tensor) -> tuple[Tensor, Tensor]:
    """parts: [3, P, B] remainders of whole, numerator, denominator; wanted: [2, P, B]; modulus: [P, 1]."""
    whole, over, under = parts.unbind(0)
    top = torch.where(has_over, whole * under % modulus + over, whole)
    equal = ((top * wanted[1] - under * wanted[0]) % modulus == 0).all(0)
    return equal, (under == 0).all(0)
