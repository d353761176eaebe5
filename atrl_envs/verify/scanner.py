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

# A state is (place, detail). Places outside a number:
#   edge: a number may begin here; its detail is what a hedge has said so far behind a number (" or ")
#   word: behind a letter, digits do not count     index: behind ^ or _, digits do not count
#   dot: behind a period that may belong           (detail "word": digits glued to a word came before it)
#   command: in a name behind a backslash          closed: behind a closing bracket (of a number: detail "n")
#   sign: behind a minus that may belong           coin: behind a currency sign
#   bad: whatever number begins here is not read
# inside: whole, comma, group1 to group3, point, decimals, e, esign, power, stroke, under, percent, unit, and
#   spaced (one blank behind another number), stop (behind a sentence period), slash (behind a backslash),
#   odd (not read).
# high: inside a character of several bytes; its detail is the state before it and the bytes so far.
State = tuple[str, str]
EDGE: State = ("edge", "")
CUT: State = ("word", "cut")  # in the middle of a text whose beginning is not in sight

DOUBTFUL = 3  # code of a text that ends in something that holds a number and is not read
_OUTSIDE = frozenset({"edge", "word", "dot", "index", "command", "closed", "sign", "coin", "bad"})
_READ = frozenset(
    {"slash", "whole", "group3", "decimals", "point", "power", "under", "percent", "stop", "comma"}
)
_MARKS = {"e28892": "-", "e28093": "-", "efbc8d": "-", "c2b1": "±", "c2b2": "^", "c2b3": "^"}  # − – － ± ² ³
_MARKS.update({f"efbc{0x90 + digit:02x}": "0" for digit in range(10)})
_MARK_PREFIXES = frozenset(mark[:size] for mark in _MARKS for size in range(2, len(mark), 2))
_UNITS = vocabulary.SHORT_UNITS | {"m"}
_UNIT_PREFIXES = frozenset(unit[:size] for unit in _UNITS for size in range(1, len(unit) + 1))
_SCALES = frozenset({" hundred", " thousand", " million", " billion", " trillion", " dozen"})
_SAID = frozenset(word[:size] for word in {" or", *_SCALES} for size in range(2, len(word) + 1))
_KEPT_COMMANDS = frozenset({"te", "mb", "ma", "ri", "qu", "de"})  # \text \mbox \mathrm \right \quad \degree
_NEXT_DIGIT = {
    "comma": ("group1", WHOLE), "group1": ("group2", WHOLE), "group2": ("group3", WHOLE),
    "point": ("decimals", DECIMALS), "decimals": ("decimals", DECIMALS),
    "e": ("power", POWER), "esign": ("power", POWER), "power": ("power", POWER),
    "stroke": ("under", UNDER), "under": ("under", UNDER),
}  # fmt: skip


def _is_letter(char: str) -> bool:
    return char < "\x80" and char.isalpha()


def _outside(place: str, detail: str, char: str) -> tuple[State, int]:
    """One byte outside a number."""
    if "0" <= char <= "9":
        if place in ("word", "index") or (place == "dot" and detail):
            return ("index" if place == "index" else "word", "digit"), NONE
        if place == "dot":
            return ("decimals", ""), DECIMALS
        if place in ("bad", "command"):
            return ("odd", ""), PART
        if place == "edge" and detail == " ":
            return ("spaced", "1"), WHOLE
        return ("whole", "1" if char != "0" else "4"), WHOLE
    if _is_letter(char):
        if place == "command":
            return ("command", detail + char if detail + char in ("p", "m", "pm", "mp") else "other"), NONE
        said = detail + char.lower() if place == "edge" else ""
        if said in _SCALES:
            return ("word", ""), DOUBT
        return (("edge", said) if said in _SAID else ("word", "")), NONE
    if (place == "edge" and detail == " or") or (place == "command" and detail in ("pm", "mp")):
        return ("bad", ""), NONE
    if place == "bad" and char in " {(-+$":
        return ("bad", ""), NONE
    if char == "-" and place not in ("word", "closed", "sign"):
        return ("sign", ""), MINUS
    if char in ".," and place == "word" and detail == "digit":
        return ("dot", "word"), NONE
    if char == "." and place in ("edge", "sign", "coin", "closed", "dot"):
        return ("dot", ""), PART
    if char == "^" and detail == "n":
        return ("bad", ""), NONE
    if char == "$":
        return ("coin", ""), (PART if place in ("sign", "coin") else NONE)
    if char in "_^" or (place == "index" and char == "{"):
        return ("index", ""), NONE
    if char in "-/±" or (place == "closed" and char == "{") or place == "sign":
        return ("bad", ""), NONE
    return ({"\\": ("command", ""), "}": ("closed", ""), ")": ("closed", "")}.get(char, EDGE)), NONE


def _behind(char: str, doubt: bool = False) -> tuple[State, int]:
    """The first byte behind a number."""
    label = DOUBT if doubt else ENDS
    if char == " ":
        return ("edge", " "), label
    if char in "-/:±":
        return ("bad", ""), label
    after = {
        "}": ("closed", "n"),
        ")": ("closed", "n"),
        "\\": ("command", ""),
        "_": ("index", ""),
        "$": ("coin", ""),
    }
    return after.get(char, EDGE), label


