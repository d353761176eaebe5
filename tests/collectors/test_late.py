"""Late rewards: an episode with a ticket is held until its reward is there, and no token is lost meanwhile."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from atrl_collectors.episodes import episode_layout
from atrl_collectors.late import LateRewards
from atrl_envs import keys


class Host:
    """Stands for an environment whose host answers when the test says so."""

    def __init__(self) -> None:
        self.defer = False
        self.answers: list[TensorDict] = []

    def settled(self) -> TensorDict | None:
        return self.answers.pop(0) if self.answers else None


def episodes(tickets: list[int]) -> TensorDict:
    rows = episode_layout(4, len(tickets))
    rows[keys.TICKET] = torch.tensor(tickets)
    rows[keys.LENGTH] = torch.arange(1, len(tickets) + 1)
    rows[keys.MEMBER] = torch.arange(len(tickets))
    return rows


def answer(**rewards_by_ticket: float) -> TensorDict:
    tickets = torch.tensor([int(name[1:]) for name in rewards_by_ticket])
    reward = torch.tensor(list(rewards_by_ticket.values()))
    return TensorDict(
        {
            keys.TICKET: tickets,
            keys.REWARD: reward,
            keys.REWARD_PARTS: reward.unsqueeze(1),
            keys.VERDICT: torch.zeros_like(tickets, dtype=torch.int8),
            keys.SCORED: torch.ones_like(tickets, dtype=torch.bool),
        },
        batch_size=[len(tickets)],
    )


def test_episodes_wait_for_their_reward() -> None:
    host = Host()
    late = LateRewards(host)
    assert host.defer
    ready = late(episodes([-1, 5, -1, 3]))
    assert ready[keys.MEMBER].tolist() == [0, 2]
    assert keys.TICKET not in ready.keys()  # noqa: SIM118 (a TensorDict is iterated by rows)
    assert (late.count, late.tokens) == (2, 2 + 4)
    host.answers.append(answer(t9=7.0, t3=0.5))  # 9 was of an episode that was broken off
    ready = late(episodes([-1]))
    assert ready[keys.MEMBER].tolist() == [0, 3]
    assert ready[keys.REWARD].tolist() == [0.0, 0.5]
    assert (late.count, late.tokens) == (1, 2)
    assert late(episodes([])).shape == (0,)
    host.answers.append(answer(t5=1.0))
    ready = late(episodes([]))
    assert ready[keys.REWARD].tolist() == [1.0]
    assert ready[keys.SCORED].tolist() == [True]
    assert (late.count, late.tokens) == (0, 0)


def test_environments_without_tickets_are_left_alone() -> None:
    late = LateRewards(object())
    rows = episodes([-1, -1]).exclude(keys.TICKET)
    assert late(rows) is rows
