"""Arithmetic modulo a number: "17*23 mod 7=" is answered by "6", "3^-1 mod 7=" by "5"."""

from __future__ import annotations

import math

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, pick, whole_number

_LARGEST_POWER = 6


class Modular(Task):
    """Find the remainder of a sum, difference, product or power, or an inverse.

    Example: prompt "17*23 mod 7=", answer "6", gold response "17*23=391\\n391=55*7+6\\n#### 6". Prompt "3^-1 mod 7=",
        answer "5", gold response "3*5=15\\n15=2*7+1\\n#### 5".

    Description: the operation is drawn evenly from the levels below, its operands from 1..high, powers from 2..6, the
        modulus from 3..modulus. The answer is the one in 0..modulus-1; another number of the same class is wrong.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the
        answer stands after the last "####".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: 0 is a sum or a difference, 1 a product, 2 a power, 3 an inverse.
    Arguments: hardest (3): the highest difficulty, high (99), modulus (30).
    Versions: v0.
    """

    style = "gsm8k_hash"

    hardest: int = 3
    high: int = 99
    modulus: int = 30

    def __post_init__(self) -> None:
        check_between("Modular", "hardest", self.hardest, 0, 3)
        check_between("Modular", "high", self.high, 1, 10**9)
        check_between("Modular", "modulus", self.modulus, 3, 10**9)

    def problem(self, rng: numpy.random.Generator) -> Problem:
        level = whole_number(rng, 0, self.hardest)
        m = whole_number(rng, 3, self.modulus)
        a = whole_number(rng, 1, self.high)
        if level == 3:
            while math.gcd(a, m) > 1:
                a, m = whole_number(rng, 1, self.high), whole_number(rng, 3, self.modulus)
            term, value, lines = f"{a}^-1", pow(a, -1, m), _inverse(a, m)
        elif level == 2:
            power = whole_number(rng, 2, _LARGEST_POWER)
            term, value, lines = f"{a}^{power}", pow(a, power, m), _power(a, power, m)
        else:
            b = whole_number(rng, 1, self.high)
            operation = "*" if level else pick(rng, "+-")
            whole = {"+": a + b, "-": a - b, "*": a * b}[operation]
            term, value = f"{a}{operation}{b}", whole % m
            lines = [f"{term}={whole}", _division(whole, m)]
            term = term if level else f"({term})"
        response = "\n".join([*lines, f"#### {value}"])
        return Problem(prompt=f"{term} mod {m}=", answer=str(value), response=response, difficulty=level)


def _division(number: int, m: int) -> str:
    return f"{number}={number // m}*{m}+{number % m}"


def _power(a: int, power: int, m: int) -> list[str]:
    """Every multiplication with its remainder, on remainders only."""
    base = a % m
    lines, value = [_division(a, m)] if a >= m else [], base
    for _ in range(power - 1):
        lines.append(f"{value}*{base} mod {m}={value * base % m}")
        value = value * base % m
    return lines


def _inverse(a: int, m: int) -> list[str]:
    product = a * pow(a, -1, m)
    return [f"{a}*{pow(a, -1, m)}={product}", _division(product, m)]
