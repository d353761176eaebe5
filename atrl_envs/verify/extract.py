"""Where in a response is the answer? One rule per style, over whole batches of byte strings.

    spot = locate("boxed", text)            # Spot(begin, stop, found, doubt, braced), each [B]
    answer = see("boxed", text, spot)       # Answer(letters, extent, spot, lost)

Nothing is parsed here: a style only says which bytes hold the answer. A response that left its reasoning
(`</think>`) is judged by what comes after it, up to where it begins to reason again (`<think>`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atrl_envs.verify.automaton import END
from atrl_envs.verify.masks import (
    Array,
    at_most,
    before,
    below,
    bits,
    depth,
    equals,
    first_set,
    last_set,
    span,
    steps,
    take,
    where,
)
from atrl_envs.verify.peek import surely_all, surely_none, widest
from atrl_envs.verify.text import MARGIN, Text

STYLES = ("plain", "gsm8k_hash", "boxed", "answer_tag", "last_number")
WINDOW = 512  # bytes of an answer; a longer one is not judged
SIGHT_BEFORE, SIGHT_BEHIND = 512, 33  # bytes of running text around its last digit that are seen
STEPS_BEFORE = 63  # of those before it, what is read after long runs of digits and blanks are shortened


@dataclass(frozen=True)
class Spot:
    """Bytes [begin, stop) of each row hold the answer if `found`; all fields are [B].

    doubt: it stands where it may not be paid (in an HTML comment, perhaps in unfinished reasoning). braced: style
    boxed: the box has braces; last_number: the text before `begin` was left out.
    """

    begin: Array
    stop: Array
    found: Array
    doubt: Array
    braced: Array


@dataclass(frozen=True)
class Answer:
    """The bytes of each answer: letters [B, W] uint8, END behind them.

    extent: [B], how many there are, or more than W where the end is out of sight. lost: [B], the beginning of the
    response was left out (see `Text`). squeezed: last_number: letters without long
    runs, and where each of them went, [T, B] and [W, B].
    """

    letters: Array
    extent: Array
    spot: Spot
    lost: Array
    squeezed: tuple[Array, Array] | None = None

    def each(self, change: Callable[[Array], Array]) -> Answer:
        """With `change` applied to every field."""
        spot = Spot(*(change(getattr(self.spot, name)) for name in Spot.__dataclass_fields__))
        squeezed = None if self.squeezed is None else (change(self.squeezed[0]), change(self.squeezed[1]))
        return Answer(change(self.letters), change(self.extent), spot, change(self.lost), squeezed)

    def of(self, rows: Array) -> Answer:
        """Some of the answers."""
        some = replace(self, squeezed=None).each(lambda field: field[rows])
        if self.squeezed is None:
            return some
        return replace(some, squeezed=(self.squeezed[0][:, rows], self.squeezed[1][:, rows]))


class _Marks:
    """Searches in one batch of texts, [B, L] each; positions count from 0."""

    def __init__(self, text: Text) -> None:
        self.shape = text.data.shape
        self.size = text.data.numel()
        # The margin of each row keeps a match from running into the next one.
        self.flat = torch.nn.functional.pad(text.data.view(-1), (MARGIN, MARGIN), value=END)
        self.place = torch.arange(1, self.shape[1] + 1, dtype=torch.int32, device=text.data.device)

    def at(self, offset: int, byte: int) -> Tensor:
        """Whether the byte `offset` places from here is this one, [B * L] bool."""
        return equals(self.flat[MARGIN + offset : MARGIN + offset + self.size], byte)

    def behind(self, pattern: bytes) -> Tensor:
        """The places right behind a pattern, [B, L] bool."""
        hits = self.at(-1, pattern[-1])
        for offset, byte in enumerate(reversed(pattern[:-1]), start=2):
            hits = hits & self.at(-offset, byte)
        return hits.view(self.shape)

    def last(self, hits: Tensor) -> Tensor:
        """The last place that is set, -1 if there is none: [B] int32."""
        return (hits.view(torch.uint8) * self.place).amax(1) - 1

    def between(self, begin: Tensor, stop: Tensor) -> Tensor:
        """Places [begin, stop), [B, L] bool."""
        return (self.place > begin.unsqueeze(1)) & (self.place <= stop.unsqueeze(1))


def locate(style: str, text: Text) -> Spot:
    """Find the answer in every response. gsm8k_hash and boxed leave its end to `window`."""
    if style == "plain":
        return Spot(text.first, text.stop, ~text.lost, text.lost, text.lost)
    marks = _Marks(text)
    begin, stop = _region(marks, text)
    inside = marks.between(begin, stop + 1)  # a marker may end where the region ends
    no = torch.zeros_like(text.lost)
    if style == "gsm8k_hash":
        first, braced = marks.last(marks.behind(b"####") & inside), no
    elif style == "boxed":
        first, braced = _box(marks, inside)
    elif style == "answer_tag":
        close = marks.last(marks.behind(b"</answer>") & inside)
        stop = (close - 9).clamp(min=0)
        first, braced = marks.last(marks.behind(b"<answer>") & marks.between(begin, stop + 1)), no
        first = torch.where(close < 0, -1, first)
    elif style == "last_number":
        last = last_digit(text.data, begin, stop)
        first = torch.where(last < 0, -1, torch.maximum(begin, last - SIGHT_BEFORE + 1))
        braced = first > begin
        stop = torch.minimum(stop, last + SIGHT_BEHIND + 1)
    else:
        raise ValueError(f"unknown style {style!r}; known: {', '.join(STYLES)}")
    found = first >= 0
    # Where the beginning is out of sight, a response without `</think>` may be still in its reasoning.
    doubt = found & (_in_comment(marks, first) | (text.lost & (begin <= text.first)))
    return Spot(first * found, stop * found, found, doubt, braced)


def last_digit(data: Array, begin: Array, stop: Array) -> Array:
    """The last byte of the last digit, ASCII or full-width, in [begin, stop) of each text; -1 if none: [B]."""
    digits, wide = below(data - 48, 10), equals(data, 0xEF)
    if not surely_none(wide):
        digits[:, 2:] |= wide[:, :-2] & equals(data, 0xBC)[:, 1:-1] & below(data - 0x90, 10)[:, 2:]
    return last_set(digits & span(data.shape[1], begin, stop))


def _region(marks: _Marks, text: Text) -> tuple[Tensor, Tensor]:
    """What may hold an answer, [B] and [B]: behind the last `</think>`, before the first `<think>` behind that."""
    think = marks.behind(b"think>").view(-1)
    closed = marks.last((think & marks.at(-7, 47) & marks.at(-8, 60)).view(marks.shape))
    begin = torch.maximum(text.first, closed)
    opened = (think & marks.at(-7, 60)).view(marks.shape) & (marks.place > begin.unsqueeze(1) + 7)
    far = marks.shape[1] + 1
    opened = far - (opened.view(torch.uint8) * (far - marks.place)).amax(1)  # from 1, as `place`
    return begin, torch.minimum(text.stop, opened - 8)


def _in_comment(marks: _Marks, position: Tensor) -> Tensor:
    """Whether a position lies inside `<!-- ... -->`, [B]."""
    earlier = marks.place <= position.unsqueeze(1)
    dashes = marks.at(-1, 45) & marks.at(-2, 45)
    opened = (dashes & marks.at(-3, 33) & marks.at(-4, 60)).view(marks.shape)
    closed = marks.behind(b"-->")
    return marks.last(opened & earlier) > marks.last(closed & earlier)


def _box(marks: _Marks, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Content of the last balanced box: its first byte (-1 if none) and whether braces hold it, both [B]."""
    # An escaped brace is a character of the answer; behind the `\\` that breaks a line a brace is a brace.
    free = ~marks.at(-1, 92) | marks.at(-2, 92)
    opening = (marks.at(0, 123) & free).view(marks.shape)
    closing = (marks.at(0, 125) & free).view(marks.shape) & inside
    step = opening.view(torch.uint8).view(torch.int8) - closing.view(torch.uint8).view(torch.int8)
    depth = step.cumsum(1, dtype=torch.int32)
    lowest = depth.flip(1).cummin(1).values.flip(1)  # lowest depth from here to the end
    near = (marks.behind(b"\\boxed") | marks.behind(b"\\fbox")) & inside
    far = (marks.behind(b"\\boxed ") | marks.behind(b"\\fbox ")) & inside
    braced = marks.last((near | far) & opening & (lowest < depth))
    bare = marks.last(far & ~opening)
    return torch.where(braced >= bare, braced + (braced >= 0), bare), braced >= bare


