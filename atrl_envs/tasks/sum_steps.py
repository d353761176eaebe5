"""Sums of many numbers, worked out line by line: "3+45+7=" is answered by "3+45=48", "48+7=55", "#### 55"."""

from __future__ import annotations

import math

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.operands import check_range, draw


class SumSteps(Task):
    """Add a varying number of terms, step by step: responses whose lengths have a long tail.

    Example: prompt "3+45+7=", answer "55", gold response "3+45=48\\n48+7=55\\n#### 55".

    Description: the number of terms is log-normal with median `median_terms` and log-standard deviation `spread`,
        rounded and clipped to 2..`max_terms`; each term is drawn evenly from low..high. Difficulty: terms, less 2.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the
        answer stands after the last "####".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Arguments: low (0), high (99), median_terms (4.0), spread (0.6), max_terms (16), hasty (0.0): the share of gold
        responses that answer at once, "#### 55". A model that is warm-started on a mixture knows how to work a sum
        out and often does not; rewards are left to teach it that the longer response pays.
    Versions: v0.
    """

    style = "gsm8k_hash"

    low: int = 0
    high: int = 99
    median_terms: float = 4.0
    spread: float = 0.6
    max_terms: int = 16
    hasty: float = 0.0

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        if not (self.max_terms >= 2 and 0 < self.median_terms < math.inf and 0 <= self.spread < math.inf):
            raise ValueError(
                "SumSteps wants max_terms >= 2, a finite median_terms > 0 and a finite spread >= 0, got "
                f"max_terms={self.max_terms}, median_terms={self.median_terms}, spread={self.spread}"
            )
        if not 0 <= self.hasty <= 1:
            raise ValueError(f"SumSteps wants hasty between 0 and 1, a share of responses, got {self.hasty}")

    def problem(self, rng: numpy.random.Generator) -> Problem:
        drawn = rng.lognormal(math.log(self.median_terms), self.spread)  # infinite where the spread is huge
        terms = draw(rng, self.low, self.high, max(round(min(drawn, self.max_terms)), 2))
        at_once = self.hasty > 0 and rng.random() < self.hasty
        return Problem(
            prompt="+".join(map(str, terms)) + "=",
            answer=str(sum(terms)),
            response=f"#### {sum(terms)}" if at_once else _worked_out(terms),
            difficulty=len(terms) - 2,
        )


def _worked_out(terms: tuple[int, ...]) -> str:
    total, lines = terms[0], []
    for term in terms[1:]:
        lines.append(f"{total}+{term}={total + term}")
        total += term
    return "\n".join([*lines, f"#### {total}"])
