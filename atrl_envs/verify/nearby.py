"""Write out only the bytes around the last marker of each response: what `scan` found, as a text and a spot in it.

    part = near_marker(tokens, rows, marks, "boxed", spelling, count=32)     # Part(text, spot, sure, whole)
    answer, sure = seen(part, "boxed", limit=512)

`sure` says which answers are those that the whole response would give. Of the other responses more has to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy

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
from atrl_envs.verify.masks import Array, at_least, first_set, pick, upright
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
    sure: Array
    whole: Array
    last: Array | None = None


def near_marker(tokens: Array, rows: Array, marks: Marks, style: str, spelling: Spelling, count: int) -> Part:
    """`count` tokens from the last marker on. tokens [B, S]; rows [R]: which of them; marks: of these."""
    found, none = marks.first >= 0, numpy.zeros_like(marks.unsure)
    if marks.snippets is not None:
        snippet = marks.snippets.of(marks.which)
    else:
        snippet = Snippet.write(tokens, rows, at_least(marks.first, 0), count, marks.stop, spelling)
    begin = marks.mark + 1
    stop, whole = snippet.byte(marks.limit)
    sure, braced = ~marks.unsure, none
    if style == "boxed":
        blank = pick(snippet.text.data, begin) == 32
        braced = pick(snippet.text.data, begin + blank) == 123
        # A marker with neither a brace nor a blank behind it is none, and an earlier one may count.
        sure = sure & ((braced | blank) & (whole | (begin + 1 < stop)) | ~found)
        begin = begin + blank + braced
    return Part(snippet.text, Spot(begin * found, stop * found, found, none, braced), sure, whole)


def near_digit(tokens: Array, rows: Array, marks: Marks, spelling: Spelling, before: int, sight: int) -> Part:
    """The last digit with `before` tokens before it, of which `sight` bytes are seen, and some behind it."""
    unit = spelling.table.shape[1]
    found, none = marks.first >= 0, numpy.zeros_like(marks.unsure)
    first = numpy.maximum(marks.start, marks.first - before)
    count = before + min(before // 3, SIGHT_BEHIND) + 2
    snippet = Snippet.write(tokens, rows, first, count, marks.stop, spelling)
    stop, whole = snippet.byte(marks.limit)
    thought = marks.begin - 1  # the last byte of `</think>`, if there is one
    in_sight = (marks.begin > marks.start * unit) & (thought // unit >= first)
    begin = (snippet.byte(at_least(thought, 0))[0] + 1) * in_sight
    begun = in_sight | (first == marks.start)
    last = last_digit(snippet.text.data, begin, stop)
    left, right = last - sight + 1, last + SIGHT_BEHIND + 1
    seen = (last >= 0) & (begun | (left > 0)) & (whole | (right <= snippet.text.stop))
    left = numpy.maximum(begin, left)
    braced = (left > begin) | ~begun
    spot = Spot(left * found, numpy.minimum(stop, right) * found, found, none, braced)
    return Part(snippet.text, spot, ~marks.unsure & (seen | ~found), whole, last - left)


def near_start(
    tokens: Array, rows: Array, span: tuple[Array, Array | None], spelling: Spelling, count: int
) -> Part:
    """The first `count` tokens. tokens: [B, S]; rows [R]: which of them; span: start and end [B] of all."""
    size = tokens.shape[1]
    start = span[0][rows].clip(0, size)
    stop = numpy.full(len(rows), size) if span[1] is None else numpy.minimum(span[1][rows], size)
    stop = numpy.maximum(start, stop)
    width = widest(stop - start, count)
    index = start[:, None] + numpy.arange(width)
    ids = tokens.reshape(-1).take(index + (rows * size)[:, None], mode="clip")
    closed = first_set(ids == spelling.eos_id)
    whole = (closed < width) | (stop <= start + count)
    stop = numpy.minimum(stop, start + closed)
    text = Snippet.write(tokens, rows, start, count, stop, spelling).text
    yes, none = numpy.ones_like(whole), numpy.zeros_like(whole)
    return Part(text, Spot(text.first, text.stop, yes, none, none), yes, whole)


def seen(part: Part, style: str, limit: int) -> tuple[Answer, Array]:
    """The answers in these parts, and for which rows they are surely those of the whole responses: [R]."""
    spot = part.spot
    if part.last is not None:
        width = max(_RUN, widest(spot.stop - spot.begin, SIGHT_BEFORE + SIGHT_BEHIND))
        letters, extent = window(part.text, spot, style, width)
        last = part.last * spot.found
        squeezed = squeeze_before(upright(letters), last, STEPS_BEFORE, SIGHT_BEHIND)
        # Whether the first bytes in sight belong to a long run is not known, so they must not be among what is read.
        enough = ~spot.braced | (last >= SIGHT_BEFORE - 1) | (squeezed[1][_RUN - 1] < 0) | ~spot.found
        return Answer(letters, extent, spot, part.text.lost, squeezed), part.sure & enough
    answer = see(style, part.text, spot, limit)
    ended = (answer.extent < spot.stop - spot.begin) & (answer.extent <= answer.letters.shape[1])
    settled = part.whole | (answer.extent > limit)
    if style == "boxed":
        settled = settled & ~spot.braced  # braces that do not close in sight may be those of no box
    return answer, part.sure & (settled | ended | ~spot.found)
