"""A few tokens of each of some responses, written out, and which byte of it stands where in the response.

    snippet = Snippet.write(tokens, rows, first, count=24, stop=stop, spelling=spelling)
    byte, seen = snippet.byte(place)         # [R]: where in the snippet, and whether that is in sight

A place in a response is one number: index of the token times the most bytes a token has, plus the byte within it.
For the CPU, where the tokens to be written out were chosen by looking: arrays, not tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from atrl_envs.verify.automaton import END
from atrl_envs.verify.masks import Array, before, pick
from atrl_envs.verify.peek import places, widest
from atrl_envs.verify.text import MARGIN, Spelling, Text


@dataclass(frozen=True)
class Snippet:
    """text: of R snippets. begins: [R, count], where in it each token begins. first: [R] int64, the token each snippet
    begins with. lead: [R], the bytes of that. gaps: [R], some token of the response has no bytes. unit: the most bytes
    a token has."""

    text: Text
    begins: Array
    first: Array
    lead: Array
    gaps: Array
    unit: int

    @classmethod
    def write(
        cls, tokens: Array, rows: Array, first: Array, count: int, stop: Array, spelling: Spelling
    ) -> Snippet:
        """tokens [B, S]; rows, first, stop [R]: of response `rows[i]` the tokens from `first[i]` up to `stop[i]`.

        `count` of them, or fewer where all responses end sooner: one behind the longest span.
        """
        size, unit = tokens.shape[1], spelling.table.shape[1]
        count = min(count, widest(stop - first, size) + 1)
        index = first[:, None] + numpy.arange(count)
        inside = index < stop[:, None]
        ids = tokens.reshape(-1).take(index + (rows * size)[:, None], mode="clip").astype(numpy.int64)
        ids = numpy.minimum(numpy.maximum(ids, -1), len(spelling.length) - 2) + 1
        counts = spelling.length.take(ids) * inside
        after = counts.cumsum(1)
        begins, total = after - counts, after[:, -1]
        width = widest(total, count * unit) + MARGIN
        data = numpy.full((len(rows), width), END, dtype=numpy.uint8)
        # Where the bytes of all tokens go, one behind the other, and where in the table each of them stands.
        home = places(before(width, total))
        origin = ids * unit - begins - (numpy.arange(len(rows)) * width)[:, None]
        data.reshape(-1)[home] = spelling.table.reshape(-1).take(
            origin.reshape(-1).repeat(counts.reshape(-1)) + home
        )
        text = Text(data, numpy.zeros_like(total), total, numpy.zeros(len(rows), dtype=bool))
        return cls(text, begins, first, counts[:, 0], (inside > counts).any(1), unit)

    def of(self, which: Array) -> Snippet:
        """Some of the snippets."""
        text = self.text
        some = Text(text.data.take(which, 0), text.first[which], text.stop[which], text.lost[which])
        lead, gaps = self.lead[which], self.gaps[which]
        return Snippet(some, self.begins.take(which, 0), self.first[which], lead, gaps, self.unit)

    def place(self, which: Array, byte: Array) -> Array:
        """The place in its response of some bytes [H] of the snippets `which` [H]."""
        begins = self.begins[which]
        token = (begins <= byte[:, None]).sum(1) - 1
        return (self.first[which] + token) * self.unit + byte - pick(begins, token)

    def byte(self, place: Array) -> tuple[Array, Array]:
        """Which byte of its snippet stands at a place [R] (its size if that is behind it), and is it in sight?"""
        count = self.begins.shape[1]
        token, offset = place // self.unit - self.first, place % self.unit
        seen = token < count
        byte = pick(self.begins, numpy.minimum(numpy.maximum(token, 0), count - 1)) + offset
        return numpy.where(seen, byte, self.text.stop), seen
