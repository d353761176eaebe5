"""What the ids of a whole batch say, with one look-up a token and few looks at the result. On the CPU.

flags = Flags.of(tokens, needles)
flags.first_end(start)               # [B]: the first end of sequence in each response
flags.last_digit(limit)              # [B]: the last token that may hold a digit
flags.candidates(start, stop)        # the tokens in which a marker may begin, with their flags
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from atrl_envs.verify import needles as N
from atrl_envs.verify.masks import Array, before, first_set, last_set
from atrl_envs.verify.needles import Needles
from atrl_envs.verify.peek import places

_CANDIDATE = (N.BEGIN | N.WHOLE) * (1 | 1 << N.GROUP_BITS)


@dataclass(frozen=True)
class Flags:
    """Flags of all tokens, [B, S] uint8."""

    bytes: Array

    @classmethod
    def of(cls, tokens: Tensor, needles: Needles) -> Flags:
        """Of tokens [B, S]."""
        ids = tokens.reshape(-1)
        if ids.dtype not in (torch.int64, torch.int32):
            ids = ids.int()
        try:
            flags = needles.known.index_select(0, ids)
        except IndexError:
            # Ids outside of the vocabulary are rare, and clamping is a walk through all tokens.
            flags = needles.flags.index_select(0, ids.clamp(-1, needles.known.shape[0]) + 1)
        return cls(numpy.asarray(flags).reshape(tokens.shape))

    def first_end(self, start: Array) -> Array:
        """The first end of sequence at `start` [B] or behind it, S where there is none: [B] int64."""
        closing = self.bytes >= N.CLOSING
        first = first_set(closing)
        if (first < start).any():  # the prompt has ends of its own
            first = first_set(closing & ~before(closing.shape[1], start))
        return first

    def last_digit(self, limit: Array) -> Array:
        """The last token before token `limit` [B] that may hold a digit, -1 where there is none: [B] int64."""
        return last_set((self.bytes & N.DIGIT != 0) & before(self.bytes.shape[1], limit))

    def candidates(self, start: Array, stop: Array) -> tuple[Array, Array, Array]:
        """Tokens in [start, stop) in which a marker may begin, [C] each: row, token, for which group of markers.

        The group: bit 0 for HIDING, bit GROUP_BITS for the style's own.
        """
        flat = self.bytes.reshape(-1)
        at = places(flat & _CANDIDATE != 0)
        row = at // self.bytes.shape[1]
        token = at - row * self.bytes.shape[1]
        # What follows the last token of a row does not matter: nothing of it is written out.
        own, following = flat.take(at), flat.take(at + 1, mode="clip")
        group = (own >> 2 | own & following >> 1) & (1 | 1 << N.GROUP_BITS)
        kept = places((group != 0) & (token >= start.take(row)) & (token < stop.take(row)))
        return row.take(kept), token.take(kept), group.take(kept)
