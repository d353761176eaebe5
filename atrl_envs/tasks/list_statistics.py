"""Mean, median, mode and range of a list: "mean(3,5,9)=" is answered by "17/3"."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, pick, whole_number
from atrl_envs.tasks.operands import check_range, draw

_STATISTICS = ("mean", "median", "mode", "range")


class Statistics(Task):
    """Describe a list of whole numbers by one number.

    Example: prompt "mean(3,5,9)=", answer "17/3", gold response "3+5+9=17\\n17/3\\n#### 17/3". A mean or a median
        that is not whole pays in every exact spelling: "#### 5 2/3" does, "#### 5.67" does not.

    Description: the number of numbers is drawn evenly from 3..most, each number from low..high. The mode is the number
        that comes most often; a list that is asked for it has exactly one. The range is the greatest less the least.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the
        answer stands after the last "####".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: how many numbers there are, less three.
    Arguments: most (7), low (0), high (20).
    Versions: v0.
    """

    style = "gsm8k_hash"

    most: int = 7
    low: int = 0
    high: int = 20

    def __post_init__(self) -> None:
        check_between("Statistics", "most", self.most, 3, 100)
        check_range(self.low, self.high)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        count, statistic = whole_number(rng, 3, self.most), pick(rng, _STATISTICS)
        numbers = draw(rng, self.low, self.high, count)
        if statistic == "mode":
            numbers = self._with_a_mode(rng, count)
        value, lines = _worked_out(statistic, numbers)
        return Problem(
            prompt=f"{statistic}({','.join(map(str, numbers))})=",
            answer=str(value),
            response="\n".join([*lines, f"#### {value}"]),
            difficulty=count - 3,
        )

    def _with_a_mode(self, rng: numpy.random.Generator, count: int) -> tuple[int, ...]:
        while True:
            numbers = draw(rng, self.low, self.high, count - 1)
            numbers = tuple(rng.permutation([*numbers, numbers[0]]).tolist())
            most = Counter(numbers).most_common(2)
            if len(most) == 1 or most[0][1] > most[1][1]:
                return numbers


def _worked_out(statistic: str, numbers: tuple[int, ...]) -> tuple[Fraction, list[str]]:
    """The value, and the lines that lead to it."""
    ordered = sorted(numbers)
    listed = " ".join(map(str, ordered))
    if statistic == "mean":
        total = sum(numbers)
        value = Fraction(total, len(numbers))
        written = "+".join(map(str, numbers))
        quotient = f"{total}/{len(numbers)}"
        return value, [f"{written}={total}", quotient if quotient == str(value) else f"{quotient}={value}"]
    if statistic == "range":
        value = Fraction(ordered[-1] - ordered[0])
        return value, [f"{ordered[-1]}-{ordered[0]}={value}"]
    if statistic == "mode":
        return Fraction(Counter(numbers).most_common(1)[0][0]), [listed]
    middle = len(numbers) // 2
    if len(numbers) % 2:
        return Fraction(ordered[middle]), [listed]
    left, right = ordered[middle - 1 : middle + 1]
    value = Fraction(left + right, 2)
    return value, [listed, f"({left}+{right})/2={value}"]
