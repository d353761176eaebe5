"""Sums, differences and products of decimals: "3.7+0.45=" is answered by "4.15"."""

from __future__ import annotations

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, check_operations, pick, whole_number


class Decimals(Task):
    """Add, subtract and multiply decimals.

    Example: prompt "3.7+0.45=", answer "4.15"; the responses "4.15" and "4.150" and their ends pay 1.0, "4.1" pays 0.

    Description: two numbers with 0..`places` figures behind the point, not both whole; the last figure is never a
        zero. Before the point stands 0..high. Differences may be negative.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact, without any tolerance; the style is
        `plain`: the whole response is the answer.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: the figures behind both points together, less one: 0..2*`places`-1.
    Arguments: places (2), high (20), operations ("+-*").
    Versions: v0.
    """

    places: int = 2
    high: int = 20
    operations: str = "+-*"

    def __post_init__(self) -> None:
        check_between("Decimals", "places", self.places, 1, 9)
        check_between("Decimals", "high", self.high, 0, 10**9)
        check_operations("Decimals", self.operations, "+-*")

    def problem(self, rng: numpy.random.Generator) -> Problem:
        operation = pick(rng, self.operations)
        choices = self.places + 1
        places = divmod(whole_number(rng, 1, choices * choices - 1), choices)
        left, right = (self._figures(rng, count) for count in places)
        if operation == "*":
            value, behind = left * right, sum(places)
        else:
            behind = max(places)
            left_scaled, right_scaled = left * 10 ** (behind - places[0]), right * 10 ** (behind - places[1])
            value = left_scaled + right_scaled if operation == "+" else left_scaled - right_scaled
        return Problem(
            prompt=f"{spelled(left, places[0])}{operation}{spelled(right, places[1])}=",
            answer=spelled(value, behind, trim=True),
            difficulty=sum(places) - 1,
        )

    def _figures(self, rng: numpy.random.Generator, places: int) -> int:
        """A number times ten to the power of its places."""
        whole = whole_number(rng, 0, self.high)
        if not places:
            return whole
        return (
            whole * 10**places + whole_number(rng, 0, 10 ** (places - 1) - 1) * 10 + whole_number(rng, 1, 9)
        )


def spelled(figures: int, places: int, trim: bool = False) -> str:
    """`figures` with the point before its last `places` figures; trim: without zeros at the end."""
    digits = str(abs(figures)).rjust(places + 1, "0")
    whole, behind = digits[: len(digits) - places], digits[len(digits) - places :]
    if trim:
        behind = behind.rstrip("0")
    sign = "-" if figures < 0 else ""
    return f"{sign}{whole}.{behind}" if behind else f"{sign}{whole}"
