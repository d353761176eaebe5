"""Sums of whole numbers: "12+34=" is answered by "46"."""

from __future__ import annotations

from collections.abc import Iterable

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.operands import all_tuples, check_range, draw


class Addition(Task):
    """Add whole numbers.

    Example: prompt "12+34=", answer "46"; the response "46" and its end pay 1.0, anything else pays 0.

    Description: the sum of `operands` numbers, each drawn evenly from low..high. With the defaults, two-digit
        numbers, there are 8,100 problems, about 800 of them held out.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `plain`: the whole
        response is the answer.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Arguments: operands (2), low (10), high (99). Negative numbers are written with their sign: "3+-4=".
    Versions: v0.
    """

    operands: int = 2
    low: int = 10
    high: int = 99

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        if self.operands < 2:
            raise ValueError(f"Addition wants at least 2 operands, got {self.operands}")

    def problem(self, rng: numpy.random.Generator) -> Problem:
        return _state(draw(rng, self.low, self.high, self.operands))

    def problems(self) -> Iterable[Problem] | None:
        tuples = all_tuples(self.low, self.high, self.operands)
        return None if tuples is None else map(_state, tuples)


def _state(numbers: tuple[int, ...]) -> Problem:
    return Problem(prompt="+".join(map(str, numbers)) + "=", answer=str(sum(numbers)))
