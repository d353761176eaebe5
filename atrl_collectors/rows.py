"""What is known of every row of a replay buffer: group, age, tokens, uses; what is ready, what is dropped.

    rows = GroupRows(policy, books)
    rows.look(data, count, capacity)         # after writes: data is the storage's TensorDict
    groups = rows.ready(consumer_version)    # drops what is too old; complete groups, oldest first
    index, staleness = rows.take(groups[:8], consumer_version)

Rows are recognised by (group, member), so it does not matter which process wrote them, or when. No loop over
rows; a look costs two comparisons over the capacity plus work for the rows that are new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from atrl_collectors.episodes import oldest_version, response_tokens
from atrl_collectors.staleness import NO_CONTRAST, OVERWRITTEN, STALE, Books, StalenessPolicy, in_sorted
from atrl_envs import keys

COLUMNS = ("group", "member", "oldest", "tokens", "uses", "live", "scored", "reward")  # not a key


class GroupRows:
    """The columns [capacity] (on the CPU), and the groups given up while members were still to come."""

    def __init__(self, policy: StalenessPolicy, books: Books) -> None:
        self.policy = policy
        self.books = books
        self.given_up = 0  # groups dropped so far
        self._dead: dict[int, tuple[str, int]] = {}  # group -> why it was dropped, members still to come
        self.forget()

    def forget(self) -> None:
        """Know of no row."""
        self.group = torch.empty(0, dtype=torch.int64)
        self.member, self.oldest, self.tokens, self.uses = (self.group.clone() for _ in range(4))
        self.live = torch.empty(0, dtype=torch.bool)  # may still be trained
        self.scored, self.reward = self.live.clone(), torch.empty(0)
        self._groups = self.group.clone()
        self._judged: int | None = None  # the version that _groups was made for
        self._refilled = (-1, 0)  # a version, and the groups without contrast that were dropped for it

    @property
    def untrained(self) -> Tensor:
        """[capacity] bool: the rows that wait for their first training."""
        return self.live & (self.uses == 0)

    @property
    def resident_tokens(self) -> int:
        """Response tokens of the untrained rows."""
        return int(self.tokens[self.untrained].sum())

    def look(self, data: TensorDictBase, count: int, capacity: int) -> None:
        """Take note of the rows below `count` that were written since the last look."""
        if self.group.numel() < count:
            self._grow(capacity)
        group, member = data[keys.GROUP][:count].cpu(), data[keys.MEMBER][:count].cpu()
        rows = ((group != self.group[:count]) | (member != self.member[:count])).nonzero().squeeze(-1)
        if not rows.numel():
            return
        lost = rows[self.live[rows]]
        lost_groups, lost_members = self.group[lost].unique(return_counts=True)
        self._write_off(lost, OVERWRITTEN)
        needed = data.select(keys.VERSION, keys.RESPONSE_MASK, keys.LENGTH, keys.PROMPT_LENGTH)
        episodes = needed[rows.to(data[keys.GROUP].device)]
        self.group[rows], self.member[rows] = group[rows], member[rows]
        self.oldest[rows] = oldest_version(episodes).cpu()
        self.tokens[rows] = response_tokens(episodes).cpu()
        self.uses[rows] = 0
        self.live[rows] = True
        if self.policy.dynamic_sampling:
            self.scored[rows] = data[keys.SCORED][:count].cpu()[rows]
            self.reward[rows] = data[keys.REWARD][:count].cpu()[rows].float()
        self._drop(lost_groups, OVERWRITTEN, lost_members)
        self._bury(rows)
        self._judged = None

    def ready(self, consumer_version: int) -> Tensor:
        """The complete groups [m] that are fresh enough, oldest first. Drops what is too old."""
        if self._judged != consumer_version:
            live = self.live
            staleness = self.policy.staleness(consumer_version, self.oldest[live])
            self._drop(self.policy.stale_groups(self.group[live], staleness), STALE)
            self._groups = self._with_contrast(
                self.policy.complete_groups(self.group[self.live]), consumer_version
            )
            self._judged = consumer_version
        return self._groups

    def _with_contrast(self, groups: Tensor, consumer_version: int) -> Tensor:
        """The complete groups (sorted) without those that dynamic sampling drops."""
        limit = self.policy.dynamic_sampling * self.policy.prompts_per_batch
        if self._refilled[0] != consumer_version:
            self._refilled = (consumer_version, 0)
        room = limit - self._refilled[1]
        if room <= 0:
            return groups
        fresh = self.untrained & in_sorted(self.group, groups)
        flat = self.policy.flat_groups(self.group[fresh], self.reward[fresh], self.scored[fresh], room)
        self._drop(flat, NO_CONTRAST)
        self._refilled = (consumer_version, self._refilled[1] + flat.numel())
        return groups[~in_sorted(groups, flat)]

    def take(self, groups: Tensor, consumer_version: int) -> tuple[Tensor, Tensor, int]:
        """Use complete groups (sorted): rows by (group, member), the staleness of each, groups used up."""
        rows = (self.live & in_sorted(self.group, groups)).nonzero().squeeze(-1)
        rows = rows[self.member[rows].argsort(stable=True)]
        rows = rows[self.group[rows].argsort(stable=True)]
        members = self.member[rows].view(-1, self.policy.samples_per_prompt)
        twice = (members[:, 1:] == members[:, :-1]).any(-1)
        if bool(twice.any()):
            which = members[twice][0].tolist()
            raise ValueError(f"group {int(groups[twice][0])} has a member twice: {which}")
        staleness = self.policy.staleness(consumer_version, self.oldest[rows])
        self.books.trained += int(self.tokens[rows[self.uses[rows] == 0]].sum())
        self.uses[rows] += 1
        used_up = rows[self.uses[rows] >= self.policy.max_uses]
        self.live[used_up] = False
        self._judged = None
        return rows, staleness, int(self.group[used_up].unique().numel())

    def state_dict(self) -> dict[str, Any]:
        dead = [[group, reason, missing] for group, (reason, missing) in self._dead.items()]
        columns = {name: getattr(self, name).clone() for name in COLUMNS}
        return {"given_up": self.given_up, "dead": dead, "refilled": list(self._refilled), **columns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.given_up = int(state["given_up"])
        self._dead = {int(group): (str(reason), int(count)) for group, reason, count in state["dead"]}
        self._refilled = (int(state["refilled"][0]), int(state["refilled"][1]))
        for name in COLUMNS:
            setattr(self, name, state[name].clone())
        self._judged = None

    def _drop(self, groups: Tensor, reason: str, gone: Tensor | None = None) -> None:
        """Give up whole groups (sorted ids): what is here of them, and what may still come.

        `gone` counts the members of each that are known to be lost already.
        """
        if not groups.numel():
            return
        rows = (self.live & in_sorted(self.group, groups)).nonzero().squeeze(-1)
        here = torch.bincount(torch.searchsorted(groups, self.group[rows]), minlength=groups.numel())
        missing = self.policy.samples_per_prompt - here - (0 if gone is None else gone)
        pairs = zip(groups.tolist(), missing.tolist(), strict=True)
        self._dead.update({group: (reason, count) for group, count in pairs if count > 0})
        self._write_off(rows, reason)
        self.given_up += groups.numel()

    def _bury(self, rows: Tensor) -> None:
        """Drop the new rows that belong to groups given up before."""
        if not self._dead:
            return
        late = rows[in_sorted(self.group[rows], torch.tensor(sorted(self._dead))) & self.live[rows]]
        for group in self.group[late].unique().tolist():
            reason, missing = self._dead.pop(group)
            members = late[self.group[late] == group]
            self._write_off(members, reason)
            if missing > members.numel():
                self._dead[group] = (reason, missing - members.numel())

    def _write_off(self, rows: Tensor, reason: str) -> None:
        unused = rows[self.uses[rows] == 0]
        self.books.drop(reason, int(self.tokens[unused].sum()), unused.numel())
        self.live[rows] = False

    def _grow(self, capacity: int) -> None:
        more = capacity - self.group.numel()
        for name in COLUMNS:
            old = getattr(self, name)
            fill = -1 if name in ("group", "member") else 0  # not a key
            setattr(self, name, torch.cat([old, torch.full((more,), fill, dtype=old.dtype)]))
