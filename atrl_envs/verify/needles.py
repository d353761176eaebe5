"""What the id of a token says about markers and digits: one byte of flags a token, made once a vocabulary.

    needles = Needles.of(spelling, "boxed")
    flags = needles.known.index_select(0, ids)       # uint8, bits below

A marker such as `</think>` may be written with any tokens. It begins in a token that holds all of it (WHOLE) or
ends with its beginning (BEGIN), and then the next token goes on with it (CONT). Few tokens of a text can do
either, so a text of ids is searched for markers without being written out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.verify.automaton import END
from atrl_envs.verify.text import Spelling

THINK, THOUGHT, COMMENT = b"<think>", b"</think>", b"<!--"
ANSWER, ANSWERED = b"<answer>", b"</answer>"
HIDING = (THINK, THOUGHT, COMMENT)  # what may hide an answer, whatever its style
MARKERS: dict[str, tuple[bytes, ...]] = {
    "gsm8k_hash": (b"####",),
    "boxed": (b"\\boxed", b"\\fbox"),
    "answer_tag": (ANSWER, ANSWERED),
    "last_number": (),
}
LONGEST_MARKER = 9

# Two groups of patterns share a byte: HIDING has the lowest three bits, the style's own markers the next three.
BEGIN, CONT, WHOLE = 1, 2, 4
GROUP_BITS = 3
DIGIT = 64  # may hold the last byte of a digit
CLOSING = 128  # the end of sequence, and nothing else, is this or more


@dataclass(frozen=True)
class Needles:
    """Flags [V + 2] uint8 of every token, row i + 1 is token i as in `Spelling`; known: [V], row i is token i.

    markers: the patterns of the style.
    """

    flags: Tensor
    known: Tensor
    markers: tuple[bytes, ...]

    @classmethod
    def of(cls, spelling: Spelling, style: str) -> Needles:
        """On the CPU, where alone they are of use."""
        table, length = spelling.table, spelling.length
        column = torch.arange(table.shape[1])
        table = torch.where(column < length.unsqueeze(1), table, END)
        flags = torch.zeros(table.shape[0], dtype=torch.uint8)
        for group, markers in enumerate((HIDING, MARKERS[style])):
            for marker in markers:
                flags |= _flags_of(marker, table, length) << (GROUP_BITS * group)
        if style == "last_number":
            flags |= _digits(table).to(torch.uint8) * DIGIT
        flags[spelling.eos_id + 1] = CLOSING
        return cls(flags, flags[1:-1], MARKERS[style])


def _flags_of(marker: bytes, table: Tensor, length: Tensor) -> Tensor:
    """BEGIN, CONT and WHOLE of every token for one marker. A token without bytes may stand inside of any."""
    flags = torch.zeros(table.shape[0], dtype=torch.uint8)
    head = torch.nn.functional.pad(table[:, : len(marker)], (0, len(marker)), value=END).t().contiguous()
    for begun in range(1, len(marker)):
        goes_on = torch.ones_like(flags, dtype=torch.bool)
        for place, byte in enumerate(marker[begun:]):
            goes_on &= (head[place] == byte) | (length <= place)
        flags |= goes_on.to(torch.uint8) * CONT
    rows = torch.where((table == marker[0]).any(1))[0]  # the others can neither begin nor hold it
    some, size = table.index_select(0, rows), length.index_select(0, rows)
    padded = torch.nn.functional.pad(some, (0, len(marker)), value=END)
    whole = _runs(padded, marker).any(1)
    begins = torch.zeros_like(whole)
    for begun in range(1, len(marker)):
        last = (size - begun).clamp(min=0).long().unsqueeze(1)
        ends_so = _runs(padded, marker[:begun]).gather(1, last).squeeze(1)
        begins |= ends_so & (size >= begun)
    flags[rows] |= whole.to(torch.uint8) * WHOLE + begins.to(torch.uint8) * BEGIN
    return flags


def _runs(padded: Tensor, pattern: bytes) -> Tensor:
    """Where a pattern begins in rows that are padded by at least its size, [R, M] bool."""
    size = padded.shape[1] - len(pattern) + 1
    hits = padded[:, :size] == pattern[0]
    for place, byte in enumerate(pattern[1:], start=1):
        hits &= padded[:, place : place + size] == byte
    return hits


def _digits(table: Tensor) -> Tensor:
    """Tokens that hold an ASCII digit or what may be the last byte of a full-width one (EF BC 90 to 99), [V]."""
    before = torch.nn.functional.pad(table, (2, 0), value=0)
    far, near = before[:, : table.shape[1]], before[:, 1 : table.shape[1] + 1]
    wide = (table - 0x90 < 10) & ((near == 0xBC) | (near == 0)) & ((far == 0xEF) | (far == 0))
    return ((table - 48 < 10) | wide).any(1)
