"""Where a batch of responses ends and where its markers are, from the ids alone. On the CPU, where one may look.

    marks = scan(tokens, start, end, spelling, needles, count=24)
    marks.limit, marks.first, marks.mark     # [B]: where the judged part ends; the last marker in it

One look-up a token finds the end of the text and the few tokens in which a marker may begin; only those are written
out. Places in a response are those of `Snippet`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy
from torch import Tensor

from atrl_envs.verify import needles as N
from atrl_envs.verify.flags import Flags
from atrl_envs.verify.masks import Array, before
from atrl_envs.verify.needles import Needles
from atrl_envs.verify.peek import places, widest
from atrl_envs.verify.snippet import Snippet
from atrl_envs.verify.text import Spelling

MOST = 32  # tokens of a response in which a marker may begin; one that has more is read as a whole


@dataclass(frozen=True)
class Marks:
    """What is known of each response, all [B]; -1 for none.

    start, stop: its tokens. begin: the first place that is judged, behind `</think>`. limit: where the judged part
    ends (answer_tag: the answer). first: the token in which the marker begins; mark: the marker's last byte, from the
    first byte of that token on. last_number: `first` is the last token that may hold a digit. unsure: bool, the
    markers have to be looked for in the text itself. snippets: some tokens from each marker on, if there are any;
    which: the one of this response.
    """

    start: Array
    stop: Array
    begin: Array
    limit: Array
    first: Array
    mark: Array
    unsure: Array
    which: Array
    snippets: Snippet | None = None

    def of(self, rows: Array) -> Marks:
        """Some of the responses, of which more is to be written out."""
        names = ("start", "stop", "begin", "limit", "first", "mark", "unsure", "which")
        return Marks(*(getattr(self, name)[rows] for name in names))


@dataclass(frozen=True)
class _Hits:
    """Markers in order, [H] each: in which response and in which snippet, the place of their first byte, and which
    byte of the snippet their last one is."""

    row: Array
    which: Array
    first: Array
    final: Array

    def where(self, keep: Array) -> _Hits:
        return _Hits(self.row[keep], self.which[keep], self.first[keep], self.final[keep])


def scan(
    tokens: Tensor, start: Array, end: Array | None, spelling: Spelling, needles: Needles, count: int
) -> Marks:
    """Ends and markers of responses: tokens [B, S]; start [B], end [B] as for `MathVerifier`, as arrays of int64.

    spelling: as arrays. count: tokens of a snippet, at least as many as a marker has bytes.
    """
    rows, size = tokens.shape
    unit = spelling.table.shape[1]
    flags = Flags.of(tokens, needles)
    start = start.clip(0, size)
    stop = flags.first_end(start)
    stop = numpy.maximum(start, stop if end is None else numpy.minimum(stop, end))
    none = numpy.full(rows, -1)
    marks = Marks(start, stop, start * unit, stop * unit, none, none, numpy.zeros(rows, dtype=bool), none)
    search = _Search(numpy.asarray(tokens), stop, spelling, marks.unsure, flags.candidates(start, stop))
    marks = _hidden(marks, search)
    if not needles.markers:
        last = flags.last_digit((marks.limit + unit - 1) // unit)
        return replace(marks, first=numpy.where((last + 1) * unit > marks.begin, last, -1))
    # No marker reaches into another one, so where it begins is enough to know.
    found = {
        marker: hits.where((hits.first >= marks.begin[hits.row]) & (hits.first < marks.limit[hits.row]))
        for marker, hits in search.hits(1 << N.GROUP_BITS, needles.markers, count).items()
    }
    limit, snippets = marks.limit, search.snippets
    if N.ANSWER in needles.markers:
        limit = none.copy()
        if N.ANSWERED in found:
            closes = found.pop(N.ANSWERED)
            limit[closes.row] = closes.first
        found = {marker: hits.where(hits.first < limit[hits.row]) for marker, hits in found.items()}
    if snippets is None:
        return replace(marks, limit=limit)
    many = snippets.text.data.shape[1]
    last = none
    for hits in found.values():
        here = none.copy()
        here[hits.row] = hits.which * many + hits.final  # of several in a row, the last one stays
        last = numpy.maximum(last, here)
    which = last // many
    first, mark = numpy.where(last < 0, -1, snippets.first[which]), numpy.where(last < 0, -1, last % many)
    return replace(marks, limit=limit, first=first, mark=mark, which=which, snippets=snippets)


def _hidden(marks: Marks, search: _Search) -> Marks:
    """With what the thoughts leave of each response; those with a comment are `unsure`."""
    found = search.hits(1, N.HIDING, N.LONGEST_MARKER)
    begin, limit, snippets = marks.begin, marks.limit, search.snippets
    if snippets is None:
        return marks
    if N.THOUGHT in found:
        hits = found[N.THOUGHT]
        begin = begin.copy()
        begin[hits.row] = numpy.maximum(begin[hits.row], snippets.place(hits.which, hits.final) + 1)
    if N.THINK in found:
        hits = found[N.THINK]
        hits = hits.where(hits.first >= begin[hits.row])
        limit = limit.copy()
        limit[hits.row[::-1]] = hits.first[::-1]  # of several in a row, the first one stays
    if N.COMMENT in found:
        marks.unsure[found[N.COMMENT].row] = True
    return replace(marks, begin=begin, limit=limit)


class _Search:
    """Looks for markers where they may begin; `unsure` [B] is set for responses in which that is not enough.

    candidates: as from `Flags.candidates`. snippets: what was written out for the last search, if anything was.
    """

    def __init__(
        self, tokens: Array, stop: Array, spelling: Spelling, unsure: Array, candidates: tuple[Array, ...]
    ) -> None:
        self.tokens, self.stop, self.spelling, self.unsure = tokens, stop, spelling, unsure
        self.row, self.token, self.group = candidates
        self.snippets: Snippet | None = None

    def hits(self, bits: int, markers: tuple[bytes, ...], count: int) -> dict[bytes, _Hits]:
        """Where each of the markers is, by a snippet of `count` tokens from every candidate of its group on."""
        self.snippets = None
        kept = places(self.group & bits != 0)
        if kept.size > MOST:
            crowded = numpy.bincount(self.row[kept], minlength=len(self.stop)) > MOST
            self.unsure |= crowded
            kept = kept[~crowded[self.row[kept]]]
        if kept.size == 0:
            return {}
        rows = self.row[kept]
        snippets = Snippet.write(self.tokens, rows, self.token[kept], count, self.stop[rows], self.spelling)
        self.snippets = snippets
        if snippets.gaps.any():
            # A token without bytes may keep the end of a marker out of sight.
            self.unsure[rows[snippets.gaps]] = True
        return _matches(snippets, rows, markers)


def _matches(snippets: Snippet, rows: Array, markers: tuple[bytes, ...]) -> dict[bytes, _Hits]:
    """Where markers begin in the first token of a snippet; rows: the response it is of, [C]."""
    reach = widest(snippets.lead, snippets.unit)
    data = snippets.text.data
    early = before(reach, snippets.lead)
    # Eight bytes from each place on, as one number.
    words = numpy.ndarray((len(rows), reach), numpy.int64, data, 0, (data.shape[1], 1)).copy()
    found = {}
    for marker in markers:
        hits = (words & _as_word(b"\xff" * len(marker)) == _as_word(marker)) & early
        for place, byte in enumerate(marker[8:], start=8):
            hits &= data[:, place : place + reach] == byte
        at = places(hits)
        if at.size:
            which = at // reach
            offset = at - which * reach
            first = snippets.first[which] * snippets.unit + offset
            found[marker] = _Hits(rows[which], which, first, offset + (len(marker) - 1))
    return found


def _as_word(pattern: bytes) -> int:
    """The first eight bytes as the int64 that lies in memory so, zeros behind a shorter pattern."""
    return int.from_bytes(pattern[:8].ljust(8, b"\0"), sys.byteorder, signed=True)
