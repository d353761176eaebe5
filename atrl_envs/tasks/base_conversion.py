"""Whole numbers from one base to another: "2f (base 16) to base 10=" is answered by "47"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, whole_number

if TYPE_CHECKING:
    from atrl_envs.vocab import Vocab

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class BaseConversion(Task):
    """Write a number in another base.

    Example: prompt "47 (base 10) to base 16=", answer "2f"; the responses "2f" and "2F" and their ends pay 1.0,
        "0x2f" and "02f" pay 0.

    Description: two different bases in low_base..high_base; the number of digits of the answer is drawn evenly, then
        the number, at most `high`. Digits above 9 are a, b, c, ...
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. The answer is compared as a text: the digits alone, without
        leading zeros or a prefix, letters in either case. The style is `plain`: the whole response is the answer.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: the number of digits of the answer, less one.
    Arguments: low_base (2), high_base (16), high (255).
    Versions: v0.
    """

    low_base: int = 2
    high_base: int = 16
    high: int = 255

    def __post_init__(self) -> None:
        check_between("BaseConversion", "high_base", self.high_base, 3, len(DIGITS))
        check_between("BaseConversion", "low_base", self.low_base, 2, self.high_base - 1)
        check_between("BaseConversion", "high", self.high, 1, 10**18)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        source = whole_number(rng, self.low_base, self.high_base)
        target = whole_number(rng, self.low_base, self.high_base - 1)
        target += target >= source  # every base but the first
        size = whole_number(rng, 1, len(in_base(self.high, target)))
        least = target ** (size - 1) if size > 1 else 0
        number = whole_number(rng, least, min(target**size - 1, self.high))
        answer = in_base(number, target)
        prompt = f"{in_base(number, source)} (base {source}) to base {target}="
        return Problem(prompt, answer, difficulty=len(answer) - 1)

    def verifier(self, vocab: Vocab, style: str) -> Any:
        """The answer may hold letters, so it is compared as a text."""
        from atrl_envs.verify import ExactVerifier

        return ExactVerifier(vocab, style=style, ignore_case=True)


def in_base(number: int, base: int) -> str:
    """A number >= 0 in a base up to 36."""
    digits = ""
    while number >= base:
        number, digit = divmod(number, base)
        digits = DIGITS[digit] + digits
    return DIGITS[number] + digits
