"""Numbers in running text: a small hand-written machine that marks where each one stands and ends.

    labels, _ = scanner().machine.read(b"not 10 but 1,000.99m")     # ENDS behind each number

The bytes of a number carry labels other than NONE; the byte behind it carries ENDS, or DOUBT where the rules see a
number that they do not read (a power, a factorial, `\\frac{x}{2}`). Digits glued to a letter are no number. The
rules are those of `between.py` and `within.py`; here they become a table, and characters of several bytes become the
signs they stand for.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from atrl_envs.verify.automaton import Machine, explore
from atrl_envs.verify.between import SAID, SIGNS, outside
from atrl_envs.verify.labels import (
    AT_DOUBT,
    AT_JOINED,
    AT_NUMBER,
    DECIMALS,
    DOUBT,
    ENDS_JOINED,
    NONE,
    PART,
    WHOLE,
)
from atrl_envs.verify.running import EDGE, OUTSIDE, UNITS, State, ending, is_letter, tie_of
from atrl_envs.verify.within import inside

CUT = State("word", "cut")  # in the middle of a text whose beginning is not in sight

# What characters of several bytes stand for; "0" is any digit, "½" any number in one character, "" nothing to be seen.
_ALIKE = {
    "-": "−–－‐‑‒", "—": "—―", "±": "±", "/": "⁄∕", ".": "．", ",": "，", ":": "：∶", "$": "€£¥₹", "°": "°º",
    "^": "²³¹⁰⁴⁵⁶⁷⁸⁹⁻ⁿ", "_": "₀₁₂₃₄₅₆₇₈₉", "×": "×∗", "·": "·⋅∙", "÷": "÷", "√": "√∛",
    " ": "\u00a0\u2009\u202f", "'": "’′", "0": "０１２３４５６７８９", "万": "万亿", "": "\u200b\u200e\u200f",
    "½": "½¼¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞‰‱٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹", "π": "".join(map(chr, range(0x391, 0x3CA))),
}  # fmt: skip
_MARKS = {char.encode().hex(): mark for mark, chars in _ALIKE.items() for char in chars}
_MARK_PREFIXES = frozenset(mark[:size] for mark in _MARKS for size in range(2, len(mark), 2))
_HELD = frozenset({"sign", "coin", "times", "x", "dot"})  # what may belong to the number that begins behind

# A state here: that of `running`, and the bytes of a character of which more are to come.
Reading = tuple[State, str]


def _row(reading: Reading) -> list[tuple[Reading, int]]:
    """What each of the 256 bytes leads to."""
    state, seen = reading
    broken = state if not seen else State("bad" if state.place in OUTSIDE else "odd")
    return [
        *_ascii_row(broken),
        *_beyond(state if seen else _abridged(state), seen)[:0x40],
        *_beyond(_abridged(broken), "")[0x40:],  # these begin a character, and break one off
    ]


@functools.cache
def _ascii_row(state: State) -> list[tuple[Reading, int]]:
    found = [_step_char(state, chr(byte)) for byte in range(0x80)]
    return [((after, ""), label) for after, label in found]


@functools.cache
def _beyond(state: State, seen: str) -> list[tuple[Reading, int]]:
    """What each of the 128 bytes beyond ASCII leads to, behind `seen` of its character, in hexadecimal."""
    after, label = _other(state)
    row: list[tuple[Reading, int]] = [((after, ""), label)] * 0x80
    held = PART if _may_be_held(state) or state.place not in OUTSIDE else NONE
    for byte in range(0x80):
        now = f"{seen}{0x80 + byte:02x}"
        if now in _MARK_PREFIXES:
            row[byte] = ((state, now), held)
        elif now in _MARKS:
            after, label = _mark(state, _MARKS[now])
            row[byte] = ((after, ""), label)
    return row


def _may_be_held(state: State) -> bool:
    """Whether what stands here may belong to the number that begins behind it."""
    return state.place in _HELD or (state.place == "edge" and bool(state.tie))


def _mark(state: State, char: str) -> tuple[State, int]:
    if char == "" and state.place in OUTSIDE:
        return state, PART if _may_be_held(state) else NONE
    return _wide_digit(state) if char == "0" else _step_char(state, char or "½")


def _step_char(state: State, char: str) -> tuple[State, int]:
    return outside(state, char) if state.place in OUTSIDE else inside(state, char)


def _abridged(state: State) -> State:
    """One state for all that a character beyond ASCII does not tell apart, to keep the table small."""
    place, detail, tie = state
    if place == "unit":
        return State("unit", "m" if detail in UNITS else "k", tie)
    if place == "caret" or (place == "slash" and detail):
        return State("odd", "open")
    if place == "command":
        after, label = outside(state, "=")
        return State("command", "ln", "alone") if label == DOUBT else after
    if place == "edge" and is_letter(detail[-1:]):
        return (
            State("edge", " k")
            if detail in SAID
            else State("edge", "minus")
            if detail in SIGNS
            else State("word")
        )
    return state


def _wide_digit(state: State) -> tuple[State, int]:
    """A full-width digit is never part of a group of three, so its run counts as long."""
    if state.place in OUTSIDE:
        after, label = outside(state, "2")
        return (State("whole", "4"), WHOLE) if after.place == "whole" else (after, label)
    if state.place == "whole" and not state.tie:
        return State("whole", "4"), WHOLE
    if state.place in ("point", "decimals"):
        return State("decimals", "", state.tie), DECIMALS
    return State("odd"), PART


def _other(state: State) -> tuple[State, int]:
    """Any other character beyond ASCII."""
    if state.place == "command":  # one behind a number, see `_abridged`
        return outside(state, "=")
    if state.place in OUTSIDE or (state.place == "unit" and state.detail not in UNITS):
        return EDGE, DOUBT if state.place == "edge" and state.detail in SAID else NONE
    return EDGE, ending(tie_of(state))


def _accept(reading: Reading) -> int:
    state, _ = reading
    glued = state.place == "unit" and state.detail not in UNITS
    if glued or state.place in OUTSIDE or (state.place == "stroke" and state.detail == "blank"):
        return AT_DOUBT if _step_char(state, "\n")[1] == DOUBT else 0
    return {DOUBT: AT_DOUBT, ENDS_JOINED: AT_JOINED}.get(ending(tie_of(state)), AT_NUMBER)


@dataclass(frozen=True)
class Scanner:
    """The machine, and the number of its state for a text whose beginning is cut off."""

    machine: Machine
    cut: int


@functools.cache
def scanner() -> Scanner:
    """The automaton for running text. Codes at the end of a text: AT_NUMBER, AT_JOINED, AT_DOUBT, or 0."""
    machine, numbers = explore((EDGE, ""), _row, _accept, also=[(CUT, "")])
    return Scanner(machine, numbers[CUT, ""] * machine.width)


def scanner_machine() -> Machine:
    """The machine of `scanner`."""
    return scanner().machine
