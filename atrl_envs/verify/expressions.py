"""Sums and products of whole numbers with brackets: a batch of texts is read and worked out, exactly.

    reading = Reading(letters, cut)                     # [B, W] uint8: which texts are well-formed
    parts = reading.parts(most=6)                       # Parts: numbers and the operators between them
    right = equals(parts, target, valid)                # [B]

It is parsed without a stack: an operator's rank is twice the depth of its brackets, plus one for * and /, and the
operator of the highest rank, the leftmost of equals, is worked out first. So as many rounds as operators are
enough, each for all rows at once. Values are fractions of two int64, never reduced.

Blanks may stand anywhere but inside a number. There are no signs in front of numbers and no leading zeros. One
`=` may stand behind an expression; what follows it is read apart, see `Reading.claims`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.verify.automaton import END, STRANGE
from atrl_envs.verify.peek import surely_none

FIGURES = 9  # most digits of a number
MOST_NUMBERS = 12
_BITS = 62.0  # an expression whose numbers stay below this cannot overflow, see `fits`
_SIGNS = ((b"\xc3\x97", b"*"), (b"\xc2\xb7", b"*"), (b"\xc3\xb7", b"/"), (b"\xe2\x88\x92", b"-"))
_BLANK, _EQUALS, _OPEN, _CLOSE, _ZERO = b" =()0"
# An operator is 8 times its depth, plus its kind; -1 where there is none.
_MINUS, _TIMES, _OVER = 1, 4, 5


@dataclass(frozen=True)
class Parts:
    """An expression's numbers in order, [B, N] int64: -1 behind them, -2 for one of more than FIGURES digits.

    operators: between them, [B, N - 1]. crowded: [B], there are more than N numbers.
    """

    numbers: Tensor
    operators: Tensor
    crowded: Tensor


class Reading:
    """What stands where in texts [B, W].

    cut: [B], the text goes on behind its last byte here. sound: [B], a well-formed expression, alone or with `=` and
    something behind it, as far as is seen where it is cut. empty: [B], nothing but blanks.
    """

    def __init__(self, letters: Tensor, cut: Tensor) -> None:
        letters = self.letters = _plain_signs(letters)
        self.place = torch.arange(1, letters.shape[1] + 1, dtype=torch.int32, device=letters.device)
        blank = (letters == _BLANK) | (letters - 9 < 5)  # and \t \n \v \f \r; bytes wrap around
        solid = ~blank & (letters != END)
        equals, opening, closing = letters == _EQUALS, letters == _OPEN, letters == _CLOSE
        self.behind = equals.cumsum(1, dtype=torch.int32) > 0
        figure = letters - _ZERO < 10
        begins = figure & ~_shift(figure, 1)
        self.ends = figure & ~_shift(figure, -1)  # last digit of each number
        self.minus, self.times, self.over = (letters == byte for byte in b"-*/")
        self.operator = (letters == 43) | self.minus | self.times | self.over
        self.marks = self.operator | opening | closing | equals
        step = opening.view(torch.uint8).view(torch.int8) - closing.view(torch.uint8).view(torch.int8)
        self.depth = (step * ~self.behind).cumsum(1, dtype=torch.int32)
        self.empty = ~solid.any(1)

        zero = (letters == _ZERO) & begins & ~self.ends  # a leading zero
        bad = (solid & ~figure & ~self.marks) | zero | (self.depth < 0)
        # A number or an opening bracket has to stand where an operand is wanted, anything else where none is.
        closed = torch.nn.functional.pad(figure | closing, (1, 0))  # behind these none is wanted
        closed_before = closed.gather(1, _shift(self._last(solid), 1).long())
        misplaced = (begins | self.marks) & ((begins | opening) == closed_before)
        bad = bad | (misplaced & (~self.behind | equals))
        # A sign of three bytes may be cut.
        bad = bad & ~(cut.unsqueeze(1) & (self.place > letters.shape[1] - 2))
        final = self._last(solid & ~self.behind)[:, -1:]
        complete = closed.gather(1, final.long()).squeeze(1) & (self.depth[:, -1] == 0)
        self.sound = ~bad.any(1) & (complete | cut)

    def parts(self, most: int) -> Parts:
        """Numbers and operators before any `=`, `most` numbers of them; they mean something where `sound`."""
        inside = self.ends & ~self.behind
        home = inside.cumsum(1, dtype=torch.int32) - 1
        ends = _gathered(inside, home, most + 1, self.place.expand_as(home), empty=0)
        numbers = torch.where(ends > 0, self._number(ends), -1)
        kind = self.minus * _MINUS + self.times * _TIMES + self.over * _OVER
        between = self.operator & ~self.behind
        operators = _gathered(between, home, most - 1, (8 * self.depth + kind).int(), empty=-1)
        return Parts(numbers[:, :most], operators, ends[:, most] > 0)

    def claims(self, target: Tensor) -> Tensor:
        """Whether nothing stands behind the expression, or just one `=` and the target: [B]."""
        numbers = self.ends & self.behind
        last = (numbers.view(torch.uint8) * self.place).amax(1, keepdim=True)
        alone = ((self.marks & self.behind).sum(1) == 1) & (numbers.sum(1) == 1)
        return ~self.behind[:, -1] | (alone & (self._number(last.long()).squeeze(1) == target))

    def _last(self, flags: Tensor) -> Tensor:
        """The last place up to here that is set, from 1; 0 if there is none: [B, W] int32."""
        return (flags.view(torch.uint8) * self.place).cummax(1).values

    def _number(self, ends: Tensor) -> Tensor:
        """The number whose last digit stands at each place (from 1; [B, M] int64); -2 if it has too many digits."""
        step = torch.arange(FIGURES + 1, device=ends.device)
        index = ends.unsqueeze(2) - 1 - step
        digit = self.letters.gather(1, index.clamp(min=0).flatten(1)).view(index.shape) - _ZERO
        run = ((digit < 10) & (index >= 0)).cumprod(2)
        return torch.where(run[:, :, FIGURES] > 0, -2, (digit * run * 10**step).sum(2))


def fits(numbers: Tensor) -> Tensor:
    """Whether no value on the way can overflow: [B].

    Unreduced, an expression of k numbers has a numerator and a denominator of at most 2^(k-1) times the product of
    its numbers (of those above 1): that holds for one number, and +, -, * and / of two such fractions keep it.
    """
    bits = numbers.clamp(min=1).double().log2().sum(1) + (numbers >= 0).sum(1)
    return bits < _BITS


def equals(parts: Parts, target: Tensor, valid: Tensor) -> Tensor:
    """Whether the value is defined and equals the target [B] int64: [B]; False where the expression is not `valid`."""
    top, operators = parts.numbers, parts.operators
    bottom = torch.ones_like(top)
    slot = torch.arange(top.shape[1], device=top.device)
    defined = valid
    for _ in range(top.shape[1] - 1):
        rank = torch.where(operators >= 0, (operators >> 2) * MOST_NUMBERS + MOST_NUMBERS - 1 - slot[:-1], -1)
        first = rank.amax(1, keepdim=True)
        busy = first >= 0
        at = torch.where(busy, MOST_NUMBERS - 1 - first % MOST_NUMBERS, 0)
        kind = operators.gather(1, at) & 7
        (a, c), (b, d) = ((part.gather(1, at), part.gather(1, at + 1)) for part in (top, bottom))
        divides = kind == _OVER
        defined = defined & ~(busy & divides & (c == 0)).squeeze(1)
        c, d = torch.where(divides, d, c), torch.where(divides, c, d)
        c = torch.where(kind == _MINUS, -c, c)
        value = torch.where(kind >= _TIMES, a * c, a * d + c * b), b * d
        here, beyond = busy & (slot == at), busy & (slot > at)
        top, bottom = (
            torch.where(here, new, torch.where(beyond, _shift(part, -1), part))
            for part, new in zip((top, bottom), value, strict=True)
        )
        ahead = torch.nn.functional.pad(operators[:, 1:], (0, 1), value=-1)
        operators = torch.where(busy & (slot[:-1] >= at), ahead, operators)
    # Rows without a value are kept away from the division: it may not meet a zero.
    a = torch.where(defined, top[:, 0], 0)
    b = torch.where(defined, bottom[:, 0], 1)
    return defined & (a % b == 0) & (a // b == target)


def _shift(values: Tensor, by: int) -> Tensor:
    """Each row moved by one place to the right (1) or left (-1), zero where nothing came from."""
    if by > 0:
        return torch.nn.functional.pad(values[:, :-1], (1, 0))
    return torch.nn.functional.pad(values[:, 1:], (0, 1))


def _gathered(chosen: Tensor, home: Tensor, size: int, values: Tensor, empty: int) -> Tensor:
    """The chosen values at their homes, [B, size] int64."""
    # One column more takes what was not chosen or has no home.
    target = torch.where(chosen & (home >= 0) & (home < size), home, size).long()
    found = torch.full((home.shape[0], size + 1), empty, dtype=torch.int32, device=home.device)
    return found.scatter_(1, target, values.contiguous())[:, :size].long()


def _plain_signs(letters: Tensor) -> Tensor:
    """The signs × · ÷ − as ASCII, with blanks before: letters [B, W] uint8 in UTF-8."""
    if surely_none((letters > 127) & (letters < STRANGE)):
        return letters
    size = letters.shape[1]
    for raw, plain in _SIGNS:
        padded = torch.nn.functional.pad(letters, (0, len(raw) - 1))
        found = torch.ones_like(letters, dtype=torch.bool)
        for offset, byte in enumerate(raw):
            found = found & (padded[:, offset : offset + size] == byte)
        for offset in range(len(raw)):
            here = torch.nn.functional.pad(found, (offset, 0))[:, :size]
            letters = letters.masked_fill(here, plain[0] if offset == len(raw) - 1 else _BLANK)
    return letters
