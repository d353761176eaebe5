"""Tasks: annotated parameters, immutable instances, and mistakes reported by name."""

from __future__ import annotations

import dataclasses
import pickle
from functools import cached_property

import numpy
import pytest

import atrl_envs
from atrl_envs import Problem, Task
from atrl_envs.task import styled_answer


class Doubling(Task):
    """Twice a number below `limit`."""

    limit: int = 100
    sign: str = "+"

    def problem(self, rng: numpy.random.Generator) -> Problem:
        n = int(rng.integers(self.limit))
        return Problem(prompt=f"2*{n}=", answer=str(2 * n))

    @cached_property
    def prepared(self) -> list[int]:
        return [self.limit]


class Tripling(Doubling):
    style = "boxed"
    factor: float = 3.0


def test_annotations_become_keyword_parameters() -> None:
    assert Doubling().limit == 100
    assert Doubling(limit=7).limit == 7
    assert Doubling.parameters() == {"limit": 100, "sign": "+"}
    assert Tripling.parameters() == {"limit": 100, "sign": "+", "factor": 3.0}
    assert Tripling(factor=2).style == "boxed"
    assert Doubling(limit=7) == Doubling(limit=7)
    assert pickle.loads(pickle.dumps(Tripling(limit=8))) == Tripling(limit=8)
    assert Doubling(limit=5).prepared == [5]


def test_instances_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Doubling().limit = 3  # type: ignore[misc]


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(
        TypeError, match=r"no parameter 'limt'; did you mean 'limit'\? Its parameters: limit=100"
    ):
        Doubling(limt=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="limit must be int, got '3'"):
        Doubling(limit="3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="limit must be int, got True"):
        Doubling(limit=True)


def test_a_task_must_state_problems() -> None:
    class Nothing(Task):
        limit: int = 3

    with pytest.raises(TypeError, match="must define problem"):
        atrl_envs.register("test/Nothing-v0", Nothing)
    with pytest.raises(NotImplementedError, match="Nothing must define"):
        Nothing().problem(numpy.random.default_rng(0))
    with pytest.raises(TypeError, match="subclass of atrl_envs.Task"):
        atrl_envs.register("test/Nothing-v0", int)  # type: ignore[arg-type]


def test_a_parameter_may_not_shadow_an_option() -> None:
    class Shadow(Task):
        seed: int = 0

        def problem(self, rng: numpy.random.Generator) -> Problem:
            return Problem("1=", "1")

    with pytest.raises(TypeError, match="seed is an option of make"):
        atrl_envs.register("test/Shadow-v0", Shadow)


def test_gold_responses_follow_the_style() -> None:
    assert Problem("p", "7").gold_response("plain") == "7"
    assert Problem("p", "7").gold_response("boxed") == "\\boxed{7}"
    assert Problem("p", "7").gold_response("gsm8k_hash") == "#### 7"
    assert Problem("p", "7", response="so 7").gold_response("boxed") == "so 7"
    assert styled_answer("7", "answer_tag") == "<answer>7</answer>"
