"""Greatest common divisors and least common multiples: "gcd(18,48)=" is answered by "6"."""

from __future__ import annotations

import math

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, whole_number


class GcdLcm(Task):
    """Find the greatest common divisor or the least common multiple of two numbers.

    Example: prompt "gcd(18,48)=", answer "6", gold response "48=2*18+12\\n18=1*12+6\\n12=2*6+0\\n#### 6". A multiple
        ends with one line more: prompt "lcm(18,48)=", "18*48/6=144\\n#### 144".

    Description: two multiples, in 1..high, of one number in 1..sqrt(high), so that common divisors are common.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the
        answer stands after the last "####".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: the divisions that Euclid's algorithm needs, the greater number first, less one.
    Arguments: high (200), lcm (True): whether every second problem, about, asks for the multiple.
    Versions: v0.
    """

    style = "gsm8k_hash"

    high: int = 200
    lcm: bool = True

    def __post_init__(self) -> None:
        check_between("GcdLcm", "high", self.high, 1, 10**9)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        unit = whole_number(rng, 1, math.isqrt(self.high))
        a, b = (unit * whole_number(rng, 1, self.high // unit) for _ in range(2))
        multiple = self.lcm and whole_number(rng, 0, 1) == 1
        large, small = max(a, b), min(a, b)
        lines = []
        while small:
            lines.append(f"{large}={large // small}*{small}+{large % small}")
            large, small = small, large % small
        divisions, value = len(lines), large
        if multiple:
            value = a * b // large
            lines.append(f"{a}*{b}/{large}={value}")
        return Problem(
            prompt=f"{'lcm' if multiple else 'gcd'}({a},{b})=",
            answer=str(value),
            response="\n".join([*lines, f"#### {value}"]),
            difficulty=divisions - 1,
        )
