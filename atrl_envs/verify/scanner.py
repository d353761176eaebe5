"""Numbers in running text: a small hand-written machine that marks where each one stands and ends.

    labels, _ = scanner().machine.read(b"not 10 but 1,000.99m")     # ENDS behind each number

The bytes of a number carry labels other than NONE; the byte behind it carries ENDS, or DOUBT where the
rules see a number that they do not read (a power, a ratio, a factorial, `\\frac{1}{2}`). Digits glued to
a letter are no number.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from atrl_envs.verify import vocabulary
from atrl_envs.verify.automaton import Machine, explore
from atrl_envs.verify.labels import (
    DECIMALS,
    DOUBT,
    ENDS,
    MINUS,
    NONE,
    NUMBER,
    PART,
    PERCENT,
    POWER,
    POWER_MINUS,
    UNDER,
    WHOLE,
)

DOUBTFUL = 3  # code of a text that ends in something that holds a number and is not read
_UNIT_PREFIXES = frozenset(unit[:i] for unit in vocabulary.SHORT_UNITS | {"m"} for i in range(1, len(unit) + 1))
_WIDE_DIGITS = frozenset(f"efbc{0x90 + digit:02x}" for digit in range(10))
_GLUED_UNITS = vocabulary.SHORT_UNITS | {"m"}

# A state is (place, detail). Places outside a number:
#   edge: a number may begin here           word: behind a letter, digits do not count
#   command: behind a backslash             bad: whatever number begins here is not read
#   sign: behind a minus that may belong    coin: behind a currency sign
# and inside: whole, comma, group, point, decimals, e, e-sign, power, stroke, under, percent, unit, odd.
State = tuple[str, str]
EDGE: State = ("edge", "")
UNKNOWN: State = ("word", "cut")  # in the middle of a text whose beginning is not in sight
_READ = {"whole", "group3", "decimals", "power", "under", "percent", "unit", "stop", "point"}


def _digit(byte: int) -> bool:
    return 48 <= byte <= 57


def _letter(byte: int) -> bool:
    return chr(byte).isalpha() if byte < 128 else False


def _outside(place: str, detail: str, byte: int) -> tuple[State, int]:
    """One byte outside a number."""
    char = chr(byte)
    if _digit(byte):
        if place == "word" or place == "index":
            return (place, detail), NONE
        if place in ("bad", "command"):
            return ("odd", ""), PART
        return ("whole", "1" if char != "0" else "4"), WHOLE
    if place == "bad" and char in " {(-+$":
        return (place, ""), NONE
    if _letter(byte):
        if place == "command":
            return ("command", detail + char if detail + char in ("p", "m", "pm", "mp") else "other"), NONE
        hedge = {" ": "o", " o": "or"}.get(detail) if place == "edge" else None
        return (("hedge", "or") if hedge == "or" and char == "r" else ("hedge", "o") if hedge and char == "o"
                else ("word", "")), NONE
    if char == "\\":
        return ("command", ""), NONE
    if place == "command" and detail in ("pm", "mp"):
        return ("bad", ""), NONE
    if char == "-":
        return (("bad", "") if place == "word" else ("sign", "")), (NONE if place == "word" else MINUS)
    if char == "$":
        return ("coin", ""), (PART if place in ("sign", "coin") else NONE)
    if char == "_":
        return ("index", ""), NONE
    if char == "^":
        return ("index", ""), NONE
    if place == "index" and char == "{":
        return ("index", ""), NONE
    if place == "sign" and char == " ":
        return ("bad", ""), NONE
    if char == "/":
        return ("bad", ""), NONE
    if char == "}":
        return ("closed", ""), NONE
    if place == "closed" and char == "{":
        return ("bad", ""), NONE
    return _high(byte), NONE


def _high(byte: int) -> State:
    """The place behind a byte that is neither letter nor digit; multi-byte marks are followed byte by byte."""
    return {0xE2: ("utf", "e2"), 0xEF: ("utf", "ef"), 0xC2: ("utf", "c2")}.get(byte, EDGE)


def _utf(detail: str, byte: int) -> tuple[State, int]:
    """Inside a multi-byte character that may be a minus, a plus-minus, a wide digit or a euro sign."""
    seen = detail + f"{byte:02x}"
    if seen in ("e288", "e280", "efbc", "e282"):
        return ("utf", seen), NONE
    if seen in ("e28892", "e28093", "efbc8d"):
        return ("sign", ""), MINUS
    if seen in _WIDE_DIGITS:
        return ("whole", "4"), WHOLE
    if seen == "c2b1":
        return ("bad", ""), NONE
    return (EDGE, NONE) if byte >= 128 else _outside("edge", "", byte)


def _behind(byte: int, doubt: bool) -> tuple[State, int]:
    """The first byte behind a number."""
    label = DOUBT if doubt else ENDS
    char = chr(byte)
    if doubt and (char in "{}()^" or _digit(byte)):
        return ("odd", ""), PART
    if char == "}":
        return ("closed", ""), label
    if char in "-/:^!±" or byte == 0xC2:
        return ("bad", ""), label
    if char == " ":
        return ("edge", " "), label
    if char == "\\":
        return ("command", ""), label
    return (("index", "") if char == "_" else _high(byte)), label


def _inside(place: str, detail: str, byte: int) -> tuple[State, int]:
    """One byte inside a number."""
    char = chr(byte)
    if _digit(byte):
        if place in ("whole",):
            return (place, str(min(int(detail) + 1, 4))), WHOLE
        if place in ("comma", "group1", "group2"):
            return ({"comma": "group1", "group1": "group2", "group2": "group3"}[place], ""), WHOLE
        follow = {"point": "decimals", "decimals": "decimals", "e": "power", "esign": "power", "power": "power",
                  "stroke": "under", "under": "under"}
        labels = {"decimals": DECIMALS, "power": POWER, "under": UNDER}
        if place in follow:
            return (follow[place], detail), labels[follow[place]]
        return ("odd", ""), PART
    if place in ("whole", "decimals") and byte == 0xEF:
        return (f"wide {place}", "ef"), PART
    if place in ("wide whole", "wide decimals"):
        return _wide(place, detail, byte)
    if place == "odd":
        return (("odd", ""), PART) if char in ".,{^/" or _letter(byte) else _behind(byte, doubt=True)
    if char == "," and (place == "group3" or place == "whole" and detail in "123"):
        return ("comma", ""), PART
    if char == "." and place in ("whole", "group3"):
        return ("point", ""), PART
    if char in ".,!" and place in _READ:
        return (("odd", "") if char == "!" or place == "stop" else ("stop", "")), PART
    if char == "/" and place == "whole":
        return ("stroke", ""), PART
    if char in "eE" and place in ("whole", "group3", "decimals"):
        return ("e", ""), PART
    if char in "+-" and place == "e":
        return ("esign", ""), POWER_MINUS if char == "-" else PART
    if char == "%" and place in ("whole", "group3", "decimals"):
        return ("percent", ""), PERCENT
    return _leave(place, detail, byte)


def _wide(place: str, detail: str, byte: int) -> tuple[State, int]:
    """Inside a number, behind the first byte of what may be a full-width digit."""
    seen = detail + f"{byte:02x}"
    if seen == "efbc":
        return (place, seen), PART
    if seen in _WIDE_DIGITS:
        return (("whole", "4"), WHOLE) if place == "wide whole" else (("decimals", ""), DECIMALS)
    return EDGE, ENDS


def _leave(place: str, detail: str, byte: int) -> tuple[State, int]:
    """A byte that cannot continue the number: is it a unit, a glued letter, or the end?"""
    char = chr(byte)
    if _letter(byte):
        started = {"whole": "", "group3": "", "decimals": "", "unit": detail}.get(place)
        if started is not None and (started + char).lower() in _UNIT_PREFIXES:
            return ("unit", (started + char).lower()), PART
        return (("odd", "") if place in ("stroke", "under", "power", "stop") else ("word", "")), NONE
    if place == "unit" and detail not in _GLUED_UNITS:
        return _outside("word", "", byte)
    if place == "comma":  # a comma behind the number, not inside it
        return _behind(byte, doubt=False)
    if char in "^:" and place != "unit" or char == "!":
        return ("odd", ""), PART
    if place == "unit" and char == "^":
        return ("index", ""), ENDS
    if place in ("group1", "group2", "stroke", "e", "esign"):
        return _behind(byte, doubt=True)
    return _behind(byte, doubt=False)


def _step(state: object, byte: int) -> tuple[State, int]:
    assert isinstance(state, tuple)
    place, detail = state
    if place == "utf":
        return _utf(detail, byte)
    if place == "hedge":
        if detail == "or" and chr(byte) in " ":
            return ("bad", ""), NONE
        if detail == "o" and chr(byte) == "r":
            return ("hedge", "or"), NONE
        return _outside("word", "", byte)
    if place in ("edge", "word", "command", "bad", "sign", "coin", "index", "closed"):
        return _outside(place, detail, byte)
    return _inside(place, detail, byte)


def _accept(state: object) -> int:
    assert isinstance(state, tuple)
    place, detail = state
    if place == "unit":
        return NUMBER if detail in _GLUED_UNITS else 0
    if place in ("comma",) or place in _READ:
        return NUMBER
    return DOUBTFUL if place in ("odd", "group1", "group2", "stroke", "e", "esign") else 0


@dataclass(frozen=True)
class Scanner:
    """The machine, and the number of its state for a text whose beginning is cut off."""

    machine: Machine
    cut: int


@functools.cache
def scanner() -> Scanner:
    """The automaton for running text. At the end of a text: NUMBER, DOUBTFUL or 0 if none just ended."""
    machine, numbers = explore(EDGE, _step, _accept, also=[UNKNOWN])
    return Scanner(machine, numbers[UNKNOWN] * machine.width)


def scanner_machine() -> Machine:
    """The machine of `scanner`."""
    return scanner().machine
