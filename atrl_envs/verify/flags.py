"""What the ids of a whole batch say, with one look-up a token and few looks at the result. On the CPU.

    flags = Flags.of(tokens, needles)
    flags.first_end(start)               # [B]: the first end of sequence in each response
    flags.last_digit(limit)              # [B]: the last token that may hold a digit
    flags.candidates(start, stop)        # the tokens in which a marker may begin, with their flags

Comparing costs more than anything else here, so many flags are compared eight at a time, as one int64. Of few every
one is compared: that takes more work, but fewer operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.verify import needles as N
from atrl_envs.verify.needles import Needles
from atrl_envs.verify.peek import places

FEW = 1 << 15
_CANDIDATE = (N.BEGIN | N.WHOLE) * (1 | 1 << N.GROUP_BITS)


@dataclass(frozen=True)
class Flags:
    """Flags of all tokens, [B, W] uint8: `size` tokens a row and at least one byte without flags behind them."""

    bytes: Tensor
    size: int

    @classmethod
    def of(cls, tokens: Tensor, needles: Needles) -> Flags:
        """Of tokens [B, S]."""
        rows, size = tokens.shape
        ids = tokens.reshape(-1)
        if ids.dtype not in (torch.int64, torch.int32):
            ids = ids.int()
        try:
            flags = needles.known.index_select(0, ids)
        except IndexError:
            # Ids outside of the vocabulary are rare, and clamping is a walk through all tokens.
            flags = needles.flags.index_select(0, ids.clamp(-1, needles.known.shape[0]) + 1)
        width = (size // 64 + 1) * 64
        return cls(torch.nn.functional.pad(flags.view(rows, size), (0, width - size)), size)

    @property
    def few(self) -> bool:
        return self.bytes.numel() <= FEW

    def first_end(self, start: Tensor) -> Tensor:
        """The first end of sequence at `start` or behind it, `size` where there is none: [B] int64."""
        width = self.bytes.shape[1]
        if self.few:
            place = torch.arange(width, dtype=torch.int32)
            hit = (self.bytes // N.CLOSING) * (place >= start.unsqueeze(1))
            return (width - (hit * (width - place)).amax(1)).clamp(max=self.size).long()
        eights, own = width // 8, start // 8
        place = torch.arange(eights, dtype=torch.int32)
        hit = ((self.bytes.view(torch.int64) & _each(N.CLOSING)) != 0) & (place > own.unsqueeze(1))
        later = eights - (hit.view(torch.uint8) * (eights - place)).amax(1).long()
        first = torch.minimum(self._first_in(own, start), self._first_in(later.clamp(max=eights - 1), start))
        return first.clamp(max=self.size)

    def _first_in(self, eight: Tensor, start: Tensor) -> Tensor:
        """The first end of sequence at `start` or behind it within one eight of each row."""
        index, flags = self._eight(eight)
        return torch.where((flags >= N.CLOSING) & (index >= start.unsqueeze(1)), index, self.size).amin(1)

    def last_digit(self, limit: Tensor) -> Tensor:
        """The last token before token `limit` that may hold a digit, -1 where there is none: [B] int64."""
        width = self.bytes.shape[1]
        if self.few:
            place = torch.arange(width, dtype=torch.int32)
            hit = (self.bytes & N.DIGIT) // N.DIGIT * (place < limit.unsqueeze(1))
            return (hit * (place + 1)).amax(1).long() - 1
        eights, own = width // 8, limit // 8
        place = torch.arange(eights, dtype=torch.int32)
        hit = ((self.bytes.view(torch.int64) & _each(N.DIGIT)) != 0) & (place < own.unsqueeze(1))
        earlier = (hit.view(torch.uint8) * (place + 1)).amax(1).long() - 1
        return torch.maximum(self._last_in(own, limit), self._last_in(earlier.clamp(min=0), limit))

    def _last_in(self, eight: Tensor, limit: Tensor) -> Tensor:
        index, flags = self._eight(eight)
        return torch.where(((flags & N.DIGIT) != 0) & (index < limit.unsqueeze(1)), index, -1).amax(1)

    def _eight(self, eight: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and flags of one eight of each row, [B, 8] each."""
        index = eight.unsqueeze(1) * 8 + torch.arange(8)
        return index, self.bytes.gather(1, index)

    def candidates(self, start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens in [start, stop) in which a marker may begin, [C] each: row, token, for which group of markers.

        The group: bit 0 for HIDING, bit GROUP_BITS for the style's own.
        """
        flat = self.bytes.view(-1)
        at = places(flat & _CANDIDATE) if self.few else self._candidates()
        row = at // self.bytes.shape[1]
        token = at - row * self.bytes.shape[1]
        own, following = flat[at], flat[at + 1]
        group = (own >> 2 | own & following >> 1) & (1 | 1 << N.GROUP_BITS)
        kept = places((group != 0) & (token >= start[row]) & (token < stop[row]))
        return row[kept], token[kept], group[kept]

    def _candidates(self) -> Tensor:
        """Where candidates are in the flat flags."""
        hit = ((self.bytes.view(torch.int64) & _each(_CANDIDATE)) != 0).view(-1)
        at = places(hit.view(torch.int64))
        at = _within(at, hit.view(-1, 8).index_select(0, at))
        return _within(at, self.bytes.view(-1, 8).index_select(0, at) & _CANDIDATE)


def _within(eights: Tensor, flags: Tensor) -> Tensor:
    """Places of what is set in flags [E, 8], where row i holds those of eight number `eights[i]`."""
    at = places(flags.view(-1))
    return eights[at // 8] * 8 + at % 8


def _each(bits: int) -> int:
    """The same bits in each of the eight bytes of an int64."""
    word = bits * 0x0101010101010101
    return word - (1 << 64) if word >= 1 << 63 else word