def see(style: str, text: Text, spot: Spot, limit: int = WINDOW) -> Answer:
    """The bytes of every answer, `limit` of them at most; style last_number: of the text around the last digit."""
    limit = SIGHT_BEFORE + SIGHT_BEHIND if style == "last_number" else limit
    width = widest(spot.stop - spot.begin, min(text.data.shape[1], limit))
    letters, extent = window(text, spot, style, width)
    return Answer(letters, extent, spot, text.lost)


def window(text: Text, spot: Spot, style: str, width: int) -> tuple[Array, Array]:
    """The bytes of each answer [B, W] uint8, END behind them, and how many there are [B].

    Where the end of an answer is not within the window, the count is greater than `width`.
    A line ends gsm8k_hash, the closing brace a box, a blank or a dollar a box without braces.
    """
    rows, size = text.data.shape
    line = steps(0, rows, text.data)[:, None] * size
    column = at_most(spot.begin[:, None] + steps(0, width, text.data), size - 1)
    letters = take(text.data.reshape(-1), column + line)
    extent = spot.stop - spot.begin
    ends = _ends(letters, spot, style)
    if ends is not None:
        first = first_set(ends)
        extent = at_most(extent, first + (first == width))
    return letters | (bits(before(width, extent)) - 1), extent


def _ends(letters: Array, spot: Spot, style: str) -> Array | None:
    """The bytes behind which an answer is over, [B, W] bool."""
    if style == "gsm8k_hash":
        return equals(letters, 10) | equals(letters, 13)
    if style != "boxed":
        return None
    opening, closing, escape = equals(letters, 123), equals(letters, 125), equals(letters, 92)
    if not surely_none(escape):
        free = ~escape[:, :-1]
        free[:, 1:] |= escape[:, :-2]
        opening[:, 1:] &= free
        closing[:, 1:] &= free
    closed = below(depth(opening, closing), 0)
    if surely_all(spot.braced):
        return closed
    bare = equals(letters, 10) | equals(letters, 13) | equals(letters, 32) | equals(letters, 36)
    return where(spot.braced[:, None], closed, bare)
