"""check_task: sound tasks pass, and each kind of mistake fails under its own name."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest

import atrl_envs
from atrl_envs import Problem, Task, check_task
from atrl_envs.checks import TaskCheckError, corrupt


class Base(Task):
    """A number, to be repeated."""

    limit: int = 300

    def problem(self, rng: numpy.random.Generator) -> Problem:
        return self.state(int(rng.integers(self.limit)))

    def state(self, n: int) -> Problem:
        return Problem(f"{n}=", str(n))


class Empty(Base):
    def state(self, n: int) -> Problem:
        return Problem(f"{n}=", "", response="5")


class WrongResponse(Base):
    def state(self, n: int) -> Problem:
        return Problem(f"{n}=", str(n), response=str(n + 1))


class Impure(Base):
    def problem(self, rng: numpy.random.Generator) -> Problem:
        return self.state(random.randrange(10**6))


class Unspeakable(Base):
    def state(self, n: int) -> Problem:
        return Problem(f"{n}=", f"{n}½")


class Generous(Base):
    def verifier(self, vocab: Any, style: str) -> Any:
        inner = super().verifier(vocab, style)
        return _Generous(inner)


class _Generous:
    def __init__(self, inner: Any) -> None:
        self.encode_answers = inner.encode_answers

    def __call__(self, tokens: Any, start: Any, answers: Any, end: Any = None) -> Any:
        return start.new_zeros(start.shape)


class Crowded(Base):
    """All of one problem: a split must be empty."""

    def state(self, n: int) -> Problem:
        return Problem("1=", "1")


for _task in (Base, Empty, WrongResponse, Impure, Unspeakable, Generous, Crowded):
    atrl_envs.register(f"check/{_task.__name__}-v0", _task, max_new_tokens=8)


def test_a_sound_task_passes_every_check() -> None:
    report = check_task("check/Base-v0", sample=16)
    assert report.raise_if_failed() is report
    names = [result.name for result in report.results]
    assert names == ["bank", "splits", "determinism", "gold", "corrupted", "specs", "gymnasium", "throughput"]
    assert "check/Base-v0: sound" in str(report)


@pytest.mark.parametrize(
    ("name", "failed", "message"),
    [
        ("WrongResponse", "gold", "the gold response '.*' is judged WRONG"),
        ("Impure", "determinism", "must take all randomness from its rng"),
        ("Unspeakable", "bank", "the answer cannot be tokenised.*'½'"),
        ("Generous", "corrupted", "the wrong response '.*' is paid"),
        ("Crowded", "bank", "has no problem in the split"),
    ],
)
def test_each_mistake_has_its_name(name: str, failed: str, message: str) -> None:
    report = check_task(f"check/{name}-v0", sample=16, bank_size=50)
    assert not report.passed
    assert failed in [result.name for result in report.failures]
    with pytest.raises(TaskCheckError, match=message):
        report.raise_if_failed()


def test_an_empty_answer_fails_as_a_gold_and_nowhere_else() -> None:
    report = check_task("check/Empty-v0", sample=16, bank_size=50)
    (failure,) = report.failures
    assert failure.name == "gold" and "INVALID_GOLD" in failure.detail


def test_a_gold_response_that_does_not_fit_is_named() -> None:
    report = check_task("check/Base-v0", sample=200, max_new_tokens=2, bank_size=200)
    (failure,) = [r for r in report.failures if r.name == "gold"]
    assert "needs" in failure.detail
    assert "max_new_tokens is 2" in failure.detail


def test_wrong_ids_and_options_raise_at_once() -> None:
    with pytest.raises(atrl_envs.UnknownEnvError):
        check_task("check/Bsae-v0")
    with pytest.raises(TypeError, match="no parameter"):
        check_task("check/Base-v0", limt=3)


def test_corrupted_answers_have_another_value() -> None:
    for answer, wrong in [
        ("46", "56"),
        ("-9", "-1"),
        ("0.50", "1.50"),
        ("0/3", "1/3"),
        ("007", "107"),
        ("yes", "yesx"),
    ]:
        assert corrupt(answer) == wrong
