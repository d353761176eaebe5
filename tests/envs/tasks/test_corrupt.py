"""A task may say what a wrong answer looks like: `check_task` then gives that one."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import atrl_envs
from atrl_envs import ExactVerifier, Problem, Task, check_task


class Colour(Task):
    """The colour of the sky, upside down."""

    style = "gsm8k_hash"

    def problem(self, rng: numpy.random.Generator) -> Problem:
        number = int(rng.integers(500))
        return Problem(f"sky {number}: ", "blue", response=f"{number} looks\n#### blue")

    def verifier(self, vocab: Any, style: str) -> Any:
        return ExactVerifier(vocab, style=style, ignore_case=True)


class Careless(Colour):
    def corrupt(self, answer: str) -> str:
        return answer.upper()


class Aside(Careless):
    """The gold response does not hold the answer as it is written, so that the wrong one stands alone."""

    def problem(self, rng: numpy.random.Generator) -> Problem:
        return Problem(f"sky {int(rng.integers(500))}: ", "blue", response="#### Blue")


for _task in (Colour, Careless, Aside):
    atrl_envs.register(f"corrupt/{_task.__name__}-v0", _task, max_new_tokens=24)


def test_by_default_a_letter_or_a_digit_changes() -> None:
    assert Colour().corrupt("blue") == "bluex"
    assert Colour().corrupt("46") == "56"
    check_task("corrupt/Colour-v0", sample=8, bank_size=40).raise_if_failed()


@pytest.mark.parametrize(
    ("name", "paid"), [("Careless", r"'\d+ looks\\n#### BLUE'"), ("Aside", "'#### BLUE'")]
)
def test_the_task_s_own_wrong_answer_is_given(name: str, paid: str) -> None:
    report = check_task(f"corrupt/{name}-v0", sample=8, bank_size=40)
    assert [result.name for result in report.failures] == ["corrupted"]
    with pytest.raises(AssertionError, match=f"the wrong response {paid} is paid, the answer is 'blue'"):
        report.raise_if_failed()
