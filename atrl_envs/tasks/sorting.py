"""Lists in ascending order: "sort 5 -2 11: " is answered by "-2 5 11"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, whole_number
from atrl_envs.tasks.operands import check_range, draw

if TYPE_CHECKING:
    from atrl_envs.vocab import Vocab


class Sorting(Task):
    """Put whole numbers in ascending order.

    Example: prompt "sort 5 -2 11: ", answer "-2 5 11"; the response "-2 5 11" and its end pay 1.0, however many blanks
        stand between the numbers; "-2,5,11" pays 0.

    Description: the number of numbers is drawn evenly from 2..most, each number from low..high. A number may come
        twice; the answer then has it twice.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. The answer is compared as a text, blanks aside; the style is
        `plain`: the whole response is the answer.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: how many numbers there are, less two.
    Arguments: most (6), low (-20), high (99).
    Versions: v0.
    """

    most: int = 6
    low: int = -20
    high: int = 99

    def __post_init__(self) -> None:
        check_between("Sorting", "most", self.most, 2, 100)
        check_range(self.low, self.high)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        numbers = draw(rng, self.low, self.high, whole_number(rng, 2, self.most))
        return Problem(
            prompt=f"sort {' '.join(map(str, numbers))}: ",
            answer=" ".join(map(str, sorted(numbers))),
            difficulty=len(numbers) - 2,
        )

    def verifier(self, vocab: Vocab, style: str) -> Any:
        """The answer is a list, so it is compared as a text."""
        from atrl_envs.verify import ExactVerifier

        return ExactVerifier(vocab, style=style)
