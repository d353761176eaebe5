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

    def append(self, other: SlotCache) -> None:
        """Add another working set's rows after these; both have the same room."""
        self.replace(
            [
                (torch.cat([k, other_k]), torch.cat([v, other_v]))
                for (k, v), (other_k, other_v) in zip(self.tensors(), other.tensors(), strict=True)
            ]
        )

    def select(self, rows: Tensor) -> None:
        """Keep (or repeat) the rows named by an index tensor."""
        self.replace([(k.index_select(0, rows), v.index_select(0, rows)) for k, v in self.tensors()])


@dataclass
class Memo:
    """What each of B slots holds: keys and values of `cached` tokens of `episode` under `version`.

    `episode` is -1 where a slot holds nothing. The tensors are made at the first `store`.
    """

    episode: Tensor
    cached: Tensor
    version: Tensor
    layers: list[tuple[Tensor, Tensor]] | None = None

    @classmethod
    def empty(cls, slots: int, device: torch.device) -> Memo:
        none = torch.full((slots,), -1, dtype=torch.int64, device=device)
        return cls(episode=none, cached=none.clone(), version=none.clone())

    def drop(self) -> None:
        """Forget everything (the next block computes each row from its tokens)."""
        self.episode.fill_(-1)

    def load(self, rows: Tensor, end: int, room: int) -> list[tuple[Tensor, Tensor]]:
        """Copies of the given slots' first `end` columns, in tensors with `room` columns."""
        assert self.layers is not None

        def take(stored: Tensor) -> Tensor:
            work = stored.new_empty(rows.shape[0], stored.shape[1], room, stored.shape[3])
            work[:, :, :end] = (
                stored[rows, :, :end] if rows.shape[0] < stored.shape[0] else stored[:, :, :end]
            )
            work[:, :, end:] = 0  # masked, but a NaN there would still spread through 0 * NaN
            return work

        return [(take(k), take(v)) for k, v in self.layers]

    def store(self, rows: Tensor, tensors: list[tuple[Tensor, Tensor]], end: int, capacity: int) -> None:
        """Write back the first `end` columns of the working rows into their slots."""
        if self.layers is None:
            slots = self.episode.shape[0]
            self.layers = [
                (
                    k.new_zeros(slots, k.shape[1], capacity, k.shape[3]),
                    v.new_zeros(slots, v.shape[1], capacity, v.shape[3]),
                )
                for k, v in tensors
            ]
        for (keys, values), (k, v) in zip(self.layers, tensors, strict=True):
            keys[rows, :, :end] = k[:, :, :end]
            values[rows, :, :end] = v[:, :, :end]
