"""Adversarial completions: spellings of numbers, damaged, in frames of markers, damaged too.

    writer = Writer(seed=0)
    case = writer.case("boxed")        # Case(style="boxed", raw=b"so \\\\boxed{\\xef\\xbc4.}", golds=("4", "-4"))

Golds are chosen to be paid by mistake: what the verifier's own rules read in the text, and what careless
readings find in it.
"""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass
from fractions import Fraction

from atrl_envs.verify.extract import STYLES
from atrl_envs.verify.gold import INVALID, encode_gold
from atrl_envs.verify.grammar import answer_machine
from tests.envs.verify.slow_extraction import answer_in
from tests.envs.verify.spellings import dressed, spellings

PARTS = [
    *"0123456789", "12", "000", "345", "1,000", ".", ",", ", ", " ", "  ", "-", "\u2212", "\u2013", "+", "/", "\\frac",
    "{", "}", "{1}", "{2}", "\\text{", " cm", "^2", "^{-1}", "^", "_", "%", "\\%", " percent", "=", "x = ", " \\times ",
    "\\cdot", "10^{", "10^", "e", "E", "e-", "e9", "$", "\\$", "**", "(", ")", "\\left(", "\\right)", " or ", " and ",
    " apples", "m", "kg", "\\,", "\\!", "{,}", ",\\!", "\\pm", "\u00b1", "^\\circ", "\u00b0", "2/3", " 1/2", "\uff12",
    "\uff0d", "\n", "\r", "\t", "\u00b2", "n", " million", " dozen", "k", "!", ":", "\\pi", "\\sqrt", "\u00a0", "~",
    "\u20ac", "\u00d7", "\\(", "\\)", "\\[", "]", "\\{", "\\}", "\\", "\0", "...", "..", "--", "+-", "1e", "0x", "0.",
    "00", " - ", " / ", " to ", "\\dfrac12", "\\mbox{", "\\mathrm{", "st", "th", "nd", " m2", " thousand", " octillion",
    "\\quad", "&", "\\approx", "<",
    ">",
]  # fmt: skip
MARKERS = [
    "\\boxed{", "\\boxed", "\\boxed ", "\\fbox{", "}", "{", "####", "#### ", "###", "<answer>", "</answer>", "<think>",
    "</think>", "<!--", "-->", "\n", "$", " ", "so ", "7", "is ", "\\}", "\\{", "<Answer>", "</ answer>", "<answer",
    ">",
]  # fmt: skip
FRAMES = {
    "plain": ["{}", "{}", " {}\n"],
    "gsm8k_hash": ["so 3+4\n#### {}", "####{}\nsee 7", "#### 5\n#### {}"],
    "boxed": ["so $\\boxed{{{}}}$.", "\\boxed{{5}} no \\boxed{{{}}} and 7", "\\fbox{{{}}}", "\\boxed {}"],
    "answer_tag": ["<think>5</think><answer>{}</answer>", "<answer>{}</answer> 7"],
    "last_number": ["so it is {}", "5 and {}.", "{} is it", "{}"],
}
ODD_BYTES = [
    b"\xef",
    b"\xef\xbc",
    b"\xe2\x88",
    b"\xe2",
    b"\xc2",
    b"\xff",
    b"\xfe",
    b"\xfd",
    b"\x80",
    b"\xed\xa0\x80",
    b"\0",
]


@dataclass(frozen=True)
class Case:
    """One completion and the golds that it is judged against."""

    style: str
    raw: bytes
    golds: tuple[str, ...]


