"""Tokens to bytes on the device: the response of each row as one byte string, however it was tokenised.

    spelling = Spelling.of(vocab)
    text = spelling.text(tokens, start, end)     # Text: data [B, L] uint8, first, stop, lost [B]

A vocabulary of single characters needs one look-up a token. Any other needs a ragged concatenation: where each
token begins is a running sum, which token owns each byte is another, and one look-up fetches the byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atrl_envs.verify.automaton import END, SKIP, STRANGE
from atrl_envs.verify.peek import surely_none, widest

LONGEST = 1 << 17  # bytes of a response that are looked at: its last ones
MARGIN = 16  # END bytes behind every row, more than any marker has bytes
_STOP = 0xFC  # the end-of-sequence token in a table of single bytes


@dataclass(frozen=True)
class Text:
    """Responses as bytes: data [B, L] uint8 holds each in [first, stop), END elsewhere; the rest is [B].

    lost: the beginning of the response was left out, because it has more than LONGEST bytes.
    """

    data: Tensor
    first: Tensor
    stop: Tensor
    lost: Tensor


@dataclass(frozen=True)
class Spelling:
    """Bytes of every token: table [V + 2, max_bytes] uint8 and length [V + 2] int32; row i + 1 is token i.

    The first and the last row stand for ids outside the vocabulary: one byte that is no text. single: [V + 2],
    the byte where a token has one, SKIP where it has none; the end-of-sequence token has a byte of its own there.
    """

    table: Tensor
    length: Tensor
    single: Tensor
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

    def text(self, tokens: Tensor, start: Tensor, end: Tensor | None, keep_gaps: bool = False) -> Text:
        """The responses: tokens [B, S] from `start` [B] to `end` [B] or the first end of sequence, as bytes.

        keep_gaps: a token without content may stay as a SKIP byte, which saves moving the bytes behind it.
        """
        size = tokens.shape[1]
        place = torch.arange(size, dtype=torch.int32, device=tokens.device)
        rows = tokens.int().clamp(-1, self.table.shape[0] - 2) + 1
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
        none = torch.zeros_like(inside[:, 0])
        if not self.bytewise:
            return self._join(rows, inside)
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
        """Ragged concatenation of the bytes of the tokens inside each response."""
        size, widest_token = rows.shape[1], self.table.shape[1]
        count = self.length.index_select(0, rows.view(-1)).view(rows.shape) * inside
        after = count.cumsum(1, dtype=torch.int32)
        total = after[:, -1]
        width = widest(total, min(size * widest_token, LONGEST))
        dropped = (total - width).clamp(min=0)
        offset = after - count - dropped.unsqueeze(1)  # where each token begins
        begins = torch.zeros(rows.shape[0], width + 1, dtype=torch.int32, device=rows.device)
        begins.scatter_add_(1, offset.clamp(0, width).long(), torch.ones_like(offset))
        # The token that owns a byte is the last that begins at or before it.
        owner = begins[:, :width].cumsum(1) - 1
        column = torch.arange(width, dtype=torch.int32, device=rows.device)
        # An index outside the text means nothing; the clamp keeps it inside the table.
        index = ((rows * widest_token - offset).gather(1, owner) + column).clamp(0, self.table.numel() - 1)
        letters = self.table.view(-1).index_select(0, index.view(-1)).view(index.shape)
        length = total - dropped
        letters = letters | ((column < length.unsqueeze(1)).view(torch.uint8) - 1)
        data = torch.nn.functional.pad(letters, (0, MARGIN), value=END)
        return Text(data, torch.zeros_like(length), length, dropped > 0)
