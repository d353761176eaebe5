"""Gold answers in normal form, made once on the host and compared ever after on the device.

    encode_gold("-1 3/4", answer_machine())       # Gold(negative=True, digits="175", exponent=-2, top=7, bottom=4)

The same automaton reads golds and answers; here its labels become Python integers of any size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from atrl_envs.verify import labels as L
from atrl_envs.verify.automaton import Machine
from atrl_envs.verify.labels import DECIMAL, HOST, INVALID, RATIONAL
from atrl_envs.verify.remainders import FIGURES, MOST_SIDE
from atrl_envs.verify.walk import balanced_on_host

MOST_DIGITS = 4096  # digits of a gold answer

# Columns of the integer form of a gold answer, [M, 8] int64.
KIND, NEGATIVE, COUNT, EXPONENT, TOP, BOTTOM, WITH_PERCENT, SPARE = range(8)


@dataclass(frozen=True)
class Gold:
    """A gold answer in normal form.

    kind: INVALID, or DECIMAL and RATIONAL where it may be compared with decimals (all values may; those that
    do not terminate equal none) and with fractions (numerator and denominator have at most MOST_SIDE digits).
    digits: significant digits of a terminating decimal ("" for zero), times 10 ** exponent. top, bottom: numerator
    and denominator in lowest terms, where it is RATIONAL.
    """

    kind: int = INVALID
    negative: bool = False
    digits: str = ""
    terminates: bool = True
    exponent: int = 0
    top: int = 0
    bottom: int = 1
    percent: bool = False

    def row(self) -> list[int]:
        """The integer form; COUNT is -1 where the value does not terminate, TOP and BOTTOM 0 where they do not fit."""
        count = len(self.digits) if self.terminates else -1
        sides = [side if side < 10**FIGURES else 0 for side in (self.top, self.bottom)]
        values = (self.kind, self.negative, count, self.exponent, *sides, self.percent, 0)
        return [int(value) for value in values]

    def sides(self) -> list[str]:
        """The digits of numerator and denominator, the last one first."""
        return [str(side)[::-1] for side in (self.top, self.bottom)]


def encode_gold(answer: str, machine: Machine, fallback: bool = False) -> Gold:
    """Normal form of a gold answer; INVALID where it is empty or the rules do not read it as one number.

    fallback: HOST in the place of INVALID, except for an empty one.
    """
    gold = _one_number(answer, machine)
    return replace(gold, kind=HOST) if fallback and gold.kind == INVALID and answer.strip() else gold


def _one_number(answer: str, machine: Machine) -> Gold:
    raw = answer.encode("utf-8", "replace")
    found, code = machine.read(raw)
    if code != L.NUMBER or not balanced_on_host(found):
        return Gold()
    begin = max((i + 1 for i, label in enumerate(found) if label == L.EQUALS), default=0)
    parts: dict[int, str] = {}
    for byte, label in zip(raw[begin:], found[begin:], strict=True):
        if label in (L.WHOLE, L.OVER, L.DECIMALS, L.UNDER, L.POWER):
            parts[label] = parts.get(label, "") + str(byte & 15)
    negative = found[begin:].count(L.MINUS) % 2 == 1
    percent = L.PERCENT in found
    power = int(parts.get(L.POWER, "0")[:30]) * (-1 if L.POWER_MINUS in found else 1)
    if L.UNDER in parts:
        return _gold_fraction(parts, negative, percent)
    if abs(power) >= 10**FIGURES or sum(map(len, parts.values())) > MOST_DIGITS:
        return Gold()
    shown = "".join(parts.get(label, "") for label in (L.WHOLE, L.OVER, L.DECIMALS)).lstrip("0")
    digits = shown.rstrip("0")
    exponent = power - len(parts.get(L.DECIMALS, "")) + len(shown) - len(digits) if digits else 0
    negative = negative and bool(digits)
    if abs(exponent) <= MOST_SIDE and len(digits) <= MOST_SIDE:
        value = Fraction(int(digits or "0")) * Fraction(10) ** exponent
        top, bottom = value.numerator, value.denominator
        if max(top, bottom) < 10**MOST_SIDE:
            return Gold(DECIMAL | RATIONAL, negative, digits, True, exponent, top, bottom, percent)
    return Gold(DECIMAL, negative, digits, True, exponent, 0, 1, percent)


def _gold_fraction(parts: dict[int, str], negative: bool, percent: bool) -> Gold:
    if sum(map(len, parts.values())) > MOST_DIGITS:
        return Gold()
    bottom = int(parts[L.UNDER])
    top = int(parts.get(L.OVER) or parts[L.WHOLE])
    if bottom == 0:
        return Gold()
    value = Fraction(top, bottom)
    if L.OVER in parts and L.WHOLE in parts:
        if top >= bottom or len(parts[L.OVER]) > 2:
            return Gold()
        value += int(parts[L.WHOLE])
    top, bottom = value.numerator, value.denominator
    kind = DECIMAL | (RATIONAL if max(top, bottom) < 10**MOST_SIDE else 0)
    rest, twos, fives = bottom, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    sides = (top, bottom) if kind & RATIONAL else (0, 1)
    if rest > 1:
        return Gold(kind, negative and top > 0, "", False, 0, *sides, percent)
    places = max(twos, fives)
    shown = str(top * 10**places // bottom)
    digits = shown.strip("0")
    exponent = len(shown) - len(shown.rstrip("0")) - places if digits else 0
    return Gold(kind, negative and top > 0, digits, True, exponent, *sides, percent)
