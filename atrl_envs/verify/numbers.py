"""Exact values from labelled bytes, and whether they equal the gold: no floating point anywhere.

    verdict = compare(found, letters, (digits, form), tables)         # [B]

A terminating decimal is a digit string without leading and trailing zeros, times a power of ten: two are
equal exactly if sign, digits and exponent are, whatever their length, and 1e999999999 costs nothing. A fraction
is compared with p/q in lowest terms by division: num/den = p/q exactly if q divides den, p divides num, and
the quotients are equal, so nothing can overflow. A fraction with more than 18 digits a side is UNDECIDED.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.verify import labels as L
from atrl_envs.verify.gold import BOTTOM, COUNT, EXPONENT, KIND, NEGATIVE, RATIONAL, TOP, WITH_PERCENT
from atrl_envs.verify.verdict import Verdict
from atrl_envs.verify.walk import FIGURES, Tables


@dataclass(frozen=True)
class Value:
    """What the labels say: the parts WHOLE, OVER, UNDER, POWER, and the marks."""

    count: Tensor  # [4, B] digits of each part
    number: Tensor  # [4, B] its value, where it has at most FIGURES digits
    decimals: Tensor  # [B] digits behind the point
    negative: Tensor  # [B]
    power_negative: Tensor  # [B]
    percent: Tensor  # [B]


def value_of(found: Tensor, digit: Tensor, tables: Tables) -> Value:
    """Integer values of the labelled digits: found, digit [B, T]."""
    rows, size = found.shape
    member = found == tables.fields
    place = torch.arange(1, size + 1, dtype=torch.int32, device=found.device)
    # Digits of a part stand side by side where its value is used: the last FIGURES places hold it.
    final = (member.view(torch.uint8) * place).amax(2)  # from 1; 0 if there is none
    reach = min(FIGURES, size)
    step = torch.arange(1, reach + 1, dtype=torch.int32, device=found.device)
    index = final.unsqueeze(2) - step
    taken = index.clamp(min=0) + (
        torch.arange(rows, dtype=torch.int32, device=found.device) * size
    ).unsqueeze(1)
    labels = found.view(-1).index_select(0, taken.view(-1)).view(4, rows, reach)
    digits = digit.view(-1).index_select(0, taken.view(-1)).view(4, rows, reach)
    valid = (labels == tables.fields) & (index >= 0)
    number = (digits * valid.view(torch.uint8) * tables.tens[:reach]).sum(2)
    return Value(
        count=member.sum(2, dtype=torch.int32),
        number=number,
        decimals=(found == L.DECIMALS).sum(1, dtype=torch.int32),
        negative=(found == L.MINUS).sum(1, dtype=torch.int32) % 2 == 1,
        power_negative=(found == L.POWER_MINUS).sum(1, dtype=torch.int32) > 0,
        percent=(found == L.PERCENT).sum(1, dtype=torch.int32) > 0,
    )


def same_decimal(found: Tensor, digit: Tensor, value: Value, figures: Tensor, form: Tensor) -> Tensor:
    """Whether a decimal equals the gold, digit by digit: [B]. figures: [B, G] significant digits of the gold."""
    member = (found - 1 < 3).view(torch.uint8)  # WHOLE, OVER, DECIMALS; NONE wraps around
    rank = member.cumsum(1, dtype=torch.int32)
    total = rank[:, -1]
    shown = member * digit
    nonzero = (shown > 0).view(torch.uint8)
    final = (nonzero * rank).amax(1)
    first = total + 1 - (nonzero * (total.unsqueeze(1) + 1 - rank)).amax(1)
    # Zeros before the first significant digit and behind the last equal a gold digit of zero there.
    place = rank - first.unsqueeze(1)
    expected = figures.gather(1, place.clamp(0, figures.shape[1] - 1).long())
    expected = expected * ((place >= 0) & (rank <= final.unsqueeze(1))).view(torch.uint8) * member
    differs = (shown != expected).sum(1, dtype=torch.int32) > 0
    significant = (final - first + 1).clamp(min=0)
    power = torch.where(value.power_negative, -value.number[3], value.number[3])
    exponent = power - value.decimals + total - final
    same = (exponent == form[EXPONENT]) & (value.negative == (form[NEGATIVE] > 0))
    return (significant == form[COUNT]) & ~differs & (same | (significant == 0))


def same_fraction(value: Value, form: Tensor) -> tuple[Tensor, Tensor]:
    """Whether a fraction equals the gold, and whether that could be decided: [B], [B]."""
    whole, over, under, _ = value.number.unbind(0)
    has_whole, has_over, _, _ = (value.count > 0).unbind(0)
    mixed = has_whole & has_over
    digits = torch.where(mixed, value.count[0] + value.count[2], value.count[:3].amax(0))
    fits = (digits <= FIGURES) & (~mixed | ((value.count[1] <= 2) & (over < under)))
    top = torch.where(has_over, over, whole) + whole * under * (mixed & fits)
    p, q = form[TOP], form[BOTTOM]
    unit = p.clamp(min=1)
    equal = (
        (under % q == 0)
        & (top % unit == 0)
        & ((top // unit == under // q) | (p == 0))
        & ((p > 0) | (top == 0))
    )
    signs = (value.negative == (form[NEGATIVE] > 0)) | (top == 0)
    undefined = (under == 0) & (digits <= FIGURES)
    return equal & signs & ~undefined, undefined | (fits & ((form[KIND] & RATIONAL) > 0))


def compare(found: Tensor, letters: Tensor, answers: tuple[Tensor, Tensor], tables: Tables) -> Tensor:
    """Verdict [B] on texts that the machine accepted as one number.

    found: labels [B, T]; letters: bytes [B, T]; answers: gold digits [B, G] and gold form [8, B].
    """
    figures, form = answers
    digit = letters & 15
    value = value_of(found, digit, tables)
    equal = same_decimal(found, digit, value, figures, form)
    decided = value.count[3] <= FIGURES
    fraction, fraction_decided = same_fraction(value, form)
    is_fraction = value.count[2] > 0
    equal = torch.where(is_fraction, fraction, equal)
    decided = torch.where(is_fraction, fraction_decided, decided)
    # `28` for a gold of `28%` is neither surely right nor surely wrong.
    decided = decided & (value.percent | (form[WITH_PERCENT] == 0))
    verdict = torch.where(equal, int(Verdict.CORRECT), int(Verdict.WRONG))
    return torch.where(decided, verdict, int(Verdict.UNDECIDED))
