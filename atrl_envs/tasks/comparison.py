"""Which of two numbers is greater? "3.45 ? 3.5: " is answered by "<"."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, pick, whole_number
from atrl_envs.tasks.decimals import spelled

if TYPE_CHECKING:
    from atrl_envs.vocab import Vocab

_BOTTOMS = (2, 4, 5, 8, 10, 20, 25)  # fractions with these are decimals with at most three places
_PLACES = 3

Spelled = tuple[Fraction, str]


class Comparison(Task):
    """Say whether the first of two numbers is less than (<), equal to (=) or greater than (>) the second.

    Example: prompt "3.45 ? 3.5: ", answer "<"; the response "<" and its end pay 1.0, anything else pays 0.

    Description: the kind of numbers is drawn evenly from the levels below, and so is the answer: each of the three
        signs has the same share, so that a guess pays one time in three. Equal numbers are spelled differently where
        their kind allows it: "0.5 ? 0.50", "2/4 ? 3/6".
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. The answer is compared as a text; the style is `plain`: the
        whole response is the answer.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: 0 is two whole numbers, 1 two decimals, 2 two fractions, 3 a fraction and a decimal.
    Arguments: hardest (3): the highest difficulty, high (20): whole numbers lie in -high..high, whole parts in 0..high,
        denominators in 2..high (in fractions to compare with decimals: what of 2, 4, 5, 8, 10, 20, 25 is not above it).
    Versions: v0.
    """

    hardest: int = 3
    high: int = 20

    def __post_init__(self) -> None:
        check_between("Comparison", "hardest", self.hardest, 0, 3)
        check_between("Comparison", "high", self.high, 2, 10**6)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        level, sign = whole_number(rng, 0, self.hardest), pick(rng, "<=>")
        kind = (self._whole_numbers, self._decimals, self._fractions, self._mixed)[level]
        while True:
            left, right = kind(rng, sign == "=")
            if (left[0] == right[0]) == (sign == "="):
                break
        if sign != "=" and (left[0] < right[0]) != (sign == "<"):
            left, right = right, left
        return Problem(f"{left[1]} ? {right[1]}: ", sign, difficulty=level)

    def verifier(self, vocab: Vocab, style: str) -> Any:
        """The answer is a sign, no number."""
        from atrl_envs.verify import ExactVerifier

        return ExactVerifier(vocab, style=style)

    def corrupt(self, answer: str) -> str:
        return {"<": ">", "=": "<", ">": "="}[answer]

    def _whole_numbers(self, rng: numpy.random.Generator, equal: bool) -> tuple[Spelled, Spelled]:
        a = whole_number(rng, -self.high, self.high)
        b = a if equal else whole_number(rng, -self.high, self.high)
        return (Fraction(a), str(a)), (Fraction(b), str(b))

    def _decimals(self, rng: numpy.random.Generator, equal: bool) -> tuple[Spelled, Spelled]:
        whole = whole_number(rng, 0, self.high)
        first = _decimal(rng, whole)
        if equal:
            longer = first[0], first[1] + "0"
            return (first, longer) if whole_number(rng, 0, 1) else (longer, first)
        # The same whole part, so that the figures behind the point decide.
        return first, _decimal(rng, whole)

    def _fractions(self, rng: numpy.random.Generator, equal: bool) -> tuple[Spelled, Spelled]:
        if not equal:
            return self._fraction(rng), self._fraction(rng)
        bottom = whole_number(rng, 2, self.high)
        top = whole_number(rng, 1, bottom)
        first, second = rng.permutation(4)[:2].tolist()
        value = Fraction(top, bottom)
        a, b = ((value, f"{top * (by + 1)}/{bottom * (by + 1)}") for by in (first, second))
        return a, b

    def _mixed(self, rng: numpy.random.Generator, equal: bool) -> tuple[Spelled, Spelled]:
        bottom = pick(rng, [bottom for bottom in _BOTTOMS if bottom <= self.high])
        top = whole_number(rng, 1, bottom - 1) + bottom * whole_number(rng, 0, 1)  # never a whole number
        value = Fraction(top, bottom)
        if equal:
            figures = value * 10**_PLACES
            decimal = value, spelled(int(figures), _PLACES, trim=True)
        else:
            decimal = _decimal(rng, whole_number(rng, 0, 1))
        pair = (value, f"{top}/{bottom}"), decimal
        return pair if whole_number(rng, 0, 1) else (pair[1], pair[0])

    def _fraction(self, rng: numpy.random.Generator) -> Spelled:
        bottom = whole_number(rng, 2, self.high)
        top = whole_number(rng, 1, bottom)
        return Fraction(top, bottom), f"{top}/{bottom}"


def _decimal(rng: numpy.random.Generator, whole: int) -> Spelled:
    """A decimal with this whole part, one to three places, and no zero at the end."""
    places = whole_number(rng, 1, _PLACES)
    behind = whole_number(rng, 0, 10 ** (places - 1) - 1) * 10 + whole_number(rng, 1, 9)
    figures = whole * 10**places + behind
    return Fraction(figures, 10**places), spelled(figures, places)
