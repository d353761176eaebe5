"""Tokens to bytes on the device: the response of each row as one byte string, however it was tokenised.

    spelling = Spelling.of(vocab)
    text = spelling.text(tokens, start, end)     # Text: data [B, L] uint8, first, stop, lost [B]

A vocabulary of single characters needs one look-up a token. Any other needs a ragged concatenation: where each
token begins is a running sum, where in the table each byte stands is another, and one look-up fetches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atrl_envs.verify.automaton import END, SKIP, STRANGE
from atrl_envs.verify.masks import Array, before, bits
from atrl_envs.verify.peek import surely_none, widest

LONGEST = 1 << 17  # bytes of a response that are looked at: its last ones
MARGIN = 16  # END bytes behind every row, more than any marker has bytes
_STOP = 0xFC  # the end-of-sequence token in a table of single bytes


@dataclass(frozen=True)
class Text:
    """Responses as bytes: data [B, L] uint8 holds each in [first, stop), END elsewhere; the rest is [B].

    lost: the beginning of the response was left out, because it has more than LONGEST bytes.
    """

    data: Array
    first: Array
    stop: Array
    lost: Array


@dataclass(frozen=True)
class Spelling:
    """Bytes of every token: table [V + 2, max_bytes] uint8 and length [V + 2] int32; row i + 1 is token i.

    The first and the last row stand for ids outside the vocabulary: one byte that is no text. single: [V + 2],
    the byte where a token has one, SKIP where it has none; the end-of-sequence token has a byte of its own there.
    """

    table: Array
    length: Array
    single: Array
    eos_id: int

    @classmethod
    def of(cls, vocab: Any) -> Spelling:
        """From `vocab.byte_table` and `vocab.eos_id`; on the CPU."""
        rows, counts = vocab.byte_table
        eos_id = int(vocab.eos_id)
        table = torch.full((rows.shape[0] + 2, max(1, rows.shape[1])), STRANGE, dtype=torch.uint8)
        table[1:-1, : rows.shape[1]] = torch.where(rows >= _STOP, STRANGE, rows)
        length = torch.ones(rows.shape[0] + 2, dtype=torch.int32)
        length[1:-1] = counts
        single = torch.where(length == 0, SKIP, table[:, 0])
        single[eos_id + 1] = _STOP
        return cls(table, length, single, eos_id)

    @property
    def bytewise(self) -> bool:
        """Whether no token has more than one byte."""
        return self.table.shape[1] == 1

    def rows_of(self, tokens: Tensor) -> Tensor:
        """Where tokens stand in the tables, int32, same shape."""
        ids = tokens if tokens.dtype == torch.int64 else tokens.int()
        return ids.clamp(-1, self.table.shape[0] - 2).int() + 1

    def text(self, tokens: Tensor, start: Tensor, end: Tensor | None, keep_gaps: bool = False) -> Text:
        """The responses: tokens [B, S] from `start` [B] to `end` [B] or the first end of sequence, as bytes.

        keep_gaps: a token without content may stay as a SKIP byte, which saves moving the bytes behind it.
        """
        size = tokens.shape[1]
        place = torch.arange(size, dtype=torch.int32, device=tokens.device)
        rows = self.rows_of(tokens)
        start = start.int().clamp(0, size)
        inside = place >= start.unsqueeze(1)
        if self.bytewise:
            letters = self.single.index_select(0, rows.view(-1)).view(tokens.shape)
            closing = letters == _STOP
        else:
            closing = tokens == self.eos_id
        first_eos = size - ((closing & inside).view(torch.uint8) * (size - place)).amax(1)
        stop = first_eos if end is None else torch.minimum(first_eos, end.int())
        stop = torch.maximum(stop, start)
        inside = inside & (place < stop.unsqueeze(1))
        if not self.bytewise:
            return self._join(rows, inside)
        none = torch.zeros_like(inside[:, 0])
        letters = letters | (inside.view(torch.uint8) - 1)  # END outside
        if keep_gaps or surely_none(letters == SKIP):
            return Text(torch.nn.functional.pad(letters, (0, MARGIN), value=END), start, stop, none)
        solid = inside & (letters != SKIP)
        home = solid.cumsum(1, dtype=torch.int64)  # column 0 takes what has no place
        moved = torch.full(
            (letters.shape[0], size + 1 + MARGIN), END, dtype=torch.uint8, device=letters.device
        )
        moved.scatter_(1, home * solid, letters)
        moved = moved[:, 1:].contiguous()
        return Text(moved, torch.zeros_like(start), home[:, -1].int(), none)

    def _join(self, rows: Tensor, inside: Tensor) -> Text:
        """The bytes of tokens put together. rows: [B, S] as from `rows_of`; inside: [B, S] bool, which tokens."""
        size, unit = rows.shape[1], self.table.shape[1]
        counts = self.length.index_select(0, rows.view(-1)).view(rows.shape) * inside
        after = counts.cumsum(1, dtype=torch.int32)
        total = length = after[:, -1]
        width = widest(total, min(size * unit, LONGEST))
        begins = after - counts
        if size * unit > LONGEST:
            length = total.clamp(max=width)
            begins = begins - (total - length).unsqueeze(1)
        # Byte c of the text is byte rows * unit - begins + c of the table, for the last token that begins at c or
        # before it. So each token adds what that number changes by, and a running sum does the rest.
        origin = rows * unit - begins
        change = torch.cat([origin[:, :1], origin[:, 1:] - origin[:, :-1]], 1)
        index = torch.zeros(rows.shape[0], width + 1, dtype=torch.int32, device=rows.device)
        index.scatter_add_(1, begins.clamp(0, width).long(), change)
        column = torch.arange(width, dtype=torch.int32, device=rows.device)
        index = index[:, :width].cumsum(1, dtype=torch.int32) + column
        # Behind the text an index means nothing; the clamp keeps it inside the table.
        index = index.clamp(0, self.table.numel() - 1)
        letters = self.table.view(-1).index_select(0, index.view(-1)).view(index.shape)
        letters = letters | (bits(before(width, length)) - 1)
        data = torch.nn.functional.pad(letters, (0, MARGIN), value=END)
        return Text(data, torch.zeros_like(length), length, total > length)
