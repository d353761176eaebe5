"""Exact values from labelled bytes, and whether they equal the gold: no floating point rounds anything anywhere.

    verdict = compare(found, letters, (digits, form, sides), tables)         # [B]

A terminating decimal is a digit string without leading and trailing zeros, times a power of ten: two are
equal exactly if sign, digits and exponent are, whatever their length, and 1e999999999 costs nothing. Fractions are
compared across, a * q with p * b, by their remainders (`remainders.py`). Texts are columns here: [T, B].
"""

from __future__ import annotations

from dataclasses import dataclass

from atrl_envs.verify.labels import OVER, PERCENT, POWER, RATIONAL, UNDER, WHOLE
from atrl_envs.verify.masks import (
    Array,
    at_least,
    at_most,
    below,
    equals,
    lowest,
    running,
    steps,
    take,
    where,
)
from atrl_envs.verify.peek import surely_none
from atrl_envs.verify.remainders import FIGURES, MOST_FIGURES, same_ratio
from atrl_envs.verify.verdict import Verdict
from atrl_envs.verify.walk import FIGURE, MINUSES, PARTS, POWER_MINUSES, Tables

Gold = tuple[Array, Array, Array]  # digits [B, G] uint8, form [B, 8] int64, sides [B, 2, F] uint8


@dataclass(frozen=True)
class Value:
    """What the labels say of each answer.

    sums: [T, B] int64, running sums of `counts`; total: [B], the last of them. figures: [B], digits of a decimal.
    whole, over, under, power: [B], the digits of each part.
    """

    sums: Array
    total: Array
    figures: Array
    whole: Array
    over: Array
    under: Array
    power: Array

    @property
    def minus(self) -> Array:
        """1 where the number of signs is odd: [B]."""
        return self.total >> MINUSES & 1

    @classmethod
    def of(cls, found: Array, tables: Tables) -> Value:
        """From labels [T, B]."""
        sums = running(take(tables.counts, found))
        total = sums[-1]
        return cls(sums, total, *((total >> field) & 1023 for field in (FIGURE, *PARTS)))

    def of_rows(self, rows: Array) -> Value:
        """Of some of the answers."""
        return Value(*(getattr(self, name)[..., rows] for name in Value.__dataclass_fields__))

    def behind(self, found: Array, tables: Tables) -> Array:
        """How many digits of its part stand behind each digit: [T, B]."""
        return (self.total - self.sums) >> take(tables.shifts, found) & 1023

    def numbers(self, found: Array, digit: Array, tables: Tables) -> Array:
        """What each digit [T, B] adds to the value of its part; 0 for all but the last FIGURES digits of a part."""
        return take(tables.tens, at_most(self.behind(found, tables), FIGURES)) * digit


def same_decimal(found: Array, digit: Array, value: Value, power: Array, gold: Gold) -> Array:
    """Whether a decimal equals the gold, digit by digit: [B]. power: [B], the exponent of ten."""
    figures, form, _ = gold
    gold_minus, gold_count, gold_exponent = form[:, 1], form[:, 2], form[:, 3]
    member = below(found - 1, 3)  # WHOLE, OVER, DECIMALS; NONE wraps around
    rank = value.sums & 1023
    # Zeros before the first significant digit say where the point is, and no more.
    zeros = lowest(where(member & ~equals(digit, 0), rank - 1, value.figures))
    # Behind the digits of the gold stand zeros, and one before them.
    place = at_least(at_most(rank - zeros, figures.shape[1] - 1), 0)
    row = steps(0, figures.shape[0], figures) * figures.shape[1]
    differs = (member & (take(figures.reshape(-1), place + row) != digit)).any(0)
    complete = (gold_count >= 0) & (value.figures - zeros >= gold_count) & ~differs
    point = power + value.whole + value.over - zeros  # digits before it, from the first significant one
    same = (point == gold_exponent + gold_count) & (value.minus == gold_minus)
    return complete & (same | (gold_count == 0))


def same_fraction(
    found: Array, digit: Array, value: Value, numbers: Array, gold: Gold, tables: Tables
) -> tuple[Array, Array]:
    """Whether a fraction equals the gold, and whether that could be decided: [B], [B]."""
    form = gold[1]
    mixed = (value.whole > 0) & (value.over > 0)
    parts = tuple((numbers * equals(found, label)).sum(0) for label in (WHOLE, OVER, UNDER))
    proper = ~mixed | ((value.over <= 2) & (value.under <= FIGURES) & (parts[1] < parts[2]))
    longest = at_least(at_least(value.whole, value.over), value.under)
    fits = where(mixed, value.whole + value.under, longest) <= MOST_FIGURES
    equal, undefined = same_ratio(found, digit, value, parts, gold, tables)
    equal = equal & ~undefined & ((value.minus == form[:, 1]) | (form[:, 2] == 0))
    return equal, fits & (undefined | (proper & ((form[:, 0] & RATIONAL) > 0)))


def compare(found: Array, letters: Array, gold: Gold, tables: Tables) -> Array:
    """Verdict [B] on texts that the machine accepted as one number.

    found: labels [T, B]; letters: bytes [T, B]; gold: digits [B, G], form [B, 8] and sides [B, 2, F].
    """
    digit = letters & 15
    value = Value.of(found, tables)
    is_fraction, has_power = value.under > 0, value.power > 0
    power, decided = value.power, value.power <= FIGURES
    plain = surely_none(is_fraction | has_power)
    numbers = None if plain else value.numbers(found, digit, tables)
    if not surely_none(has_power):
        power = (numbers * equals(found, POWER)).sum(0) * (1 - 2 * (value.total >> POWER_MINUSES & 1))
    equal = same_decimal(found, digit, value, power, gold)
    if not surely_none(is_fraction):
        fraction, fraction_decided = same_fraction(found, digit, value, numbers, gold, tables)
        equal = where(is_fraction, fraction, equal)
        decided = where(is_fraction, fraction_decided, decided)
    # `28` for a gold of `28%` is neither surely right nor surely wrong.
    asked = gold[1][:, 6] > 0
    if not surely_none(asked):
        decided = decided & (equals(found, PERCENT).any(0) | ~asked)
    return where(decided, where(equal, int(Verdict.CORRECT), int(Verdict.WRONG)), int(Verdict.UNDECIDED))