class Writer:
    """Writes cases from one stream of random numbers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def case(self, style: str | None = None) -> Case:
        """A completion in a style (any if None), and up to three golds."""
        rng = self.rng
        style = style or rng.choice(STYLES)
        value = self._value()
        raw = self._completion(style, self._answer(value))
        golds = {
            spelled(value),
            *rng.sample(tempting := careless_readings(raw, style), min(2, len(tempting))),
        }
        return Case(style, raw, tuple(golds))

    def _value(self) -> Fraction:
        rng = self.rng
        top = rng.choice([rng.randint(-20, 20), rng.randint(-20000, 20000), rng.randint(-(10**20), 10**20)])
        return Fraction(top, rng.choice([1, 1, 1, 2, 3, 4, 8, 10, 100, 10**6]))

    def _answer(self, value: Fraction) -> bytes:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.55:
            text = rng.choice(spellings(value))
            raw = (dressed(text, rng) if rng.random() < 0.4 else text).encode()
            return self._damaged(raw, rng.choice([0, 1, 1, 2, 3]), PARTS)
        if kind < 0.92:
            return "".join(rng.choices(PARTS, k=rng.randint(1, 8))).encode()
        if kind < 0.96:
            return bytes(rng.choices(b"0123456789.,-/ eE{}\\$%^=", k=rng.randint(1, 20)))
        return rng.randbytes(rng.randint(0, 30))

    def _completion(self, style: str, answer: bytes) -> bytes:
        rng = self.rng
        if rng.random() < 0.1:
            parts = [rng.choice(MARKERS).encode() for _ in range(rng.randint(1, 10))]
            parts.insert(rng.randint(0, len(parts)), answer)
            return b"".join(parts)
        before, _, behind = (
            rng.choice(FRAMES[style]).replace("{{", "\x02").replace("}}", "\x03").partition("{}")
        )
        shown = [part.replace("\x02", "{").replace("\x03", "}").encode() for part in (before, behind)]
        return self._damaged(answer.join(shown), rng.choice([0, 0, 0, 1, 2]), MARKERS)

    def _damaged(self, raw: bytes, times: int, parts: list[str]) -> bytes:
        """Bytes taken out, doubled, swapped, cut off, or put in."""
        rng = self.rng
        for _ in range(times):
            at, size = rng.randint(0, len(raw)), rng.choice([1, 1, 2, 5])
            piece = raw[at : at + size]
            new = rng.choice(ODD_BYTES) if rng.random() < 0.1 else rng.choice(parts).encode()
            raw = rng.choice(
                [
                    raw[:at] + raw[at + size :],
                    raw[:at] + piece + raw[at:],
                    raw[:at] + piece[::-1] + raw[at + size :],
                    raw[: max(1, at)] if rng.random() < 0.2 else raw[:at] + new + raw[at:],
                    raw[:at] + new + raw[at:],
                    raw[:at] + new + raw[at + size :],
                ]
            )
        return raw


def spelled(value: Fraction) -> str:
    """A value as a plain gold."""
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def careless_readings(raw: bytes, style: str) -> list[str]:
    """Golds that a hasty reader would take from a completion; first what the verifier's rules read."""
    found = answer_in(raw, style if style != "last_number" else "plain")
    text = (raw if found is None else found.answer).decode("utf-8", "replace")
    own = [] if style == "last_number" else own_reading(text)
    runs = re.findall(r"\d+", text)[-6:]
    decimals = re.findall(r"\d*\.\d+|\d+", text.replace(",", ""))[-6:]
    naive = [*runs[-3:], *decimals[-3:], "".join(runs), "".join(runs[-2:])]
    naive += [f"{a}/{b}" for a, b in itertools.pairwise(runs) if int(b)][-2:]
    naive += [f"{runs[0]} {a}/{b}" for a, b in itertools.pairwise(runs[1:]) if int(b)][-1:]
    naive += [f"{a}e{b}" for a, b in itertools.pairwise(runs) if len(b) < 9][-1:]
    if "-" in text or "\u2212" in text:
        naive += [f"-{number}" for number in (*runs[-2:], *decimals[-1:])]
    # The rules' own reading is the one to be caught at: it is drawn about half of the time.
    return own * max(1, len(naive)) + [gold for gold in naive if gold]


def own_reading(text: str) -> list[str]:
    """The value that the verifier's rules read in an answer, as a plain gold: [] if they read none."""
    gold = encode_gold(text, answer_machine())
    if gold.kind == INVALID:
        return []
    sign = "-" if gold.negative else ""
    if gold.terminates:
        return [f"{sign}{gold.digits or '0'}e{gold.exponent}"]
    return [f"{sign}{gold.top}/{gold.bottom}"] if gold.top else []
