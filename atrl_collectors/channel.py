"""Finished episodes from one worker process to the trainer: a ring of rows with one writer and one reader.

    channel = EpisodeChannel.create(path, sequence_length=64, capacity=256)     # the trainer
    channel.put(episodes, written=0)         # the worker, if `room(written=0)` allows; then it counts them
    episodes = channel.take(written=8)       # the trainer: all that is new up to that count, or None

No lock, no message. The writer's count lives in its WorkerRecord and is committed after the rows are there,
in one step with its token counts: rows of a worker that was killed while it wrote them do not exist.
"""

from __future__ import annotations

import os

import torch
from tensordict import TensorDict, TensorDictBase

from atrl_collectors import mapped
from atrl_collectors.episodes import episode_layout

TAKEN = "taken"  # how many rows the reader has taken so far, the only thing that it writes


class EpisodeChannel:
    """Rows of the episode layout in shared memory. Row i is at i % capacity; counts only grow."""

    def __init__(self, shared: mapped.Mapped) -> None:
        self.path = shared.path
        columns = {name: tensor for name, tensor in shared.tensors.items() if name != TAKEN}
        self.capacity = next(iter(columns.values())).shape[0]
        self._rows = TensorDict(columns, batch_size=[self.capacity])
        self._taken = shared.tensors[TAKEN].numpy()

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], sequence_length: int, capacity: int, reward_parts: int = 1
    ) -> EpisodeChannel:
        layout = {
            name: ((capacity, *column.shape[1:]), column.dtype)
            for name, column in episode_layout(sequence_length, reward_parts=reward_parts).items()
        }
        return cls(mapped.create(path, {TAKEN: ((1,), torch.int64), **layout}))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> EpisodeChannel:
        return cls(mapped.attach(path))

    def room(self, written: int) -> int:
        """Episodes that fit, for a writer that has written so many."""
        return self.capacity - (written - int(self._taken[0]))

    def put(self, episodes: TensorDictBase, written: int) -> None:
        """Write episodes [n], n <= room(written), after the `written` ones before; then commit the count."""
        count = len(episodes)
        if count > self.room(written):
            raise ValueError(f"{count} episodes do not fit: there is room for {self.room(written)}")
        start = written % self.capacity
        first = min(count, self.capacity - start)
        for name, column in self._rows.items():
            source = episodes[name]
            column[start : start + first] = source[:first]
            column[: count - first] = source[first:]
        mapped.fence()

    def take(self, written: int) -> TensorDict | None:
        """A copy of the episodes that are new, [n], when `written` of them have been committed in all."""
        taken = int(self._taken[0])
        count = written - taken
        if count <= 0:
            return None
        rows = torch.arange(taken, written) % self.capacity
        episodes = self._rows[rows]
        mapped.fence()
        self._taken[0] = written
        return episodes
