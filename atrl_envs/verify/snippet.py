"""A few tokens of each of some responses, written out, and which byte of it stands where in the response.

    snippet = Snippet.write(tokens, rows, first, count=24, stop=stop, spelling=spelling)
    byte, seen = snippet.byte(place)         # [R]: where in the snippet, and whether that is in sight

A place in a response is one number: index of the token times the most bytes a token has, plus the byte within it.
For the CPU, where the tokens to be written out were chosen by looking.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.verify.text import Spelling, Text


@dataclass(frozen=True)
class Snippet:
    """text: of R snippets. begins, counts: where in it each token begins and how many bytes it has; inside: which
    tokens belong to the response, [R, count] each. first: [R] int64, the token each snippet begins with. unit: the
    most bytes a token has."""

    text: Text
    begins: Tensor
    counts: Tensor
    inside: Tensor
    first: Tensor
    unit: int

    @classmethod
    def write(
        cls, tokens: Tensor, rows: Tensor, first: Tensor, count: int, stop: Tensor, spelling: Spelling
    ) -> Snippet:
        """tokens [B, S]; rows, first, stop [R]: of response `rows[i]` the tokens from `first[i]` up to `stop[i]`."""
        size = tokens.shape[1]
        index = first.unsqueeze(1) + torch.arange(count)
        inside = index < stop.unsqueeze(1)
        ids = tokens.reshape(-1)[index.clamp(max=size - 1) + (rows * size).unsqueeze(1)]
        joined = spelling.join(spelling.rows_of(ids), inside)
        return cls(joined.text, joined.begins, joined.counts, inside, first, spelling.table.shape[1])

    def of(self, which: Tensor) -> Snippet:
        """Some of the snippets."""
        text = self.text
        some = Text(text.data[which], text.first[which], text.stop[which], text.lost[which])
        begins, counts, inside = self.begins[which], self.counts[which], self.inside[which]
        return Snippet(some, begins, counts, inside, self.first[which], self.unit)

    def byte(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Which byte of its snippet stands at a place [R] (its size if that is behind it), and is it in sight?"""
        count = self.begins.shape[1]
        token = place // self.unit - self.first
        seen = token < count
        begins = self.begins.gather(1, token.clamp(0, count - 1).unsqueeze(1)).squeeze(1)
        return torch.where(seen, begins + place % self.unit, self.text.stop), seen
