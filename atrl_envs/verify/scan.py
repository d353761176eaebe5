"""Where a batch of responses ends and where its markers are, from the ids alone. On the CPU, where one may look.

    marks = scan(tokens, start, end, spelling, needles)
    marks.limit, marks.mark         # [B]: where the judged part ends; the last byte of the last marker in it

One look-up a token finds the end of the text and the few tokens in which a marker may begin; only those are written
out. Places in a response are those of `Snippet`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.verify import needles as N
from atrl_envs.verify.flags import Flags
from atrl_envs.verify.needles import Needles
from atrl_envs.verify.peek import places, surely_none, widest
from atrl_envs.verify.snippet import Snippet
from atrl_envs.verify.text import Spelling

MOST = 32  # tokens of a response in which a marker may begin; one that has more is read as a whole


@dataclass(frozen=True)
class Marks:
    """What is known of each response, all [B]; places are int64, -1 for none.

    start, stop: its tokens. begin: the first place that is judged, behind `</think>`. limit: where the judged part
    ends (answer_tag: the answer). mark: the last byte of the marker; last_number: the last token that may hold a
    digit. unsure: bool, the markers have to be looked for in the text itself. snippets: some tokens from each marker
    on, if there are any; which: the one of this response.
    """

    start: Tensor
    stop: Tensor
    begin: Tensor
    limit: Tensor
    mark: Tensor
    unsure: Tensor
    which: Tensor
    snippets: Snippet | None = None

    def of(self, rows: Tensor) -> Marks:
        """Some of the responses."""
        start, stop, begin, limit, mark, unsure, which = (
            field[rows]
            for field in (self.start, self.stop, self.begin, self.limit, self.mark, self.unsure, self.which)
        )
        return Marks(start, stop, begin, limit, mark, unsure, which, self.snippets)


@dataclass(frozen=True)
class _Hits:
    """Markers, [H] each: in which response and in which snippet, the places of their first and their last byte."""

    row: Tensor
    which: Tensor
    first: Tensor
    last: Tensor

    def where(self, keep: Tensor) -> _Hits:
        return _Hits(self.row[keep], self.which[keep], self.first[keep], self.last[keep])

    def highest(self, place: Tensor, rows: int) -> Tensor:
        """The largest of `place` [H] in each response, -1 where it has none: [B]."""
        return torch.full((rows,), -1).scatter_reduce_(0, self.row, place, "amax")


def scan(
    tokens: Tensor, start: Tensor, end: Tensor | None, spelling: Spelling, needles: Needles, count: int
) -> Marks:
    """Ends and markers of responses: tokens [B, S], start [B], end [B] as for `MathVerifier`.

    count: tokens of a snippet, at least as many as a marker has bytes.
    """
    rows, size = tokens.shape
    flags = Flags.of(tokens, needles)
    start = start.long().clamp(0, size)
    stop = flags.first_end(start)
    stop = torch.maximum(start, stop if end is None else torch.minimum(stop, end.long()))
    unit = spelling.table.shape[1]
    begin, limit, mark = start * unit, stop * unit, torch.full((rows,), -1)
    unsure = torch.zeros(rows, dtype=torch.bool)
    search = _Search(tokens, stop, spelling, unsure, flags.candidates(start, stop))
    hiding = search.hits(1, N.HIDING, N.LONGEST_MARKER)
    if N.THOUGHT in hiding:
        begin = torch.maximum(begin, hiding[N.THOUGHT].highest(hiding[N.THOUGHT].last, rows) + 1)
    if N.THINK in hiding:
        thinks = hiding[N.THINK].where(hiding[N.THINK].first >= begin[hiding[N.THINK].row])
        limit = limit.scatter_reduce(0, thinks.row, thinks.first, "amin")
    if N.COMMENT in hiding:
        unsure[hiding[N.COMMENT].row] = True
    if not needles.markers:
        mark = flags.last_digit((limit + unit - 1) // unit)
        mark = torch.where((mark + 1) * unit > begin, mark, -1)
        return Marks(start, stop, begin, limit, mark, unsure, mark)
    found = search.hits(1 << N.GROUP_BITS, needles.markers, count)
    inside = {
        marker: hits.where((hits.first >= begin[hits.row]) & (hits.last < limit[hits.row]))
        for marker, hits in found.items()
    }
    if N.ANSWER in needles.markers:
        closes, opens = inside.get(N.ANSWERED), inside.get(N.ANSWER)
        limit = mark if closes is None else closes.highest(closes.first, rows)
        inside = {} if opens is None else {N.ANSWER: opens.where(opens.last < limit[opens.row])}
    many = 1 if search.snippets is None else search.snippets.first.shape[0]
    for hits in inside.values():
        mark = torch.maximum(mark, hits.highest(hits.last * many + hits.which, rows))
    return Marks(start, stop, begin, limit, mark // many, unsure, mark % many, search.snippets)


class _Search:
    """Looks for markers where they may begin; `unsure` [B] is set for responses in which that is not enough.

    candidates: as from `Flags.candidates`. snippets: what was written out for the last search, if anything was.
    """

    def __init__(
        self, tokens: Tensor, stop: Tensor, spelling: Spelling, unsure: Tensor, candidates: tuple[Tensor, ...]
    ) -> None:
        self.tokens, self.stop, self.spelling, self.unsure = tokens, stop, spelling, unsure
        self.row, self.token, self.group = candidates
        self.snippets: Snippet | None = None

    def hits(self, bits: int, markers: tuple[bytes, ...], count: int) -> dict[bytes, _Hits]:
        """Where each of the markers is, by a snippet of `count` tokens from every candidate of its group on."""
        self.snippets = None
        kept = places(self.group & bits)
        if kept.numel() > MOST:
            crowded = torch.bincount(self.row[kept], minlength=self.stop.shape[0]) > MOST
            self.unsure.logical_or_(crowded)
            kept = kept[~crowded[self.row[kept]]]
        if kept.numel() == 0:
            return {}
        rows = self.row[kept]
        snippets = Snippet.write(self.tokens, rows, self.token[kept], count, self.stop[rows], self.spelling)
        self.snippets = snippets
        gaps = (snippets.counts == 0) & snippets.inside
        if not surely_none(gaps):
            # A token without bytes may keep the end of a marker out of sight.
            self.unsure[rows[gaps.any(1)]] = True
        return _matches(snippets, rows, markers)


def _matches(snippets: Snippet, rows: Tensor, markers: tuple[bytes, ...]) -> dict[bytes, _Hits]:
    """Where markers begin in the first token of a snippet; rows: the response it is of, [C]."""
    lead = snippets.counts[:, 0]
    reach = widest(lead, snippets.unit)
    data = snippets.text.data
    early = torch.arange(reach) < lead.unsqueeze(1)
    eights = data[:, : reach + 7].unfold(1, 8, 1).clone(memory_format=torch.contiguous_format)
    words = eights.view(torch.int64).squeeze(2)  # [C, reach]
    found = {}
    for marker in markers:
        hits = ((words & _as_word(b"\xff" * len(marker))) == _as_word(marker)) & early
        for place, byte in enumerate(marker[8:], start=8):
            hits = hits & (data[:, place : place + reach] == byte)
        at = places(hits.view(-1))
        if at.numel():
            which, offset = at // reach, at % reach
            begins = snippets.begins[which]
            final = offset + len(marker) - 1
            owner = (begins <= final.unsqueeze(1)).sum(1) - 1
            first = snippets.first[which]
            last = (first + owner) * snippets.unit + final - begins.gather(1, owner.unsqueeze(1)).squeeze(1)
            found[marker] = _Hits(rows[which], which, first * snippets.unit + offset, last)
    return found


def _as_word(pattern: bytes) -> int:
    """The first eight bytes as the int64 that lies in memory so, zeros behind a shorter pattern."""
    return int.from_bytes(pattern[:8].ljust(8, b"\0"), sys.byteorder, signed=True)
