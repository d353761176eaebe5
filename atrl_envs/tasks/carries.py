"""Sums and differences by the number of their carries: "478+264=" is answered by "742" and has two."""

from __future__ import annotations

import functools

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, check_operations, pick, whole_number


class Carries(Task):
    """Add or subtract column by column, with a chosen number of carries or borrows.

    Example: prompt "478+264=", answer "742", gold response "8+4=12\\n7+6+1=14\\n4+2+1=7\\n#### 742".

    Description: two numbers of `digits` digits. First the number of carries is drawn, evenly from none to as many as
        there can be, then the columns that carry, then their digits. A difference is never negative.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the
        answer stands after the last "####". The gold response works from the last column to the first; a column
        that borrows is written with its ten: "14-8-1=5".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: the number of carries or borrows, 0..`digits` for sums, 0..`digits`-1 for differences.
    Arguments: digits (3), operations ("+-").
    Versions: v0.
    """

    style = "gsm8k_hash"

    digits: int = 3
    operations: str = "+-"

    def __post_init__(self) -> None:
        check_between("Carries", "digits", self.digits, 1, 100)
        check_operations("Carries", self.operations, "+-")

    def problem(self, rng: numpy.random.Generator) -> Problem:
        operation = pick(rng, self.operations)
        may = (
            self.digits if operation == "+" else self.digits - 1
        )  # the first column has nothing to borrow from
        wanted = whole_number(rng, 0, may)
        carrying = set(rng.permutation(may)[:wanted].tolist())
        upper, lower, lines, carry = "", "", [], False
        for column in range(self.digits):
            ahead = column in carrying
            first = column == self.digits - 1
            a, b = pick(rng, _columns(operation, carry, ahead, first))
            lines.append(_line(operation, a, b, carry, ahead))
            upper, lower, carry = f"{a}{upper}", f"{b}{lower}", ahead
        value = int(upper) + int(lower) if operation == "+" else int(upper) - int(lower)
        return Problem(
            prompt=f"{upper}{operation}{lower}=",
            answer=str(value),
            response="\n".join([*lines, f"#### {value}"]),
            difficulty=wanted,
        )


@functools.cache
def _columns(operation: str, carry: bool, ahead: bool, first: bool) -> list[tuple[int, int]]:
    """Pairs of digits that carry (or borrow) `ahead` exactly as asked, given what comes in; no leading zeros."""
    digits = range(1 if first else 0, 10)
    if operation == "+":
        return [(a, b) for a in digits for b in digits if (a + b + carry > 9) == ahead]
    return [(a, b) for a in digits for b in digits if (a - b - carry < 0) == ahead]


def _line(operation: str, a: int, b: int, carry: bool, ahead: bool) -> str:
    extra = f"{operation}1" if carry else ""
    if operation == "+":
        return f"{a}+{b}{extra}={a + b + carry}"
    a += 10 * ahead
    return f"{a}-{b}{extra}={a - b - carry}"