def _inside(place: str, detail: str, char: str) -> tuple[State, int]:
    """One byte inside a number."""
    if "0" <= char <= "9":
        if place in ("whole", "spaced"):
            return ("whole" if detail in "34" else place, str(min(int(detail) + 1, 4))), WHOLE
        after, label = _NEXT_DIGIT.get(place, ("odd", PART))
        return (after, ""), label
    if place == "spaced":  # `20 000` may be one number, `1 1/2` surely is: neither is read here
        return _spaced(detail, char)
    if place == "slash":
        return _command(detail, char)
    if place == "odd":
        return (("odd", ""), PART) if char in ".,{}()^/!" or _is_letter(char) else _behind(char, doubt=True)
    if place in ("whole", "group3"):
        if char == "," and (place == "group3" or detail in "123"):
            return ("comma", ""), PART
        if char == ".":
            return ("point", ""), PART
        if char == "/" and place == "whole":
            return ("stroke", ""), PART
    if place in ("whole", "group3", "decimals"):
        if char in "eE":
            return ("e", ""), PART
        if char == "%":
            return ("percent", ""), PERCENT
    if char in "+-" and place == "e":
        return ("esign", ""), (POWER_MINUS if char == "-" else PART)
    if char in ".," and place in _READ and place not in ("stop", "comma", "point"):
        return ("stop", ""), PART
    return _leave(place, detail, char)


def _spaced(detail: str, char: str) -> tuple[State, int]:
    """Behind digits that stand one blank behind another number."""
    if detail == "3":
        return (("odd", ""), PART) if char in ".,/\\" or _is_letter(char) else _behind(char, doubt=True)
    return (("odd", ""), PART) if char == "/" else _inside("whole", detail, char)


def _command(detail: str, char: str) -> tuple[State, int]:
    """Behind a number and a backslash: a unit or a mark ends the number, a factor such as \\pi changes it."""
    name = detail + char
    if name in ("pm", "mp"):
        return ("bad", ""), DOUBT
    if _is_letter(char):
        if len(name) == 1:
            return ("slash", name), PART
        return (("command", "other"), ENDS) if name in _KEPT_COMMANDS else (("odd", ""), PART)
    if name == "%":
        return ("percent", ""), PERCENT
    return (EDGE, ENDS) if not detail else (("odd", ""), PART)


def _leave(place: str, detail: str, char: str) -> tuple[State, int]:
    """A byte that cannot continue the number: is it a unit, a glued letter, or the end?"""
    if _is_letter(char):
        unit = (detail if place == "unit" else "") + char.lower()
        if place in ("whole", "group3", "decimals", "unit") and unit in _UNIT_PREFIXES:
            return ("unit", unit), PART
        glued = place in ("whole", "group3", "decimals", "unit", "percent")
        return (("word", "") if glued else ("odd", "")), (NONE if glued else PART)
    if place == "unit":
        if detail not in _UNITS:
            return _outside("word", "", char)
        return (("index", ""), ENDS) if char == "^" else _behind(char)
    if char in "^!:" or (place in ("point", "stop") and char == "."):
        return ("odd", ""), PART
    if char == "\\" and place in _READ:
        return ("slash", ""), PART
    return _behind(char, doubt=place not in _READ)


def _high(before: State, seen: str) -> tuple[State, int]:
    """Inside or at the end of a character of several bytes."""
    place, detail = before
    inside = place not in _OUTSIDE
    if seen in _MARK_PREFIXES:
        return ("high", f"{place}|{detail}|{seen}"), (PART if inside or place in ("sign", "coin") else NONE)
    mark = _MARKS.get(seen)
    if mark == "0":  # a digit: never part of a group of three, so its run counts as long
        if place in ("whole", "point", "decimals"):
            return (("whole", "4"), WHOLE) if place == "whole" else (("decimals", ""), DECIMALS)
        return (("odd", ""), PART) if inside else _outside(place, detail, "0")
    if mark:
        return _step_char(before, mark)
    if inside and not (place == "unit" and detail not in _UNITS):
        sure = place in _READ or place == "unit" or (place == "spaced" and detail != "3")
        return EDGE, (ENDS if sure else DOUBT)
    return EDGE, NONE


def _step_char(state: State, char: str) -> tuple[State, int]:
    return (_outside if state[0] in _OUTSIDE else _inside)(*state, char)


def _step(state: State, byte: int) -> tuple[State, int]:
    place, detail = state
    if place == "high":
        before, more, seen = detail.split("|")
        if byte >= 0x80:
            return _high((before, more), seen + f"{byte:02x}")
        place, detail = ("edge", "") if before in _OUTSIDE else (before, more)
    return _high((place, detail), f"{byte:02x}") if byte >= 0x80 else _step_char((place, detail), chr(byte))


def _accept(state: State) -> int:
    place, detail = state
    if place == "high":
        return 0 if detail.split("|")[0] in _OUTSIDE else DOUBTFUL
    if place == "unit":
        return NUMBER if detail in _UNITS else 0
    if place == "spaced":
        return DOUBTFUL if detail == "3" else NUMBER
    return NUMBER if place in _READ else 0 if place in _OUTSIDE else DOUBTFUL


@dataclass(frozen=True)
class Scanner:
    """The machine, and the number of its state for a text whose beginning is cut off."""

    machine: Machine
    cut: int


@functools.cache
def scanner() -> Scanner:
    """The automaton for running text. Codes at the end of a text: NUMBER, DOUBTFUL, or 0 if none just ended."""
    machine, numbers = explore(EDGE, _step, _accept, also=[CUT])
    return Scanner(machine, numbers[CUT] * machine.width)


def scanner_machine() -> Machine:
    """The machine of `scanner`."""
    return scanner().machine
