"""The four operations on fractions, exact: "1/2+2/3=" is answered by "7/6"."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, check_operations, pick, whole_number


class Fractions(Task):
    """Calculate with two fractions.

    Example: prompt "1/2+2/3=", answer "7/6", gold response "3/6+4/6=7/6\\n#### 7/6". "#### 1 1/6" and "#### 14/12"
        pay as well: every spelling of the value does.

    Description: two proper fractions in lowest terms with denominators in 2..high; every third pair shares its
        denominator. A quotient is written "(1/2)/(2/3)=". The gold is in lowest terms; it may be negative, zero or
        whole.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the
        answer stands after the last "####".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: the steps besides the one sum or product: one for a common denominator, one for turning a divisor
        over, one for reducing the result to lowest terms. 0..2.
    Arguments: high (15), operations ("+-*/").
    Versions: v0.
    """

    style = "gsm8k_hash"

    high: int = 15
    operations: str = "+-*/"

    def __post_init__(self) -> None:
        check_between("Fractions", "high", self.high, 2, 10**6)
        check_operations("Fractions", self.operations, "+-*/")

    def problem(self, rng: numpy.random.Generator) -> Problem:
        operation = pick(rng, self.operations)
        a, b = self._proper(rng, whole_number(rng, 2, self.high))
        alike = whole_number(rng, 0, 2) == 0
        c, d = self._proper(rng, b if alike else whole_number(rng, 2, self.high))
        top, bottom, line = _worked_out(operation, (a, b), (c, d))
        value = Fraction(top, bottom)
        lines = [line]
        reduced = bottom != value.denominator
        if reduced:
            lines.append(f"{top}/{bottom}={value}")
        return Problem(
            prompt=f"({a}/{b})/({c}/{d})=" if operation == "/" else f"{a}/{b}{operation}{c}/{d}=",
            answer=str(value),
            response="\n".join([*lines, f"#### {value}"]),
            difficulty=(operation in "+-" and b != d) + (operation == "/") + reduced,
        )

    def _proper(self, rng: numpy.random.Generator, bottom: int) -> tuple[int, int]:
        while True:
            top = whole_number(rng, 1, bottom - 1)
            if math.gcd(top, bottom) == 1:
                return top, bottom


def _worked_out(operation: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int, str]:
    """Numerator and denominator before reducing, and the line that gives them."""
    (a, b), (c, d) = left, right
    if operation in "*/":
        c, d = (c, d) if operation == "*" else (d, c)
        return a * c, b * d, f"{a}/{b}*{c}/{d}={a * c}/{b * d}"
    bottom = math.lcm(b, d)
    a, c = a * (bottom // b), c * (bottom // d)
    top = a + c if operation == "+" else a - c
    return top, bottom, f"{a}/{bottom}{operation}{c}/{bottom}={top}/{bottom}"
