"""Where in a response is the answer? One rule per style, over whole batches of byte strings.

    spot = locate("boxed", text)            # Spot(begin, stop, found, doubt, braced), each [B]
    columns, extent = window(text, spot, 512)

Nothing is parsed here: a style only says which bytes hold the answer. A response that left its reasoning
(`</think>`) is judged by what comes after it; one that is still in it (`<think>` and no end) by what came before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.verify.automaton import END
from atrl_envs.verify.text import MARGIN, Text

STYLES = ("plain", "gsm8k_hash", "boxed", "answer_tag", "last_number")
SIGHT_BEFORE, SIGHT_BEHIND = 63, 33  # bytes of running text around its last digit that are read


@dataclass(frozen=True)
class Spot:
    """Bytes [begin, stop) of each row hold the answer if `found`; all fields are [B].

    doubt: it stands where it may not be paid (an HTML comment). braced: style boxed: the box has braces;
    last_number: the text before `begin` was left out.
    """

    begin: Tensor
    stop: Tensor
    found: Tensor
    doubt: Tensor
    braced: Tensor


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
        view = self.flat[MARGIN + offset : MARGIN + offset + self.size]
        # A whole row of the byte: comparing with a scalar takes a slow road on the CPU.
        return view == torch.full_like(view, byte)

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
        ascii_digit = marks.flat[MARGIN : MARGIN + marks.size] - 48 < 10
        wide = (
            (marks.flat[MARGIN : MARGIN + marks.size] - 0x90 < 10) & marks.at(-1, 0xBC) & marks.at(-2, 0xEF)
        )
        last = marks.last((ascii_digit | wide).view(marks.shape) & marks.between(begin, stop))
        first = torch.where(last < 0, -1, torch.maximum(begin, last - SIGHT_BEFORE + 1))
        braced = first > begin
        stop = torch.minimum(stop, last + SIGHT_BEHIND + 1)
    else:
        raise ValueError(f"unknown style {style!r}; known: {', '.join(STYLES)}")
    found = first >= 0
    doubt = found & _in_comment(marks, first)
    return Spot(first * found, stop * found, found, doubt, braced)


def _region(marks: _Marks, text: Text) -> tuple[Tensor, Tensor]:
    """What may hold an answer, [B] and [B]: behind the last `</think>`, before a `<think>` that stays open."""
    think = marks.behind(b"think>").view(-1)
    closed = marks.last((think & marks.at(-7, 47) & marks.at(-8, 60)).view(marks.shape))
    opened = marks.last((think & marks.at(-7, 60)).view(marks.shape))
    return torch.maximum(text.first, closed), torch.where(opened > closed, opened - 7, text.stop)


def _in_comment(marks: _Marks, position: Tensor) -> Tensor:
    """Whether a position lies inside `<!-- ... -->`, [B]."""
    before = marks.place <= position.unsqueeze(1)
    dashes = marks.at(-1, 45) & marks.at(-2, 45)
    opened = (dashes & marks.at(-3, 33) & marks.at(-4, 60)).view(marks.shape)
    closed = marks.behind(b"-->")
    return marks.last(opened & before) > marks.last(closed & before)


def _box(marks: _Marks, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Content of the last balanced box: its first byte (-1 if none) and whether braces hold it, both [B]."""
    free = ~marks.at(-1, 92)  # an escaped brace is a character of the answer
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


def window(text: Text, spot: Spot, style: str, width: int) -> tuple[Tensor, Tensor]:
    """The bytes of each answer [B, W] uint8, END behind them, and how many there are [B].

    Where the end of an answer is not within the window, the count is greater than `width`.
    A line ends gsm8k_hash, the closing brace a box, a blank or a dollar a box without braces.
    """
    rows, size = text.data.shape
    step = torch.arange(width, dtype=torch.int32, device=text.data.device)
    line = torch.arange(rows, dtype=torch.int32, device=text.data.device).unsqueeze(1) * size
    index = (spot.begin.unsqueeze(1) + step).clamp(max=size - 1) + line
    letters = text.data.view(-1).index_select(0, index.view(-1)).view(rows, width)
    extent = spot.stop - spot.begin
    ends = _ends(letters, spot, style)
    if ends is not None:
        first = width + 1 - (ends.view(torch.uint8) * (width + 1 - step)).amax(1)
        extent = torch.minimum(extent, first)
    return letters | ((step < extent.unsqueeze(1)).view(torch.uint8) - 1), extent


def _ends(letters: Tensor, spot: Spot, style: str) -> Tensor | None:
    """The bytes behind which an answer is over, [B, W] bool."""
    newline = (letters == 10) | (letters == 13)
    if style == "gsm8k_hash":
        return newline
    if style != "boxed":
        return None
    free = torch.nn.functional.pad(letters[:, :-1], (1, 0)) != 92
    up, down = ((letters == 123) & free).view(torch.uint8), ((letters == 125) & free).view(torch.uint8)
    depth = (up.view(torch.int8) - down.view(torch.int8)).cumsum(1, dtype=torch.int32)
    bare = newline | (letters == 32) | (letters == 36)
    return torch.where(spot.braced.unsqueeze(1), depth < 0, bare)
