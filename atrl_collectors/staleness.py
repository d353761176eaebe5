"""Which groups may start, which are trained, which are dropped and why; and books in which every token ends.

    policy = StalenessPolicy(prompts_per_batch=8, samples_per_prompt=4, max_staleness=1)
    policy.admitted(finished=0)             # 16: groups that may have been started so far

    books = Books()
    books.generated, books.trained = 900, 500
    books.drop("stale", tokens=100, episodes=2)
    books.check(resident=300)               # BooksError unless generated = trained + dropped + resident

Staleness of an episode = version of the consumer - oldest version among its response tokens; never negative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# Why an episode ends untrained. Every reason that this package gives is one of these.
STALE = "stale"  # a member of its group is older than max_staleness allows
NO_CONTRAST = "no contrast"  # all members of its group earned the same, so nothing could be learnt from it
OVERWRITTEN = "overwritten"  # the buffer was too small and wrote over it
ABANDONED = "abandoned"  # the environment broke it off
WORKER_DIED = "worker died"  # it was in flight in a worker that died
EMPTIED = "emptied"  # the buffer was told to forget it
CLOSED = "closed"  # it was in flight when the run ended


class BooksError(RuntimeError):
    """The tokens that were generated are not the tokens that were trained, dropped or kept."""


@dataclass(frozen=True)
class StalenessPolicy:
    """Every rule about the age of data, in one place; a group is the samples of one prompt.

    Attributes:
        prompts_per_batch, samples_per_prompt: groups of a batch, episodes of a group.
        max_staleness: of an episode that is trained, in versions.
        max_uses: batches that a group may be part of.
        dynamic_sampling: batches' worth of groups without contrast (all scored members earned the same) that are
            dropped for each version, at most, and replaced by new groups (DAPO, arXiv 2503.14476, eq. 11). The limit
            keeps a policy that solves every problem from sampling for ever. 0: such groups are batch members, too.
    """

    prompts_per_batch: int
    samples_per_prompt: int
    max_staleness: int = 0
    max_uses: int = 1
    dynamic_sampling: int = 0

    def __post_init__(self) -> None:
        for name in (
            "prompts_per_batch",
            "samples_per_prompt",
            "max_staleness",
            "max_uses",
            "dynamic_sampling",
        ):
            value, least = getattr(self, name), int(name not in ("max_staleness", "dynamic_sampling"))
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")

    @property
    def episodes_per_batch(self) -> int:
        """prompts_per_batch * samples_per_prompt."""
        return self.prompts_per_batch * self.samples_per_prompt

    @property
    def capacity(self) -> int:
        """Episodes that a buffer must hold so that nothing is overwritten before it is trained or too old.

        A group lives for at most max_staleness + 1 versions. Written meanwhile: the groups that were open
        when it came, one more for each of those that is dropped, one batch a version: three times as many. Each
        batch that is dropped for want of contrast is one more.
        """
        return (3 + self.dynamic_sampling) * (self.max_staleness + 1) * self.episodes_per_batch

    def admitted(self, finished: int) -> int:
        """Groups of the global stream that may be started once `finished` of them are trained or dropped.

        A group that starts at version v then meets the consumer at version v + max_staleness at the latest
        (with one batch a version), and max_staleness = 0 is the synchronous order.
        """
        return finished + (self.max_staleness + 1) * self.prompts_per_batch

    def staleness(self, consumer_version: int, oldest: Tensor) -> Tensor:
        """[n] int64 from the oldest version [n] of each episode. ValueError when one would be negative."""
        staleness = consumer_version - oldest
        if staleness.numel() and int(staleness.min()) < 0:
            raise ValueError(
                f"an episode was sampled by version {int(oldest.max())}, newer than the consumer's "
                f"{consumer_version}; set the consumer's version whenever weights are published"
            )
        return staleness

    def stale_groups(self, group: Tensor, staleness: Tensor) -> Tensor:
        """The groups (sorted) in which some episode is too old; group and staleness [n] -> [m]."""
        return group[staleness > self.max_staleness].unique()

    def flat_groups(self, group: Tensor, reward: Tensor, scored: Tensor, room: int) -> Tensor:
        """The oldest groups, `room` at most, whose scored members all earned the same; [n] each -> [m] sorted."""
        groups, place = group.unique(return_inverse=True)
        highest = reward.new_full(groups.shape, -torch.inf)
        lowest = -highest
        highest.scatter_reduce_(0, place[scored], reward[scored], "amax")
        lowest.scatter_reduce_(0, place[scored], reward[scored], "amin")
        return groups[highest <= lowest][:room]  # none scored: -inf <= inf

    def complete_groups(self, group: Tensor) -> Tensor:
        """The groups (sorted: oldest first) of which every member is there; group [n] -> [m]."""
        groups, count = group.unique(return_counts=True)
        if count.numel() and int(count.max()) > self.samples_per_prompt:
            raise ValueError(
                f"group {int(groups[count.argmax()])} has {int(count.max())} episodes, more than "
                f"samples_per_prompt={self.samples_per_prompt}; the environment's group_size must be the "
                "same, and group ids must be unique over the run"
            )
        return groups[count == self.samples_per_prompt]


@dataclass
class Books:
    """Where every generated token went. All counts are response tokens, but for `episodes` (dropped ones)."""

    generated: int = 0
    trained: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    episodes: Counter[str] = field(default_factory=Counter)

    def drop(self, reason: str, tokens: int, episodes: int = 0) -> None:
        """Write off tokens, with the reason. Nothing is noted when there is nothing to write off."""
        if tokens:
            self.dropped[reason] += tokens
        if episodes:
            self.episodes[reason] += episodes

    def check(self, resident: int) -> None:
        """BooksError unless generated = trained + dropped + resident (in flight and in the buffer)."""
        dropped = sum(self.dropped.values())
        if self.generated != self.trained + dropped + resident:
            raise BooksError(
                f"{self.generated} tokens were generated, but {self.trained} trained + {dropped} dropped "
                f"{dict(self.dropped)} + {resident} resident = {self.trained + dropped + resident}"
            )

    def state_dict(self) -> dict[str, Any]:
        return {
            "generated": self.generated,
            "trained": self.trained,
            "dropped": dict(self.dropped),
            "episodes": dict(self.episodes),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.generated, self.trained = int(state["generated"]), int(state["trained"])
        self.dropped, self.episodes = Counter(state["dropped"]), Counter(state["episodes"])


def in_sorted(values: Tensor, sorted_values: Tensor) -> Tensor:
    """[n] bool: which `values` occur in `sorted_values` [m]."""
    if not sorted_values.numel():
        return torch.zeros_like(values, dtype=torch.bool)
    at = torch.searchsorted(sorted_values, values).clamp(max=sorted_values.numel() - 1)
    return sorted_values[at] == values
