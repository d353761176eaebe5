"""Linear equations in x: "3x+4=19, x=" is answered by "5"."""

from __future__ import annotations

from fractions import Fraction

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, whole_number


class LinearEquation(Task):
    """Solve a linear equation in one unknown.

    Example: prompt "3x+4=x+9, x=", answer "5/2", gold response "2x=5\\nx=5/2\\n#### 5/2". "#### 2.5" and "#### x=5/2"
        pay as well.

    Description: the form is drawn evenly from the levels below, coefficients and constants from -high..high. Every
        second solution is whole and lies in -high..high; then the constant on the right is what makes it so.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the
        answer stands after the last "####".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: 0 is ax=d, 1 is ax+b=d, 2 is ax+b=cx+d, 3 is a(x+b)=cx+d.
    Arguments: hardest (3): the highest difficulty, high (12), fractions (True): whether x may be a fraction; if not,
        every solution is whole.
    Versions: v0.
    """

    style = "gsm8k_hash"

    hardest: int = 3
    high: int = 12
    fractions: bool = True

    def __post_init__(self) -> None:
        check_between("LinearEquation", "hardest", self.hardest, 0, 3)
        check_between("LinearEquation", "high", self.high, 2, 10**6)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        level = whole_number(rng, 0, self.hardest)
        a = self._not(rng, 0, 1) if level == 0 else self._not(rng, 0)
        b = self._not(rng, 0) if level > 0 else 0
        c = self._not(rng, 0, a) if level > 1 else 0
        constant = a * b if level == 3 else b  # of the left side, multiplied out
        if self.fractions and whole_number(rng, 0, 1):
            d = whole_number(rng, -self.high, self.high)
        else:
            d = (a - c) * whole_number(rng, -self.high, self.high) + constant
        left = f"{_times(a)}(x{b:+d})" if level == 3 else _sum(a, b)
        x = Fraction(d - constant, a - c)
        lines = [f"{_sum(a, constant)}={_sum(c, d)}"] if level == 3 else []
        if level > 0:
            lines.append(f"{_sum(a - c, 0)}={d - constant}")
        if a - c != 1:
            lines.append(f"x={x}")
        return Problem(
            prompt=f"{left}={_sum(c, d)}, x=",
            answer=str(x),
            response="\n".join([*lines, f"#### {x}"]),
            difficulty=level,
        )

    def _not(self, rng: numpy.random.Generator, *refused: int) -> int:
        """A number in -high..high other than these."""
        while True:
            number = whole_number(rng, -self.high, self.high)
            if number not in refused:
                return number


def _times(coefficient: int) -> str:
    return {1: "", -1: "-"}.get(coefficient, str(coefficient))


def _sum(coefficient: int, constant: int) -> str:
    """ "3x+4", "-x", "4": a side of an equation."""
    if not coefficient:
        return str(constant)
    return f"{_times(coefficient)}x" + (f"{constant:+d}" if constant else "")
