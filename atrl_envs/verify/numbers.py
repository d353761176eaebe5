"""Exact values from labelled bytes, and whether they equal the gold: no floating point rounds anything anywhere.

    verdict = compare(found, letters, (digits, form, sides), tables)         # [B]

A terminating decimal is a digit string without leading and trailing zeros, times a power of ten: two are
equal exactly if sign, digits and exponent are, whatever their length, and 1e999999999 costs nothing. Fractions are
compared across, a * q with p * b, by their remainders (`remainders.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.verify.labels import RATIONAL
from atrl_envs.verify.masks import below, each, equals
from atrl_envs.verify.peek import surely_none
from atrl_envs.verify.remainders import FIGURES, MOST_FIGURES, same_ratio
from atrl_envs.verify.verdict import Verdict
from atrl_envs.verify.walk import Tables

Gold = tuple[Tensor, Tensor, Tensor]  # digits [B, G] uint8, form [B, 8] int64, sides [B, 2, F] uint8


@dataclass(frozen=True)
class Value:
    """What the labels say of each answer, all [B] but the first two.

    count: [4, B] digits of WHOLE, OVER, UNDER, POWER. number: [4, B] their values, where they have at most FIGURES.
    decimals: digits behind the point. minus, power_minus, percent: how many there are.
    """

    count: Tensor
    number: Tensor
    decimals: Tensor
    minus: Tensor
    power_minus: Tensor
    percent: Tensor


def value_of(found: Tensor, digit: Tensor, tables: Tables) -> Value:
    """Integer values of the labelled digits: found, digit [B, T]."""
    size = found.shape[1]
    member = each(found, tables.fields)
    count = member.sum(2, dtype=torch.int32)
    place = torch.arange(1, size + 1, dtype=torch.int32, device=found.device)
    # Digits of a part stand side by side where its value is used: the last FIGURES places hold it.
    final = (member[:4].view(torch.uint8) * place).amax(2, keepdim=True)  # from 1; 0 if there is none
    reach = min(FIGURES, size)
    step = torch.arange(1, reach + 1, dtype=torch.int32, device=found.device)
    digits = digit.expand(4, *digit.shape).gather(2, (final - step).clamp(min=0).long())
    parts = count[:4]
    number = (digits * (step <= parts.unsqueeze(2)) * tables.tens[:reach]).sum(2)
    return Value(parts, number, *count[4:].unbind(0))


def same_decimal(
    found: Tensor, digit: Tensor, value: Value, figures: Tensor, form: tuple[Tensor, ...]
) -> Tensor:
    """Whether a decimal equals the gold, digit by digit: [B]. figures: [B, G] significant digits of the gold."""
    _, gold_minus, gold_count, gold_exponent, *_ = form
    member = below(found - 1, 3).view(torch.uint8)  # WHOLE, OVER, DECIMALS; NONE wraps around
    rank = member.cumsum(1, dtype=torch.int32)
    total = rank[:, -1]
    shown = member * digit
    solid = (~equals(shown, 0)).view(torch.uint8)
    final = (solid * rank).amax(1)
    beyond = found.shape[1] + 1
    first = beyond - (solid * (beyond - rank)).amax(1)
    # Zeros before the first significant digit equal a zero before the digits of the gold; behind these stand zeros.
    place = rank - (first - 1).unsqueeze(1)
    padded = torch.nn.functional.pad(figures, (1, 0))
    expected = padded.gather(1, place.clamp(0, figures.shape[1]).long()) * member
    differs = (shown != expected).sum(1, dtype=torch.int32) > 0
    significant = (final - first + 1).clamp(min=0)
    power = value.number[3] * (1 - 2 * value.power_minus)
    exponent = power - value.decimals + (total - final)
    same = (exponent == gold_exponent) & (value.minus % 2 == gold_minus)
    return (significant == gold_count) & ~differs & (same | (significant == 0))


def same_fraction(
    found: Tensor, digit: Tensor, value: Value, gold: Gold, tables: Tables
) -> tuple[Tensor, Tensor]:
    """Whether a fraction equals the gold, and whether that could be decided: [B], [B]."""
    kind, gold_minus, gold_count, _, top, bottom, *_ = gold[1].unbind(1)
    wholes, overs, unders, _ = value.count.unbind(0)
    mixed = (wholes > 0) & (overs > 0)
    proper = ~mixed | ((overs <= 2) & (unders <= FIGURES) & (value.number[1] < value.number[2]))
    fits = torch.where(mixed, wholes + unders, value.count[:3].amax(0)) <= MOST_FIGURES
    equal, undefined = same_ratio(found, digit, value, (top, bottom, gold[2]), tables)
    equal = equal & ~undefined & ((value.minus % 2 == gold_minus) | (gold_count == 0))
    return equal, fits & (undefined | (proper & ((kind & RATIONAL) > 0)))


def compare(found: Tensor, letters: Tensor, gold: Gold, tables: Tables) -> Tensor:
    """Verdict [B] on texts that the machine accepted as one number.

    found: labels [B, T]; letters: bytes [B, T]; gold: digits [B, G], form [B, 8] and sides [B, 2, F].
    """
    form = gold[1].unbind(1)
    digit = letters & 15
    value = value_of(found, digit, tables)
    equal = same_decimal(found, digit, value, gold[0], form)
    decided = value.count[3] <= FIGURES
    is_fraction = value.count[2] > 0
    if not surely_none(is_fraction):
        fraction, fraction_decided = same_fraction(found, digit, value, gold, tables)
        equal = torch.where(is_fraction, fraction, equal)
        decided = torch.where(is_fraction, fraction_decided, decided)
    # `28` for a gold of `28%` is neither surely right nor surely wrong.
    decided = decided & ((value.percent > 0) | (form[6] == 0))
    verdict = torch.where(equal, int(Verdict.CORRECT), int(Verdict.WRONG))
    return torch.where(decided, verdict, int(Verdict.UNDECIDED))
