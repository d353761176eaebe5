"""Write out only the bytes around the last marker of each response: what `scan` found, as a text and a spot in it.

    part = near_marker(tokens, rows, marks, "boxed", spelling, count=32)     # Part(text, spot, sure, whole)
    answer, sure = seen(part, "boxed", limit=512)

`sure` says which answers are those that the whole response would give. Of the other responses more has to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.verify.compaction import squeeze_before
from atrl_envs.verify.extract import (
    SIGHT_BEFORE,
    SIGHT_BEHIND,
    STEPS_BEFORE,
    Answer,
    Spot,
    last_digit,
    see,
    window,
)
from atrl_envs.verify.peek import widest
from atrl_envs.verify.scan import Marks
from atrl_envs.verify.snippet import Snippet
from atrl_envs.verify.text import Spelling, Text

_RUN = 4  # a digit behind so many others is left out


@dataclass(frozen=True)
class Part:
    """A part of each response: its text, and where its answer is.

    sure: [B], nothing that is left out could change what is seen. whole: [B], the text reaches to the end of the
    judged part, so `spot.stop` is final. last: [B], which byte of the answer ends its last digit, for last_number.
    """

    text: Text
    spot: Spot
    sure: Tensor
    whole: Tensor
    last: Tensor | None = None


def near_marker(
    tokens: Tensor, rows: Tensor, marks: Marks, style: str, spelling: Spelling, count: int
) -> Part:
    """`count` tokens from the last marker on. tokens [B, S]; rows [R]: which of them; marks: of these."""
    unit = spelling.table.shape[1]
    found = marks.mark >= 0
    mark = marks.mark.clamp(min=0)
    if marks.snippets is not None and marks.snippets.begins.shape[1] == count:
        snippet = marks.snippets.of(marks.which)
    else:
        snippet = Snippet.write(tokens, rows, mark // unit, count, marks.stop, spelling)
    begin = snippet.byte(mark)[0] + 1
    stop, whole = snippet.byte(marks.limit)
    sure, braced = ~marks.unsure, torch.zeros_like(found)
    if style == "boxed":
        letters = snippet.text.data.gather(1, torch.stack([begin, begin + 1], 1))
        blank = letters[:, 0] == 32
        braced = letters.gather(1, blank.long().unsqueeze(1)).squeeze(1) == 123
        # A marker with neither a brace nor a blank behind it is none, and an earlier one may count.
        sure = sure & ((braced | blank) & (whole | (begin + 1 < stop)) | ~found)
        begin = begin + blank.long() + braced.long()
    return _part(snippet.text, Spot(begin, stop, found, torch.zeros_like(found), braced), sure, whole)


def near_digit(
    tokens: Tensor, rows: Tensor, marks: Marks, spelling: Spelling, before: int, sight: int
) -> Part:
    """The last digit with `before` tokens before it, of which `sight` bytes are seen, and some behind it."""
    unit = spelling.table.shape[1]
    found = marks.mark >= 0
    first = torch.maximum(marks.start, marks.mark - before)
    count = before + min(before // 3, SIGHT_BEHIND) + 2
    snippet = Snippet.write(tokens, rows, first, count, marks.stop, spelling)
    stop, whole = snippet.byte(marks.limit)
    thought = marks.begin - 1  # the last byte of `</think>`, if there is one
    in_sight = (marks.begin > marks.start * unit) & (thought // unit >= first)
    begin = (snippet.byte(thought.clamp(min=0))[0] + 1) * in_sight
    begun = in_sight | (first == marks.start)
    last = last_digit(snippet.text.data, begin, stop)
    left, right = last - sight + 1, last + SIGHT_BEHIND + 1
    seen = (last >= 0) & (begun | (left > 0)) & (whole | (right <= snippet.text.stop))
    left = torch.maximum(begin, left)
    spot = Spot(left, torch.minimum(stop, right), found, torch.zeros_like(found), (left > begin) | ~begun)
    return _part(snippet.text, spot, ~marks.unsure & (seen | ~found), whole, (last - left).int())


def near_start(
    tokens: Tensor, rows: Tensor, span: tuple[Tensor, Tensor | None], spelling: Spelling, count: int
) -> Part:
    """The first `count` tokens. tokens: [B, S]; rows [R]: which of them; span: start and end [B] of all."""
    size = tokens.shape[1]
    start = span[0][rows].long().clamp(0, size)
    stop = start.new_full(start.shape, size) if span[1] is None else span[1][rows].long().clamp(max=size)
    stop = torch.maximum(start, stop)
    index = start.unsqueeze(1) + torch.arange(count)
    ids = tokens.reshape(-1)[index.clamp(max=size - 1) + (rows * size).unsqueeze(1)]
    inside = index < stop.unsqueeze(1)
    closed = ((ids == spelling.eos_id) & inside).cumsum(1) > 0
    text = spelling.join(spelling.rows_of(ids), inside & ~closed).text
    whole = closed[:, -1] | (stop <= start + count)
    yes, no = torch.ones_like(whole), torch.zeros_like(whole)
    return _part(text, Spot(text.first, text.stop, yes, no, no), yes, whole)


def seen(part: Part, style: str, limit: int) -> tuple[Answer, Tensor]:
    """The answers in these parts, and for which rows they are surely those of the whole responses: [R]."""
    spot = part.spot
    if part.last is not None:
        width = max(_RUN, widest(spot.stop - spot.begin, SIGHT_BEFORE + SIGHT_BEHIND))
        letters, extent = window(part.text, spot, style, width)
        last = part.last * spot.found
        squeezed = squeeze_before(letters, last, STEPS_BEFORE, SIGHT_BEHIND)
        # Whether the first bytes in sight belong to a long run is not known, so they must not be among what is read.
        enough = ~spot.braced | (last >= SIGHT_BEFORE - 1) | (squeezed[1][:, _RUN - 1] < 0) | ~spot.found
        return Answer(letters, extent, spot, part.text.lost, squeezed), part.sure & enough
    answer = see(style, part.text, spot, limit)
    size = spot.stop - spot.begin
    ended = (answer.extent < size) & (answer.extent <= answer.letters.shape[1])
    settled = part.whole | (answer.extent > limit)
    if style == "boxed":
        settled = settled & ~spot.braced  # braces that do not close in sight may be those of no box
    return answer, part.sure & (settled | ended | ~spot.found)


def _part(text: Text, spot: Spot, sure: Tensor, whole: Tensor, last: Tensor | None = None) -> Part:
    begin, stop = (spot.begin * spot.found).int(), (spot.stop * spot.found).int()
    return Part(text, Spot(begin, stop, spot.found, spot.doubt, spot.braced), sure, whole, last)
