"""What every registered environment must keep, parametrised over the registry."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from torchrl.envs.utils import check_env_specs

import atrl_envs
from atrl_envs import EnvMaker, Verdict, keys
from atrl_envs.checks import corrupt
from tests.envs.toy import play

IDS = [id for id in atrl_envs.list_envs() if id.startswith("atrl/")]
SMALL = {"bank_size": 60}
LISTED = ("atrl/File-v0", "atrl/GSM8K-v0", "atrl/MATH-v0")  # these give all their problems
LARGE: dict[str, dict[str, int]] = {
    id: {} if id in LISTED or "Addition" in id else {"bank_size": 2_000} for id in IDS
}


@pytest.fixture(params=IDS)
def id(request: pytest.FixtureRequest) -> str:
    return request.param


def test_gymnasium_s_checker_finds_nothing(id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(id, **SMALL)
        check_env(env.unwrapped)
        check_env(gymnasium.make(id, block_size=3, **SMALL).unwrapped)
        env.close()


@pytest.mark.parametrize("block_size", [1, 5])
def test_specs_describe_the_data(id: str, block_size: int) -> None:
    check_env_specs(atrl_envs.make(id, num_envs=4, group_size=2, block_size=block_size, **SMALL))


def test_envs_and_makers_pickle(id: str) -> None:
    maker = EnvMaker(id, num_envs=4, group_size=2, **SMALL)
    env, again = maker(), pickle.loads(pickle.dumps(maker))()
    assert (env.reset() == again.reset()).all()
    assert (pickle.loads(pickle.dumps(env)).reset() == env.reset()).all()
    single = gymnasium.make(id, **SMALL)
    copy = pickle.loads(pickle.dumps(single))
    for observed, expected in zip(
        copy.reset(seed=4)[0].values(), single.reset(seed=4)[0].values(), strict=True
    ):
        assert (observed == expected).all()


def test_the_same_seed_gives_the_same_problems_and_another_seed_others(id: str) -> None:
    def shown(seed: int) -> list[str]:
        env = atrl_envs.make(id, num_envs=40, seed=seed, bank_size=300)
        return [env.bank.prompt_texts[i] for i in env.reset()[keys.PROBLEM].squeeze(1).tolist()]

    first = shown(7)
    torch.manual_seed(99)
    assert shown(7) == first
    assert sum(a == b for a, b in zip(first, shown(8), strict=True)) < 8


def test_splits_share_no_problem(id: str) -> None:
    train, test = (
        set(atrl_envs.make(id, split=split, seed=seed, **LARGE[id]).bank.prompt_texts)
        for split, seed in _SPLITS
    )
    assert train
    assert test
    assert not train & test


_SPLITS = (("train", 0), ("test", 1))  # not even with different seeds


def test_gold_pays_and_a_corrupted_gold_does_not(id: str) -> None:
    env = atrl_envs.make(id, num_envs=30, split="test", **({} if "File" in id else {"bank_size": 30}))
    golds = play(
        env, 30, write=lambda env, g, m, problem: [*env.vocab.encode(_gold(env, problem)), env.vocab.eos_id]
    )
    assert {(e.verdict, e.reward, e.terminated) for e in golds.values()} == {(Verdict.CORRECT, 1.0, True)}

    def wrong(env: Any, group: int, member: int, problem: int) -> list[int]:
        answer = env.bank.answer_texts[problem]
        before, _, after = _gold(env, problem).rpartition(answer)
        return [*env.vocab.encode(before + corrupt(answer) + after), env.vocab.eos_id]

    env.set_seed(0)
    assert {e.reward for e in play(env, 30, write=wrong).values()} == {0.0}


def _gold(env: Any, problem: int) -> str:
    return env.bank.response_texts[problem]


def test_gold_responses_fit(id: str) -> None:
    for split in ("train", "test"):
        env = atrl_envs.make(id, split=split, **LARGE[id])
        assert env.bank.longest_response() <= env.max_new_tokens


def test_tasks_are_documented(id: str) -> None:
    doc = atrl_envs.get_spec(id).task_class().__doc__ or ""
    for heading in (
        "Example:",
        "Description:",
        "Action:",
        "Observation:",
        "Reward:",
        "Start:",
        "End:",
        "Arguments:",
        "Versions:",
    ):
        assert heading in doc
    for name in atrl_envs.get_spec(id).parameters():
        assert name in doc


def test_a_native_vector_env(id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make_vec(id, num_envs=3, **SMALL)
    observation, _ = env.reset(seed=1)
    assert observation in env.observation_space
    env.action_space.seed(0)
    for _ in range(10):
        observation, reward, *_ = env.step(env.action_space.sample())
        assert observation in env.observation_space
        assert reward.shape == (3,)
    env.close()


def test_the_sample_file_is_part_of_the_package() -> None:
    assert Path(atrl_envs.get_spec("atrl/File-v0").parameters()["path"]).is_file()
