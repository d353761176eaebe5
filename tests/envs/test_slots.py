"""Slots over time: groups, partial resets, admission, idle slots, workers and the cursor."""

from __future__ import annotations

import time
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.envs.utils import check_env_specs

from atrl_envs import keys
from tests.envs.toy import addition, play, type_block


def handed_out(env: Any, resets: int) -> list[tuple[int, int, int]]:
    """(group, member, problem) of whole resets."""
    found = []
    for _ in range(resets):
        state = env.reset()
        columns = [state[key].squeeze(1).tolist() for key in (keys.GROUP, keys.MEMBER, keys.PROBLEM)]
        found += list(zip(*columns, strict=True))
    return found


def test_a_partial_reset_refills_only_the_freed_slots() -> None:
    env = addition(num_envs=4, group_size=2)
    state = env.reset()
    before = state.clone()
    mask = torch.tensor([[False], [True], [False], [True]])
    state = env.reset(state.set("_reset", mask), select_reset_only=True)
    assert state[keys.GROUP].squeeze(1).tolist() == [0, 2, 1, 2]
    assert state[keys.MEMBER].squeeze(1).tolist() == [0, 0, 0, 1]
    assert torch.equal(state[keys.TOKENS][::2], before[keys.TOKENS][::2])
    assert int(state[keys.PROBLEM][1]) == int(state[keys.PROBLEM][3])


def test_members_of_a_group_share_a_problem_and_all_come() -> None:
    episodes = play(addition(num_envs=6, group_size=3), 60)
    groups: dict[int, list[tuple[int, int]]] = {}
    for (group, member), episode in episodes.items():
        groups.setdefault(group, []).append((member, episode.problem))
    complete = {group: rows for group, rows in groups.items() if len(rows) == 3}
    assert len(complete) >= 15
    for rows in complete.values():
        assert sorted(member for member, _ in rows) == [0, 1, 2]
        assert len({problem for _, problem in rows}) == 1


def test_two_workers_play_what_one_plays() -> None:
    alone = play(addition(num_envs=4, group_size=2), 40)
    shared: dict = {}
    for worker in (0, 1):
        mine = play(addition(num_envs=4, group_size=2, worker=worker, num_workers=2), 20)
        assert not shared.keys() & mine.keys()
        shared |= mine
    both = alone.keys() & shared.keys()
    assert len(both) >= 30
    assert all(alone[key] == shared[key] for key in both)


def test_groups_begin_where_told() -> None:
    late = handed_out(addition(num_envs=4, group_size=2, start_group=6), 2)
    assert late == handed_out(addition(num_envs=4, group_size=2), 5)[12:]


def test_without_shuffling_problems_come_in_the_bank_s_order() -> None:
    env = addition(num_envs=3, shuffle=False, bank_size=4)
    assert [problem for _, _, problem in handed_out(env, 2)] == [0, 1, 2, 3, 0, 1]


def test_a_slot_without_a_problem_is_idle() -> None:
    env = addition(num_envs=4, group_size=2, block_size=2)
    env.admission = lambda: 1
    state = env.reset()
    assert state[keys.GROUP].squeeze(1).tolist() == [0, 0, -1, -1]
    for key in (keys.PROBLEM, keys.MEMBER):
        assert state[key].squeeze(1).tolist()[2:] == [-1, -1]
    for key in (keys.PROMPT_LENGTH, keys.LENGTH):
        assert state[key].squeeze(1).tolist()[2:] == [0, 0]
    assert (state[keys.TOKENS][2:] == env.vocab.pad_id).all()
    assert not state[keys.DONE].any()

    after = env.step(type_block(env, state))[keys.NEXT]
    assert after[keys.DONE].squeeze(1).tolist()[2:] == [True, True]
    assert after[keys.TERMINATED].squeeze(1).tolist()[2:] == [True, True]
    assert not after[keys.TRUNCATED][2:].any()
    assert after[keys.REWARD].squeeze(1).tolist()[2:] == [0.0, 0.0]
    assert after[keys.VERDICT].squeeze(1).tolist()[2:] == [-1, -1]
    assert after[keys.LENGTH].squeeze(1).tolist()[2:] == [0, 0]
    assert (after[keys.TOKENS][2:] == env.vocab.pad_id).all()


def test_idle_slots_ask_again_and_episodes_do_not_change() -> None:
    free = play(addition(num_envs=4, group_size=2), 24)
    env = addition(num_envs=4, group_size=2)
    env.idle_wait = 0.0
    asked: list[int] = []

    def admission() -> int:
        asked.append(1)
        return len(asked) // 3

    env.admission = admission
    held_back = play(env, 24)
    shared = free.keys() & held_back.keys()
    assert len(shared) >= 16
    assert all(free[key] == held_back[key] for key in shared)


def test_admission_is_asked_once_a_reset() -> None:
    env = addition(num_envs=4, group_size=2)
    asked: list[int] = []
    env.admission = lambda: asked.append(1) or 100  # type: ignore[func-returns-value]
    env.reset()
    env.reset(
        TensorDict({"_reset": torch.tensor([[True], [False], [False], [True]])}, [4]), select_reset_only=True
    )
    assert len(asked) == 2


def test_an_env_with_nothing_to_do_waits_for_an_admission() -> None:
    env = addition(num_envs=2, group_size=2)
    env.idle_wait = 30.0
    asked: list[int] = []
    env.admission = lambda: int(asked.append(1) or len(asked) > 5)  # type: ignore[func-returns-value]
    assert env.reset()[keys.GROUP].squeeze(1).tolist() == [0, 0]
    assert len(asked) == 6


def test_an_env_with_nothing_to_do_does_not_wait_for_ever() -> None:
    env = addition(num_envs=2, group_size=2)
    env.idle_wait = 0.05
    env.admission = lambda: 0
    start = time.monotonic()
    assert env.reset()[keys.GROUP].squeeze(1).tolist() == [-1, -1]
    assert time.monotonic() - start >= 0.05
    env.admission = lambda: 1
    assert env.reset()[keys.GROUP].squeeze(1).tolist() == [0, 0]


def test_idle_slots_fit_the_specs() -> None:
    env = addition(num_envs=4, group_size=2)
    env.idle_wait = 0.0
    env.admission = lambda: 1
    check_env_specs(env)


def test_the_cursor_resumes_exactly() -> None:
    env = addition(num_envs=4, group_size=4, seed=8)
    handed_out(env, 3)
    env.reset(
        TensorDict({"_reset": torch.tensor([[True], [True], [False], [False]])}, [4]), select_reset_only=True
    )
    saved = env.state_dict()
    assert saved["cursor"]["group"] == 3
    assert saved["cursor"]["member"] == 2
    following = handed_out(env, 5)
    again = addition(num_envs=4, group_size=4, seed=1)  # the cursor brings its seed along
    again.load_state_dict(saved)
    assert handed_out(again, 5) == following
    assert following[0][:2] == (3, 2)
