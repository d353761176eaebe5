"""An environment that a small chat model half knows: sums of two whole numbers, asked in words.

    atrl train grpo --import benchmarks.question_sums --env.id QuestionSums-v0 --model FOLDER --lora.r 8

The last number of the response is its answer, so "12 + 34 = 46" is as right as "46". SmolLM2-135M-Instruct answers
about one in six of the held-out sums.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from atrl_envs import Problem, Task, register


class QuestionSums(Task):
    """Add two numbers from 1..high.

    Example: prompt "Question: What is 12 + 34?\\nAnswer:", answer "46".
    """

    style = "last_number"

    high: int = 99

    def problem(self, rng: numpy.random.Generator) -> Problem:
        return _asked(*rng.integers(1, self.high + 1, 2).tolist())

    def problems(self) -> Iterator[Problem]:
        numbers = range(1, self.high + 1)
        return (_asked(a, b) for a in numbers for b in numbers)


def _asked(a: int, b: int) -> Problem:
    return Problem(prompt=f"Question: What is {a} + {b}?\nAnswer:", answer=str(a + b))


register("QuestionSums-v0", QuestionSums, max_new_tokens=16)
