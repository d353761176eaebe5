"""Make a number out of others: "44 from 3,4,5,6: " is answered by "(5+6)*4", among others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from atrl_envs.task import Problem, Task
from atrl_envs.tasks.choices import check_between, check_operations, pick, whole_number
from atrl_envs.tasks.operands import draw

if TYPE_CHECKING:
    from atrl_envs.vocab import Vocab

_TRIES = 2_000  # expressions drawn before a range is called hopeless


class Countdown(Task):
    """Make a target from given numbers, each used at most once, with + - * / and brackets.

    Example: prompt "44 from 3,4,5,6: ", gold response "(5+6)*4"; "4*(5+6)" pays as well. "4*6+4*5" uses a number twice
        and "4*5+24" one that is not given: they pay 0. The answer, for people and for the verifier, names the
        numbers and the target: "3,4,5,6=44".

    Description: `numbers` numbers in 1..high, of which a random expression uses two or more; every value on its way is
        whole and positive, the target is at most `largest` and is none of the numbers.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. Any expression with the right value pays; fractions on the way
        are exact. Numbers are written as they were given: no signs, no leading zeros, none joined to a longer one. One
        `=` with the target behind it is allowed, other text is not. The style is `plain`: the whole response is the
        expression.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated).
    Difficulty: how many numbers the gold expression uses, less two; there may be a shorter solution.
    Arguments: numbers (4), high (20), largest (200): the largest target, operations ("+-*/"): of the gold.
    Versions: v0.
    """

    numbers: int = 4
    high: int = 20
    largest: int = 200
    operations: str = "+-*/"

    def __post_init__(self) -> None:
        check_between("Countdown", "numbers", self.numbers, 2, 6)
        check_between("Countdown", "high", self.high, 2, 500)  # then no expression leaves 64 bits
        check_between("Countdown", "largest", self.largest, 1, 10**9 - 1)
        check_operations("Countdown", self.operations, "+-*/")

    def problem(self, rng: numpy.random.Generator) -> Problem:
        used = whole_number(rng, 2, self.numbers)
        for _ in range(_TRIES):
            numbers = draw(rng, 1, self.high, self.numbers)
            gold = self._expression(rng, [_Term(number) for number in numbers[:used]])
            if gold is not None and gold.value <= self.largest and gold.value not in numbers:
                break
        else:
            raise ValueError(
                f"Countdown found no target in {_TRIES} expressions with numbers={self.numbers}, high={self.high}, "
                f"largest={self.largest}, operations={self.operations!r}; widen one of them"
            )
        given = ",".join(map(str, rng.permutation(numbers).tolist()))
        return Problem(
            prompt=f"{gold.value} from {given}: ",
            answer=f"{given}={gold.value}",
            response=gold.text,
            difficulty=used - 2,
        )

    def verifier(self, vocab: Vocab, style: str) -> Any:
        """There are many right answers: each expression is worked out."""
        from atrl_envs.verify.countdown import CountdownVerifier

        return CountdownVerifier(vocab, style=style)

    def corrupt(self, answer: str) -> str:
        """A well-formed expression of another value."""
        given, _, target = answer.partition("=")
        numbers = given.split(",")
        return "+".join(numbers) if sum(map(int, numbers)) != int(target) else numbers[0]

    def _expression(self, rng: numpy.random.Generator, terms: list[_Term]) -> _Term | None:
        """All the terms in one; None where an operation that was drawn has no whole and positive value."""
        while len(terms) > 1:
            left, right = (terms.pop(int(rng.integers(len(terms)))) for _ in range(2))
            joined = left.joined(pick(rng, self.operations), right)
            if joined is None:
                return None
            terms.append(joined)
        return terms[0]


@dataclass(frozen=True)
class _Term:
    """A number or an expression; rank 2 is a number, 1 a product or quotient, 0 a sum or difference."""

    value: int
    rank: int = 2
    written: str = ""

    @property
    def text(self) -> str:
        return self.written or str(self.value)

    def joined(self, operation: str, right: _Term) -> _Term | None:
        """Both with an operation between them and as few brackets as possible."""
        a, b = self.value, right.value
        if (operation == "-" and a <= b) or (operation == "/" and a % b):
            return None
        value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[operation]
        rank = 1 if operation in "*/" else 0
        left = f"({self.text})" if self.rank < rank else self.text
        bracket = right.rank < rank or (right.rank == rank and operation in "-/")
        return _Term(value, rank, f"{left}{operation}{f'({right.text})' if bracket else right.text}")
