"""The replay buffer of finished episodes: a TorchRL buffer that gives complete, fresh groups and keeps books.

    buffer = make_buffer(StalenessPolicy(prompts_per_batch=8, samples_per_prompt=4), sequence_length=64)
    buffer.extend(episodes)                  # [n], the layout of `episode_layout(64)`
    batch = buffer.sample()                  # [32] in the same layout, plus "staleness" and "index"; waits
    buffer.consumer_version = 1              # after the update

It belongs to the trainer's process. Worker processes do not write into it: a lock between processes that a
killed worker held would stop the trainer for ever. Their episodes come through channels (channel.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import TensorDictReplayBuffer, TensorStorage
from torchrl.data.replay_buffers.writers import RoundRobinWriter

from atrl_collectors.episodes import episode_layout, response_tokens
from atrl_collectors.samplers import GroupStalenessSampler
from atrl_collectors.staleness import CLOSED, Books, StalenessPolicy
from atrl_collectors.telemetry import Waits
from atrl_envs import keys


class EpisodeBuffer(TensorDictReplayBuffer):
    """See make_buffer. The oldest rows are written over first; untrained tokens there count as dropped."""

    def __init__(
        self,
        policy: StalenessPolicy,
        sequence_length: int,
        capacity: int,
        sampler: GroupStalenessSampler,
        device: torch.device | str,
        reward_parts: int = 1,
    ) -> None:
        layout = episode_layout(sequence_length, capacity, device, reward_parts)
        super().__init__(
            storage=TensorStorage(layout, device=device),
            sampler=sampler,
            writer=RoundRobinWriter(),
            batch_size=policy.episodes_per_batch,
        )
        self.policy = policy
        self.sequence_length = sequence_length
        self.reward_parts = reward_parts
        self.capacity = capacity
        self.received_tokens = 0  # response tokens of all episodes that were ever added
        self.next_group = 0  # one more than the newest group that was ever seen
        self.before_sample: Callable[[], object] | None = None  # the collector's: look, take in what is there
        self._layout = episode_layout(sequence_length, 0, device, reward_parts)
        self.empty()  # TorchRL takes a storage that it is given for full

    @property
    def books(self) -> Books:
        """Where the tokens went."""
        return self._sampler.books

    @property
    def waits(self) -> Waits:
        """How long the trainer waited for episodes."""
        return self._sampler.waits

    @property
    def consumer_version(self) -> int:
        """The version that the next batch trains; set it after every update. It admits new groups."""
        return self._sampler.consumer_version

    @consumer_version.setter
    def consumer_version(self, version: int) -> None:
        self._sampler.consumer_version = version

    @property
    def admitted(self) -> int:
        """Groups of the global stream that may be started by now."""
        return self._sampler.admitted

    @property
    def resident_tokens(self) -> int:
        """Response tokens that wait here for their first training."""
        return self._sampler.resident_tokens

    def extend(self, episodes: TensorDictBase, *, update_priority: bool | None = None) -> Tensor:
        """Add finished episodes [n], n >= 0. ValueError when they have another layout."""
        self._check(episodes)
        index = [torch.zeros(0, dtype=torch.int64)]
        for start in range(0, len(episodes), self.capacity):
            part = episodes[start : start + self.capacity].select(*self._layout.keys())
            with self._replay_lock:
                index.append(super().extend(part, update_priority=False))
                self._sampler.look(self._storage)
            self.received_tokens += int(response_tokens(part).sum())
            self.next_group = max(self.next_group, int(part[keys.GROUP].max()) + 1)
        return torch.cat(index)

    def sample(self, *args: Any, **options: Any) -> Any:
        """A batch [episodes_per_batch] by (group, member), plus "staleness" and "index" [n] int64.

        Waits for complete groups. WaitTimeout; WorkerDied, even when there are groups enough.
        """
        if self.before_sample is not None:
            self.before_sample()
        return super().sample(*args, **options)

    def progress(self) -> dict[str, Any]:
        """What a run needs to go on from here without the episodes: a small dict that json can hold.

        `next_group` is where the stream of groups goes on. Untrained episodes are written off in the books.
        """
        books = Books()
        books.load_state_dict(self.books.state_dict())
        # What is neither trained nor dropped is here or in flight, and the run that goes on will not see it.
        open_tokens = books.generated - books.trained - sum(books.dropped.values())
        books.drop(CLOSED, max(open_tokens, 0), int(self._sampler.rows.untrained.sum()))
        return {
            "consumer_version": self.consumer_version,
            "next_group": self.next_group,
            "books": books.state_dict(),
        }

    def restore(self, progress: dict[str, Any]) -> None:
        """Go on from `progress()` of an earlier run, in a new buffer: every older group is finished."""
        if self._sampler.finished or len(self):
            raise RuntimeError("restore a run into a new buffer: this one has been used")
        self.books.load_state_dict(progress["books"])
        self.next_group = int(progress["next_group"])
        self._sampler.start_from(self.next_group, int(progress["consumer_version"]))

    def _check(self, episodes: TensorDictBase) -> None:
        for name, column in self._layout.items():
            got = episodes.get(name, None)
            if got is None or got.shape[1:] != column.shape[1:] or got.dtype != column.dtype:
                found = "nothing" if got is None else f"{list(got.shape)} {got.dtype}"
                wanted = ", ".join(["n", *map(str, column.shape[1:])])
                raise ValueError(
                    f"episodes need {name!r} as [{wanted}] {column.dtype}, got {found}; "
                    f"this buffer was made for sequence_length={self.sequence_length} and "
                    f"reward_parts={self.reward_parts}"
                )


def make_buffer(
    policy: StalenessPolicy,
    sequence_length: int,
    *,
    reward_parts: int = 1,
    capacity: int | None = None,
    device: torch.device | str = "cpu",
    timeout: float = 600.0,
    waits: Waits | None = None,
) -> EpisodeBuffer:
    """The buffer that `make_collector` fills and the trainer samples.

    Args:
        policy: groups per batch, samples per group, how stale, how often used.
        sequence_length: S, prompt and response together: max_prompt_length + max_new_tokens.
        reward_parts: R, the components of the environment's reward.
        capacity: episodes; by default as many as the policy can ever need at once.
        timeout: seconds that `sample()` waits at most before it raises WaitTimeout.
        waits: where waiting is noted.

    ValueError: a capacity that does not hold one batch.
    """
    if capacity is None:
        capacity = policy.capacity
    if capacity < policy.episodes_per_batch:
        raise ValueError(f"capacity={capacity} episodes do not hold one batch of {policy.episodes_per_batch}")
    sampler = GroupStalenessSampler(policy, timeout=timeout, waits=waits)
    return EpisodeBuffer(policy, sequence_length, capacity, sampler, device, reward_parts)
