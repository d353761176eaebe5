"""A slot KV cache: one row of keys and values per environment slot, each with its own length.

    cache = SlotCache(num_layers=2)
    cache.begin(work)                      # rows being decoded now, with room for the block
    model(ids, past_key_values=cache, ...) # every row writes at its own position

The cache is a memo: `Memo` remembers what each slot's row was computed from (episode, number of
cached tokens, version of the weights), and a row whose memo does not match what is asked is computed
again from its tokens. Nothing depends on the cache for correctness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer for the rows of the working set: `[n, heads, room, head_dim]`."""

    def __init__(self, owner: SlotCache) -> None:
        super().__init__()
        self.owner = owner

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, heads, _, key_dim = key_states.shape
        room = self.owner.room
        self.keys = key_states.new_zeros(rows, heads, room, key_dim)
        self.values = value_states.new_zeros(rows, heads, room, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write the new states where the owner says and return everything up to its `end`."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        positions, end = self.owner.positions, self.owner.end
        if positions is None:  # a prefill: all rows start at 0
            self.keys[:, :, : key_states.shape[2]] = key_states
            self.values[:, :, : value_states.shape[2]] = value_states
            return key_states, value_states
        rows = torch.arange(key_states.shape[0], device=key_states.device)
        self.keys[rows, :, positions] = key_states[:, :, 0]
        self.values[rows, :, positions] = value_states[:, :, 0]
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.end, 0

    def get_seq_length(self) -> int:
        return 0 if self.owner.positions is None else self.owner.end - 1

    def get_max_length(self) -> int:
        return self.owner.room


class SlotCache(Cache):
    """The working set of rows that a block decodes, with one write position per row.

    Set `positions` (`[n]`, or None while prefilling) and `end` (columns in use) before each forward.
    """

    def __init__(self, num_layers: int, room: int) -> None:
        self.room = room
        self.positions: Tensor | None = None
        self.end = 0
        super().__init__(layers=[SlotLayer(self) for _ in range(num_layers)])

    def tensors(self) -> list[tuple[Tensor, Tensor]]:
        """(keys, values) of each layer, `[n, heads, room, head_dim]`."""
        return [(layer.keys, layer.values) for layer in self.layers]  # type: ignore[misc]

    def replace(self, tensors: list[tuple[Tensor, Tensor]]) -> None:
        """Put other rows in the working set."""
        for layer, (keys, values) in zip(self.layers, tensors, strict=True):
            layer.keys, layer.values, layer.is_initialized = keys, values, True

    def write(self, rows: Tensor, other: SlotCache) -> None:
        """Put the first columns of another working set's rows in these rows of this one."""
        for (k, v), (other_k, other_v) in zip(self.tensors(), other.tensors(), strict=True):
            k[rows, :, : other.end] = other_k[:, :, : other.end]
            v[rows, :, : other.end] = other_v[:, :, : other.end]

    def select(self, rows: Tensor) -> None:
        """Keep (or repeat) the rows named by an index tensor."""
        self.replace([(k.index_select(0, rows), v.index_select(0, rows)) for k, v in self.tensors()])


@dataclass
class Memo:
    """What is cached for each of B slots: `cached` tokens of `episode` under `version`, in row `place` of `layers`.

    `episode` is -1 where nothing is. The tensors are those that the last block worked in; nothing is copied to
    keep them.
    """

    episode: Tensor
    cached: Tensor
    version: Tensor
    place: Tensor
    layers: list[tuple[Tensor, Tensor]] | None = None

    @classmethod
    def empty(cls, slots: int, device: torch.device) -> Memo:
        none = torch.full((slots,), -1, dtype=torch.int64, device=device)
        return cls(episode=none, cached=none.clone(), version=none.clone(), place=none.clone())

    def drop(self) -> None:
        """Forget everything (the next block computes each row from its tokens)."""
        self.episode.fill_(-1)
        self.layers = None

    def load(self, slots: Tensor, end: int, room: int) -> list[tuple[Tensor, Tensor]]:
        """Copies of the rows of these slots, at least `room` columns wide, of which the first `end` are kept.

        The row of a slot without a memo is arbitrary, and finite.
        """
        assert self.layers is not None
        place = torch.where(self.episode[slots] < 0, 0, self.place[slots])

        def take(stored: Tensor) -> Tensor:
            if stored.shape[2] >= room:
                return stored.index_select(0, place)
            work = stored.new_zeros(slots.shape[0], stored.shape[1], room, stored.shape[3])
            end_here = min(end, stored.shape[2])
            work[:, :, :end_here] = stored[place, :, :end_here]
            return work

        return [(take(k), take(v)) for k, v in self.layers]

    def keep(self, slots: Tensor, rows: Tensor, tensors: list[tuple[Tensor, Tensor]]) -> None:
        """From now on these slots are in these rows of the tensors, and no other slot has a memo."""
        self.layers = tensors
        self.episode.fill_(-1)
        self.place[slots] = rows
