"""Sums with brackets inside brackets: "12-(3+(7-2))=" is answered by "4"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, check_operations, pick, whole_number
from atrl_envs.tasks.operands import draw


class Brackets(Task):
    """Work out a chain of terms, one of which may be a bracket with such a chain inside.

    Example: prompt "12-(3+(7-2))=", answer "4", gold response "12-(3+5)\\n12-8\\n#### 4": the innermost bracket first.

    Description: the depth is drawn evenly from 0..`depth`. Each chain has 2..`terms` terms, numbers in 0..high, and
        one of them, anywhere, is the next bracket. The value of a bracket takes its place with its sign: "12--8".
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Verification is exact; the style is `gsm8k_hash`: the
        answer stands after the last "####".
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: the depth, that is, the number of brackets.
    Arguments: depth (2), terms (3), high (20), operations ("+-"): any of + - *, where * goes before + and -.
    Versions: v0.
    """

    style = "gsm8k_hash"

    depth: int = 2
    terms: int = 3
    high: int = 20
    operations: str = "+-"

    def __post_init__(self) -> None:
        check_between("Brackets", "depth", self.depth, 0, 20)
        check_between("Brackets", "terms", self.terms, 2, 20)
        check_between("Brackets", "high", self.high, 1, 10**9)
        check_operations("Brackets", self.operations, "+-*")

    def problem(self, rng: numpy.random.Generator) -> Problem:
        depth = whole_number(rng, 0, self.depth)
        chains = [self._chain(rng, level < depth) for level in range(depth + 1)]  # from the outside in
        inner = ""
        for chain in reversed(chains):
            inner = chain.text(f"({inner})")
        lines, value = [], 0
        for level in range(depth, 0, -1):
            value = chains[level].value(value)
            text = str(value)
            for chain in reversed(chains[1:level]):
                text = f"({chain.text(text)})"
            lines.append(chains[0].text(text))
        value = chains[0].value(value)
        response = "\n".join([*lines, f"#### {value}"])
        return Problem(prompt=f"{inner}=", answer=str(value), response=response, difficulty=depth)

    def _chain(self, rng: numpy.random.Generator, open_: bool) -> _Chain:
        count = whole_number(rng, 2, self.terms)
        hole = whole_number(rng, 0, count - 1) if open_ else -1
        operations = tuple(pick(rng, self.operations) for _ in range(count - 1))
        return _Chain(draw(rng, 0, self.high, count), operations, hole)


@dataclass(frozen=True)
class _Chain:
    """Terms with operations between them; the term at `hole` is given when the chain is used."""

    numbers: tuple[int, ...]
    operations: tuple[str, ...]
    hole: int

    def text(self, filling: str) -> str:
        terms = [filling if i == self.hole else str(number) for i, number in enumerate(self.numbers)]
        return terms[0] + "".join(o + term for o, term in zip(self.operations, terms[1:], strict=True))

    def value(self, filling: int) -> int:
        terms = [filling if i == self.hole else number for i, number in enumerate(self.numbers)]
        total, product = 0, terms[0]
        for operation, term in zip(self.operations, terms[1:], strict=True):
            if operation == "*":
                product *= term
            else:
                total, product = total + product, term if operation == "+" else -term
        return total + product
