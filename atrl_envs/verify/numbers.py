"""From labelled bytes to exact values, and the comparison of two values: no floating point anywhere.

    form = encode_gold("-1 3/4", machine)             # on the host, once: Gold(...)
    found, code = read(letters, tables)               # on the device: labels [B, T], code [B]
    verdict = compare(found, letters, gold, tables)   # [B]

A terminating decimal is a digit string without leading and trailing zeros, times a power of ten: two are
equal exactly if sign, digits and exponent are, whatever their length, and 1e999999999 costs nothing. A fraction
is compared with p/q in lowest terms by division: num/den = p/q exactly if q divides den, p divides num, and
the quotients are equal, so nothing can overflow. A fraction with more than 18 digits a side is UNDECIDED.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor

from atrl_envs.verify import labels as L
from atrl_envs.verify.automaton import SKIP, Machine
from atrl_envs.verify.verdict import Verdict

FIGURES = 18  # digits of an integer that surely fits int64
MOST_WORDS = 4  # words behind a number that may still be its unit
MOST_DIGITS = 4096  # significant digits of a gold answer

# Columns of the integer form of a gold answer, [M, 8] int64.
KIND, NEGATIVE, COUNT, EXPONENT, TOP, BOTTOM, WITH_PERCENT, SPARE = range(8)
INVALID, DECIMAL, RATIONAL = 0, 1, 2  # KIND is a sum of the last two


@dataclass(frozen=True)
class Gold:
    """A gold answer in normal form.

    kind: INVALID, or DECIMAL and RATIONAL where it may be compared with decimals (all values may; those that
    do not terminate equal none) and with fractions (numerator and denominator have at most 18 digits).
    digits: significant digits of a terminating decimal ("" for zero), times 10 ** exponent.
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
        """The integer form; COUNT is -1 where the value does not terminate."""
        count = len(self.digits) if self.terminates else -1
        values = (self.kind, self.negative, count, self.exponent, self.top, self.bottom, self.percent, 0)
        return [int(value) for value in values]


def encode_gold(answer: str, machine: Machine) -> Gold:
    """Normal form of a gold answer; INVALID where it is empty or the rules do not read it as one number."""
    raw = answer.encode("utf-8", "replace")
    found, code = machine.read(raw)
    if code != L.NUMBER or not _balanced(found):
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
    if abs(exponent) <= FIGURES and len(digits) <= FIGURES:
        value = Fraction(int(digits or "0")) * Fraction(10) ** exponent
        top, bottom = value.numerator, value.denominator
        if max(top, bottom) < 10**FIGURES:
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
    kind = DECIMAL | (RATIONAL if max(top, bottom) < 10**FIGURES else 0)
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


_PAIRS = (
    (L.BRACE_OPEN, 1), (L.BRACE_CLOSE, -1), (L.PAREN_OPEN, 1 << 10), (L.PAREN_CLOSE, -(1 << 10)),
    (L.MATH_OPEN, 1 << 20), (L.MATH_CLOSE, -(1 << 20)),
)  # fmt: skip


def _weights() -> list[int]:
    """One number a label whose sum over a text is zero (but for words and bold) if brackets are in balance."""
    weights = [0] * L.COUNT
    for label, weight in _PAIRS:
        weights[label] = weight
    weights[L.BOLD] = 1 << 42
    weights[L.WORD] = 1 << 52
    return weights


def _balanced(found: list[int]) -> bool:
    return bool(_sound(torch.tensor(sum(_weights()[label] for label in found))))


def _sound(total: Tensor) -> Tensor:
    """Brackets balanced, bold marks in pairs, few words: from the sum of `_weights` of a text."""
    brackets = (total & ((1 << 42) - 1)) == 0
    pairs = (total >> 42 & 1) == 0
    return brackets & pairs & (total >> 52 <= MOST_WORDS)


def balanced(found: Tensor, tables: Tables) -> Tensor:
    """`_sound` for every row of labels [B, T]."""
    return _sound(tables.weights.index_select(0, found.view(-1).int()).view(found.shape).sum(1))


@dataclass(frozen=True)
class Tables:
    """A machine as tensors on one device, and the constants of `read` and `compare`."""

    classes: Tensor
    step: Tensor
    emit: Tensor
    accept: Tensor
    weights: Tensor
    tens: Tensor
    fields: Tensor
    rich: Tensor  # [256] bytes that may make an expression out of figures and marks
    width: int

    @classmethod
    def of(cls, machine: Machine) -> Tables:
        """On the CPU."""
        return cls(
            classes=torch.tensor(machine.classes, dtype=torch.int32),
            step=torch.tensor(machine.step, dtype=torch.int32),
            emit=torch.tensor(machine.emit, dtype=torch.uint8),
            accept=torch.tensor(machine.accept, dtype=torch.uint8),
            weights=torch.tensor(_weights(), dtype=torch.int64),
            tens=torch.tensor([10**i for i in range(FIGURES)], dtype=torch.int64),
            fields=torch.tensor([L.WHOLE, L.OVER, L.UNDER, L.POWER], dtype=torch.uint8).view(4, 1, 1),
            rich=torch.tensor([chr(b).isalpha() or chr(b) in "\\^!{}_" or 128 <= b < SKIP for b in range(256)]),
            width=machine.width,
        )


def read(letters: Tensor, tables: Tables, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Walk the machine down all rows at once.

    letters: [B, T] uint8; state: [B] int32, where to begin. Returns the label of each byte [B, T] uint8 and
    the code of each text [B] uint8. One step of the machine is two small operations.
    """
    rows, size = letters.shape
    if state is None:
        state = torch.zeros(rows, dtype=torch.int32, device=letters.device)
    columns = letters.t().reshape(-1).int()
    trail = []
    for classes in tables.classes.index_select(0, columns).view(size, rows).unbind(0):
        index = state + classes
        trail.append(index)
        state = tables.step.index_select(0, index)
    cells = torch.cat(trail)
    found = tables.emit.index_select(0, cells).view(size, rows).t().contiguous()
    return found, tables.accept.index_select(0, state // tables.width)


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
    taken = index.clamp(min=0) + (torch.arange(rows, dtype=torch.int32, device=found.device) * size).unsqueeze(1)
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
    equal = (under % q == 0) & (top % unit == 0) & ((top // unit == under // q) | (p == 0)) & ((p > 0) | (top == 0))
    signs = (value.negative == (form[NEGATIVE] > 0)) | (top == 0)
    undefined = (under == 0) & (digits <= FIGURES)
    return equal & signs & ~undefined, undefined | (fits & ((form[KIND] & RATIONAL) > 0))


@lru_cache(maxsize=8)
def machine_tables(machine_of: object) -> Tables:
    """Tables of a machine, made once a process: pass the cached function that builds the machine."""
    return Tables.of(machine_of())  # type: ignore[operator]


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
