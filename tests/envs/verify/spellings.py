"""Vocabularies and spellings for the verifier's tests.

vocab = PieceVocab(["\\\\boxed{", "4", "2", "}"])
tokens, start, end = batch([vocab.ids_of_pieces(["\\\\boxed{", "4", "2", "}"])], pad_id=vocab.pad_id)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor


class PieceVocab:
    """A vocabulary of all single bytes and of given pieces; two special tokens without content."""

    pad_id, eos_id = 0, 1

    def __init__(self, pieces: Sequence[bytes | str] = ()) -> None:
        raw = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
        self.pieces = [
            b"",
            b"",
            *(bytes([b]) for b in range(256)),
            *dict.fromkeys(p for p in raw if len(p) > 1),
        ]
        self.ids = {piece: i for i, piece in enumerate(self.pieces) if piece}

    @property
    def byte_table(self) -> tuple[Tensor, Tensor]:
        width = max(len(piece) for piece in self.pieces)
        rows = [list(piece.ljust(width, b"\0")) for piece in self.pieces]
        lengths = [len(piece) for piece in self.pieces]
        return torch.tensor(rows, dtype=torch.uint8), torch.tensor(lengths)


def split(raw: bytes, rng: random.Random, longest: int = 5) -> list[bytes]:
    """Random pieces of one to `longest` bytes; characters may be split in the middle."""
    pieces = []
    while raw:
        size = rng.randint(1, longest)
        pieces.append(raw[:size])
        raw = raw[size:]
    return pieces


def batch(
    rows: Sequence[Sequence[int]], pad_id: int, prompts: Sequence[Sequence[int]] | None = None
) -> tuple[Tensor, Tensor]:
    """Right-padded tokens [B, S] and where the responses start [B]."""
    prompts = prompts or [[] for _ in rows]
    whole = [[*prompt, *row] for prompt, row in zip(prompts, rows, strict=True)]
    size = max(1, *(len(row) for row in whole)) if whole else 1
    tokens = torch.full((len(rows), size), pad_id)
    for i, row in enumerate(whole):
        tokens[i, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return tokens, torch.tensor([len(prompt) for prompt in prompts])


FRAMES = {
    "plain": ("{}", " {}\n", "{}."),
    "gsm8k_hash": ("so 3 + 4\n#### {}", "####{}", "#### 17\n#### {}\nGood luck with the 2 others"),
    "boxed": (
        "is \\boxed{{{}}}.",
        "\\boxed{{9}} but \\boxed{{{}}} and 3",
        "$\\boxed{{{}}}$",
        "\\fbox{{{}}}",
        "\\boxed{{ {} }}",
    ),
    "answer_tag": (
        "<think>5 or {{8</think><answer>{}</answer>",
        "<answer>3</answer> <answer>\n{}\n</answer> 4",
    ),
    "last_number": (
        "so it is {}",
        "not 17 but {}, see",
        "$x = 5$ and then {} apples",
        "B2B, {} is it",
        "= {}\n",
    ),
}


def integer_spellings(n: int) -> list[str]:
    """Ways to write an integer."""
    sign, digits = ("-" if n < 0 else ""), str(abs(n))
    commas = f"{abs(n):,}"
    ways = [digits, f"00{digits}", f"{digits}.", f"{digits}.000", commas, commas.replace(",", "{,}")]
    ways += [commas.replace(",", ",\\!"), commas.replace(",", "\\,"), commas.replace(",", " "), f"{digits}e0"]
    ways += [
        "".join(chr(0xFF10 + int(d)) for d in digits),
        f"{digits}/1",
        f"\\frac{{{digits}}}{{1}}",
        f"{{{digits}}}",
    ]
    ways += [
        f"{digits}0e-1",
        f"{digits}.0 \\times 10^{{0}}",
        f"\\text{{{digits}}}",
        f"({digits})",
        f"**{digits}**",
    ]
    return (
        [sign + way for way in ways]
        + [f"−{way}" for way in ways if n < 0]
        + [f"+{way}" for way in ways if n > 0]
    )


def decimal_spellings(value: Fraction) -> list[str]:
    """Ways to write a terminating decimal; [] for any other value."""
    sign, value = ("-" if value < 0 else ""), abs(value)
    places = 0
    while (value * 10**places).denominator > 1:
        places += 1
        if places > 60:
            return []
    digits = str(int(value * 10**places)).rjust(places + 1, "0")
    whole, behind = digits[: len(digits) - places], digits[len(digits) - places :]
    ways = [f"{whole}.{behind}", f"{whole}.{behind}00", f"{digits}e-{places}", f"{digits}E-0{places}"]
    ways += [f"{digits} \\times 10^{{-{places}}}", f"0.{digits}e{len(whole)}", f"{whole}.{behind}e+0"]
    if whole == "0" and behind:
        ways.append(f".{behind}")
    return [sign + way for way in ways]


def fraction_spellings(value: Fraction, factor: int = 1) -> list[str]:
    """Ways to write a quotient, not always in lowest terms."""
    sign, value = ("-" if value < 0 else ""), abs(value)
    a, b = value.numerator * factor, value.denominator * factor
    ways = [
        f"{a}/{b}",
        f"{a} / {b}",
        f"\\frac{{{a}}}{{{b}}}",
        f"\\dfrac{{{a}}}{{ {b} }}",
        f"\\tfrac{{{a}}}{{{b}}}",
    ]
    ways += [f"\\left( \\frac{{{a}}}{{{b}}} \\right)"]
    if a < 10 and b < 10:
        ways += [f"\\frac{a}{b}", f"\\frac {a}{b}"]
    whole, rest = divmod(value.numerator, value.denominator)
    if whole and rest and rest < 100:
        ways += [f"{whole} {rest}/{value.denominator}", f"{whole}\\frac{{{rest}}}{{{value.denominator}}}"]
    negative = [f"\\frac{{-{a}}}{{{b}}}", f"{a}/-{b}", f"\\frac{{{a}}}{{-{b}}}"] if sign else []
    return [sign + way for way in ways] + negative


def spellings(value: Fraction, factor: int = 1) -> list[str]:
    """Every way this module knows to write a value."""
    ways = decimal_spellings(value) + fraction_spellings(value, factor)
    return ways + (integer_spellings(int(value)) if value.denominator == 1 else [])


def dressed(answer: str, rng: random.Random) -> str:
    """The same answer with a unit, a sign of currency, a name or blanks around it."""
    before = rng.choice(["", "", "$", "\\$", "x = ", "total = ", "6*7 = "])
    behind = rng.choice(
        ["", "", " apples", "\\text{ cm}^2", " \\mbox{ km}", "^\\circ", "\\%", " percent", " m/s^2", " €"]
    )
    if before in ("$", "\\$") and answer[0] in "-−+":
        before, answer = answer[0] + before, answer[1:]
    return before + answer + ("" if answer.endswith("*") else behind)
