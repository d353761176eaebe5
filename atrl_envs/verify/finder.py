"""The answer of every response, found the short way where there is one, and judged by whoever asks.

    finder = Finder.of(vocab, "boxed")
    verdicts = finder.judge(tokens, start, end, lambda answer, rows: ...)        # [B]

On an accelerator every response is written out as bytes and searched as a whole (`extract.py`). On the CPU one look at
the ids finds the end and the last marker (`scan.py`), and only the bytes around it are written out (`nearby.py`);
a response whose answer that does not show for certain is written out further, at last as a whole. Both ways give the
same answers. `judge` is asked about each row once, in parts of the batch: `rows` is None for all of it, or [R] indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
from torch import Tensor

from atrl_envs.verify import nearby
from atrl_envs.verify.extract import SIGHT_BEFORE, STEPS_BEFORE, WINDOW, Answer, locate, see
from atrl_envs.verify.masks import Array
from atrl_envs.verify.needles import LONGEST_MARKER, MARKERS, Needles
from atrl_envs.verify.peek import as_arrays, may_look, places
from atrl_envs.verify.placement import beside, each_tensor
from atrl_envs.verify.scan import scan
from atrl_envs.verify.text import LONGEST, Spelling

CELLS = 1 << 24  # bytes of texts that are written out in one go
ROWS = 512  # responses that are looked at together on the CPU; more where they are short
SHORT = 32  # tokens of a batch that are not worth a search: so many are written out sooner

Found = tuple[Array | None, Answer]
Judge = Callable[[Answer, Array | None], Array]


@dataclass(frozen=True)
class Finder:
    """Finds answers of one style in the tokens of one vocabulary."""

    spelling: Spelling
    arrays: Spelling
    needles: Needles | None
    style: str
    limit: int

    @classmethod
    def of(cls, vocab: Any, style: str, limit: int = WINDOW) -> Finder:
        """On the CPU. vocab: anything with `byte_table` (see `Vocab`) and `eos_id`; limit: bytes of an answer."""
        spelling = Spelling.of(vocab)
        needles = Needles.of(spelling, style) if style in MARKERS else None
        return cls(spelling, as_arrays(spelling), needles, style, limit)

    def to(self, device: torch.device | str) -> Finder:
        """With its tables on `device`. Those of the short way stay on the CPU, where alone it is taken."""
        return replace(self, spelling=each_tensor(self.spelling, lambda tensor: tensor.to(device)))

    def judge(
        self, tokens: Tensor, start: Tensor, end: Tensor | None, judge: Judge, arrays: bool = False
    ) -> Tensor:
        """What `judge(answer, rows)` says of each response, [B]: tokens [B, S], start [B], end [B] or None.

        arrays: on the CPU, ask about NumPy arrays instead of tensors.
        Raises ValueError for other shapes.
        """
        if tokens.dim() != 2 or start.shape != tokens.shape[:1]:
            raise ValueError(
                f"want tokens [B, S] and start [B], got {list(tokens.shape)} and {list(start.shape)}; "
                "flatten trailing dimensions first"
            )
        if tokens.numel() == 0:
            tokens = torch.full((tokens.shape[0], 1), self.spelling.eos_id, device=tokens.device)
        if not may_look(tokens):
            spelling = beside(self.spelling, tokens)
            return _gather(self._as_a_whole(spelling, tokens, start, end), judge, tokens.shape[0])
        change = numpy.asarray if arrays else torch.as_tensor
        verdicts = numpy.zeros(tokens.shape[0], dtype=numpy.int8)
        with torch.inference_mode():
            for rows, answer in self._ways(tokens, start, end):
                part = judge(answer.each(change), None if rows is None else change(rows))
                verdicts[slice(None) if rows is None else rows] = part
        return torch.from_numpy(verdicts)

    def _ways(self, tokens: Tensor, start: Tensor, end: Tensor | None) -> Iterable[Found]:
        """On the CPU: every response as a whole where they are short, else no more of each than it takes."""
        if tokens.shape[1] <= SHORT:
            return self._as_a_whole(beside(self.spelling, tokens), tokens, start, end)
        begin, stop = (None if place is None else numpy.asarray(place.long()) for place in (start, end))
        return self._short_ways(tokens, begin, stop)

    def _as_a_whole(
        self,
        spelling: Spelling,
        tokens: Tensor,
        start: Any,
        end: Tensor | None,
        rows: Tensor | None = None,
    ) -> list[Found]:
        """Every response (or those of `rows` [R]) as bytes; in parts where a batch would need too much memory."""
        count, size = tokens.shape[0] if rows is None else rows.shape[0], tokens.shape[1]
        each = max(1, CELLS // min(size * spelling.table.shape[1], LONGEST))
        if rows is None and each < count:
            rows = torch.arange(count, device=tokens.device)
        answers: list[Found] = []
        for some in [rows] if rows is None else rows.split(each):
            picked = tokens, start, end
            if some is not None:
                picked = tokens[some], start[some], None if end is None else end[some]
            text = spelling.text(*picked)
            answers.append((some, see(self.style, text, locate(self.style, text), self.limit)))
        return answers

    def _short_ways(self, tokens: Tensor, start: Array, end: Array | None) -> Iterator[Found]:
        """`_short_way` for some responses at a time: what fits the caches of a core takes half the time."""
        count = tokens.shape[0]
        each = max(ROWS, ROWS * ROWS // max(tokens.shape[1], self._reaches()[0][0]))
        if count <= each:
            yield from self._short_way(tokens, start, end)
            return
        for first in range(0, count, each):
            some = slice(first, first + each)
            parts = self._short_way(tokens[some], start[some], None if end is None else end[some])
            for rows, answer in parts:
                rows = numpy.arange(min(each, count - first)) if rows is None else rows
                yield rows + first, answer

    def _short_way(self, tokens: Tensor, start: Array, end: Array | None) -> Iterator[Found]:
        """What is seen of each response once as much of it is written out as it takes; on the CPU."""
        spelling, ids, rows, marks = self.arrays, numpy.asarray(tokens), numpy.arange(tokens.shape[0]), None
        if self.needles is not None:
            marks = scan(tokens, start, end, spelling, self.needles, self._reaches()[0][0])
        for reach, sight in self._reaches():
            if marks is None:
                part = nearby.near_start(ids, rows, (start, end), spelling, reach)
            elif self.style == "last_number":
                part = nearby.near_digit(ids, rows, marks, spelling, reach, sight)
            else:
                part = nearby.near_marker(ids, rows, marks, self.style, spelling, reach)
            answer, sure = nearby.seen(part, self.style, self.limit)
            if sure.all():
                yield (rows if len(rows) < tokens.shape[0] else None), answer
                return
            settled, left = places(sure), places(~sure)
            if len(settled):
                yield rows[settled], answer.of(settled)
            rows, marks = rows[left], None if marks is None else marks.of(left)
        begin, stop = (None if place is None else torch.from_numpy(place) for place in (start, end))
        for some, answer in self._as_a_whole(
            beside(self.spelling, tokens), tokens, begin, stop, torch.from_numpy(rows)
        ):
            yield numpy.asarray(some), answer

    def _reaches(self) -> tuple[tuple[int, int], ...]:
        """Tokens that are written out at first, and those where these do not suffice; with the bytes that are seen."""
        single = self.spelling.bytewise
        if self.style == "plain":
            return ((self.limit + 1, self.limit),)
        if self.style == "last_number":
            near = 2 * STEPS_BEFORE if single else STEPS_BEFORE * 3 // 4
            return ((near, 2 * STEPS_BEFORE - 1), (SIGHT_BEFORE, SIGHT_BEFORE))
        return ((48 if single else 24, self.limit), (self.limit + LONGEST_MARKER, self.limit))


def _gather(answers: Iterable[Found], judge: Judge, count: int) -> Tensor:
    """What `judge` says of every part, in one tensor [count]."""
    verdicts = None
    for rows, answer in answers:
        part = judge(answer, rows)
        if rows is None:
            return part
        verdicts = (part.new_zeros(count) if verdicts is None else verdicts).index_copy(0, rows, part)
    assert verdicts is not None
    return verdicts
