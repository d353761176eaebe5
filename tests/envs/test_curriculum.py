"""The curriculum: half-known difficulties come most often, by exact probabilities, and groups stay whole."""

from __future__ import annotations

import math

import numpy
import pytest
import torch

import atrl_envs
from atrl_envs import keys
from atrl_envs.curriculum import Curriculum
from atrl_envs.groups import GroupStream, Levels


class Graded(atrl_envs.Task):
    """A number to repeat; its difficulty is its last digit modulo 3."""

    def problem(self, rng: numpy.random.Generator) -> atrl_envs.Problem:
        n = int(rng.integers(1000))
        return atrl_envs.Problem(f"{n}:", str(n), difficulty=n % 10 % 3)


atrl_envs.register("test/Graded-v0", Graded)


def test_success_and_weights_by_hand() -> None:
    curriculum = Curriculum(floor=0.1, memory=1e9)
    curriculum.begin(3, torch.device("cpu"))
    assert curriculum.success.tolist() == [0.5, 0.5, 0.5]
    difficulty = torch.tensor([0, 0, 1, 1, 1, 2])
    correct = torch.tensor([True, True, False, True, False, True])
    counts = torch.tensor([True, True, True, True, True, False])
    curriculum.update(difficulty, correct, counts)
    assert curriculum.success.tolist() == pytest.approx([3 / 4, 2 / 5, 1 / 2])
    expected = [0.1 + 4 * p * (1 - p) for p in (3 / 4, 2 / 5, 1 / 2)]
    assert curriculum.weights().tolist() == pytest.approx(expected)


def test_old_episodes_are_forgotten() -> None:
    curriculum = Curriculum(memory=20)
    curriculum.begin(1, torch.device("cpu"))
    one = torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.bool)
    for right in [False] * 200 + [True] * 200:
        curriculum.update(one[0], torch.tensor([right]), one[1])
    assert float(curriculum.success) > 0.9


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="floor > 0"):
        Curriculum(floor=0)


def test_draws_have_the_probabilities_of_the_weights() -> None:
    difficulty = torch.tensor([0] * 10 + [2] * 30)  # nothing at level 1
    weights = torch.tensor([1.0, 5.0, 3.0])
    levels = Levels(difficulty, lambda: weights)
    count = 40_000
    generator = torch.Generator().manual_seed(0)
    problem = levels.draw(torch.rand(count, generator=generator), torch.rand(count, generator=generator))
    for level, share, problems in ((0, 0.25, 10), (2, 0.75, 30)):
        hits = int((difficulty[problem] == level).sum())
        assert abs(hits - share * count) < 5 * math.sqrt(count * share * (1 - share))
        for index in (difficulty == level).nonzero().flatten().tolist():
            p = share / problems
            assert abs(int((problem == index).sum()) - p * count) < 6 * math.sqrt(count * p)


def test_a_group_keeps_its_problem_when_weights_change() -> None:
    weights = [torch.tensor([1.0, 0.0])]
    stream = GroupStream(
        size=20, group_size=4, seed=0, split="train", device=torch.device("cpu"),
        levels=Levels(torch.tensor([0] * 10 + [1] * 10), lambda: weights[0]),
    )  # fmt: skip
    seen: dict[int, set[int]] = {}
    for step in range(40):
        mask = torch.tensor([step % 2 == 0, True, step % 3 == 0])
        slots = stream.assign(mask)
        for problem, group in zip(slots.problem[mask].tolist(), slots.group[mask].tolist(), strict=True):
            seen.setdefault(group, set()).add(problem)
        weights[0] = weights[0].flip(0)
    assert len(seen) > 10
    assert all(len(problems) == 1 for problems in seen.values())
    assert {next(iter(p)) >= 10 for p in seen.values()} == {True, False}


def test_an_env_asks_what_is_half_known() -> None:
    """Answers are right for difficulty 0, wrong for 1, and right every other time for 2."""
    env = atrl_envs.make(
        "test/Graded-v0", num_envs=16, block_size=4, seed=1, curriculum=Curriculum(memory=100)
    )
    bank, vocab = env.bank, env.vocab
    asked = torch.zeros(3)
    state = env.reset()
    for step in range(60):
        block = torch.full((16, 4), vocab.pad_id)
        for row, problem in enumerate(state[keys.PROBLEM].flatten().tolist()):
            level = int(bank.difficulty[problem])
            right = level == 0 or (level == 2 and (step + row) % 2 == 0)
            ids = [*vocab.encode(bank.answer_texts[problem] if right else "x"), vocab.eos_id]
            block[row, : len(ids)] = torch.tensor(ids)
            if step >= 30:
                asked[level] += 1
        _, state = env.step_and_maybe_reset(state.set(keys.ACTION, block))
    success = env.curriculum.success
    assert float(success[0]) > 0.8
    assert float(success[1]) < 0.2
    assert 0.3 < float(success[2]) < 0.7
    assert asked[2] > 1.5 * asked[0]
    assert asked[2] > 1.5 * asked[1]
    other = atrl_envs.make("test/Graded-v0", curriculum=Curriculum(memory=100))
    other.load_state_dict(env.state_dict())
    torch.testing.assert_close(other.curriculum.success, success)
