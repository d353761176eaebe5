"""The Gymnasium faces: spaces, rendering, and autoreset with known episode ends."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy
import pytest
from gymnasium.vector import AutoresetMode

OPTIONS: dict[str, Any] = {"low": 0, "high": 20, "shuffle": False, "max_new_tokens": 3}


def gold(env: Any, problem: int) -> list[int]:
    inner = env.unwrapped.env
    return [*inner.vocab.encode(inner.bank.answer_texts[problem]), inner.vocab.eos_id]


def test_one_episode_by_hand() -> None:
    env = gymnasium.make("atrl/Addition-v0", render_mode="ansi", **OPTIONS)
    observation, info = env.reset(seed=3)
    inner = env.unwrapped.env  # type: ignore[attr-defined]
    prompt = inner.bank.prompt_texts[info["problem"]]
    assert env.render() == prompt
    assert observation["length"] == observation["prompt_length"] == len(prompt)
    *digits, end = gold(env, info["problem"])
    for token in digits:
        observation, reward, terminated, truncated, info = env.step(token)
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert "verdict" not in info
    observation, reward, terminated, truncated, info = env.step(end)
    assert (reward, terminated, truncated) == (1.0, True, False)
    answer = inner.bank.answer_texts[info["problem"]]
    assert (info["verdict"], info["response"], info["answer"]) == ("CORRECT", answer, answer)
    assert env.render() == f"{prompt}{answer} [CORRECT]"
    assert observation["length"] == len(prompt) + len(digits) + 1


def test_seeding_restarts_and_no_seed_goes_on() -> None:
    env = gymnasium.make("atrl/Addition-v0", low=0, high=20)
    first = [env.reset(seed=5)[1]["problem"], *(env.reset()[1]["problem"] for _ in range(5))]
    again = [env.reset(seed=5)[1]["problem"], *(env.reset()[1]["problem"] for _ in range(5))]
    assert first == again
    assert len(set(first)) == 6
    assert [env.reset(seed=6)[1]["problem"], *(env.reset()[1]["problem"] for _ in range(5))] != first


def test_blocks_as_actions() -> None:
    env = gymnasium.make("atrl/Addition-v0", block_size=3, **OPTIONS)
    _, info = env.reset()
    action = [*gold(env, info["problem"]), 0, 0][:3]
    assert env.action_space.contains(numpy.array(action))
    _, reward, terminated, _, _ = env.step(numpy.array(action))
    assert (reward, terminated) == (1.0, True)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="use make_vec"):
        gymnasium.make("atrl/Addition-v0", num_envs=4)
    with pytest.raises(TypeError, match="no parameter 'hgih'"):
        gymnasium.make("atrl/Addition-v0", hgih=4)
    env = gymnasium.make("atrl/Addition-v0", **OPTIONS).unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


def test_make_vec_is_native_and_declares_its_autoreset() -> None:
    env = gymnasium.make_vec("atrl/Addition-v0", num_envs=6, group_size=3, render_mode="ansi", **OPTIONS)
    assert type(env.unwrapped).__name__ == "TokenVectorEnv"
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    _, info = env.reset()
    assert info["group"].tolist() == [0, 0, 0, 1, 1, 1]
    assert len(env.render()) == 6  # type: ignore[arg-type]


def test_autoreset_with_known_episode_ends() -> None:
    """Slot 0 ends at once, slot 1 answers correctly, slot 2 never ends and meets the limit of 3 tokens."""
    env = gymnasium.make_vec("atrl/Addition-v0", num_envs=3, **OPTIONS)
    inner = env.unwrapped.env  # type: ignore[attr-defined]
    observation, info = env.reset()
    assert info["problem"].tolist() == [0, 1, 2]
    digit, end = gold(env, 1)  # the first sums have one digit
    seven = inner.vocab.encode("7")[0]

    _, reward, terminated, truncated, info = env.step(numpy.array([end, digit, seven]))
    assert terminated.tolist() == [True, False, False]
    assert not truncated.any()
    assert reward.tolist() == [0.0, 0.0, 0.0]
    assert (info["verdict"] >= 0).tolist() == [True, False, False]

    # The step after an end ignores that slot's action, pays 0 and shows the next problem.
    observation, reward, terminated, truncated, info = env.step(numpy.array([end, end, seven]))
    assert info["problem"].tolist() == [3, 1, 2]
    assert reward.tolist() == [0.0, 1.0, 0.0]
    assert terminated.tolist() == [False, True, False]
    assert observation["length"][0] == observation["prompt_length"][0]
    assert info["verdict"][0] == -1

    observation, reward, terminated, truncated, info = env.step(numpy.array([seven, end, seven]))
    assert info["problem"].tolist() == [3, 4, 2]
    assert terminated.tolist() == [False, False, False]
    assert truncated.tolist() == [False, False, True]
    assert observation["length"][0] == observation["prompt_length"][0] + 1
    assert reward.tolist() == [0.0, 0.0, 0.0]

    _, _, terminated, truncated, info = env.step(numpy.array([seven, seven, seven]))
    assert info["problem"].tolist() == [3, 4, 5]
    assert not (terminated | truncated).any()


def test_vector_and_single_envs_agree() -> None:
    many = gymnasium.make_vec("atrl/Addition-v0", num_envs=4, low=0, high=20)
    one = gymnasium.make("atrl/Addition-v0", low=0, high=20)
    _, info = many.reset(seed=2)
    singles = [one.reset(seed=2)[1]["problem"], *(one.reset()[1]["problem"] for _ in range(3))]
    assert info["problem"].tolist() == singles


def test_gymnasium_s_vector_wrappers_work() -> None:
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        gymnasium.make_vec("atrl/Addition-v0", num_envs=2, **OPTIONS)
    )
    _, info = env.reset()
    end = gold(env, int(info["problem"][0]))[-1]
    *_, info = env.step(numpy.array([end, end]))
    assert info["episode"]["l"].tolist() == [1, 1]
