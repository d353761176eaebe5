"""Differences of whole numbers: "12-34=" is answered by "-22"."""

from __future__ import annotations

from collections.abc import Iterable

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.operands import all_tuples, check_range, draw


class Subtraction(Task):
    """Subtract one whole number from another.

    Example: prompt "12-34=", answer "-22"; the response "-22" and its end pay 1.0, anything else pays 0.

    Description: two numbers, each drawn evenly from low..high. With the defaults there are 10,000 problems, about
        1,000 of them held out.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `plain`: the whole
        response is the answer.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Arguments: low (0), high (99), negative (True): whether a difference may be below zero; if not, the larger
        number comes first.
    Versions: v0.
    """

    low: int = 0
    high: int = 99
    negative: bool = True

    def __post_init__(self) -> None:
        check_range(self.low, self.high)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        return self._state(draw(rng, self.low, self.high, 2))

    def problems(self) -> Iterable[Problem] | None:
        tuples = all_tuples(self.low, self.high, 2)
        return None if tuples is None else map(self._state, tuples)

    def _state(self, numbers: tuple[int, ...]) -> Problem:
        left, right = numbers if self.negative else sorted(numbers, reverse=True)
        return Problem(prompt=f"{left}-{right}=", answer=str(left - right))
