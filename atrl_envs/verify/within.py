"""Running text inside a number: does the next character go on with it, end it, or make it one that is not read?

inside(State("whole", "1"), ",")       # State("comma"), PART
inside(State("whole", "2"), " ")       # State("edge", " ", "two"), JOINT: `20 000` may go on, `20 apples` does not
"""

from __future__ import annotations

from atrl_envs.verify.between import outside
from atrl_envs.verify.labels import (
    DECIMALS,
    DOUBT,
    MINUS,
    NONE,
    OVER,
    PART,
    PERCENT,
    POWER,
    POWER_MINUS,
    TEN,
    UNDER,
    WHOLE,
)
from atrl_envs.verify.running import (
    BEHIND,
    BLANKS,
    EDGE,
    FRACTIONS,
    POWERS,
    SENTENCE,
    TIMES,
    UNITS,
    State,
    ending,
    is_digit,
    is_letter,
    past,
    tie_of,
)

_UNIT_PREFIXES = frozenset(unit[:size] for unit in UNITS for size in range(1, len(unit) + 1))
_NEXT_DIGIT = {
    "comma": ("group1", WHOLE), "group1": ("group2", WHOLE), "group2": ("group3", WHOLE), "thin": ("group1", WHOLE),
    "point": ("decimals", DECIMALS), "decimals": ("decimals", DECIMALS),
    "e": ("power", POWER), "esign": ("power", POWER), "power": ("power", POWER),
    "stroke": ("under", UNDER), "under": ("under", UNDER),
}  # fmt: skip
_TRACKED = frozenset(w[:size] for w in (*FRACTIONS, *TIMES, "pm", "mp") for size in range(1, len(w) + 1))
_DIGITS = ("whole", "group3", "decimals", "ten1", "ten")
_OPEN = "^_({[+±÷√"  # a formula goes on behind them
_DEGREES = ("\\circ", "{\\circ}")


def inside(state: State, char: str) -> tuple[State, int]:
    """One character inside a number."""
    place = state.place
    if place == "fraction":
        return _in_fraction(state, char)
    if place == "raise":
        return _in_power(state, char)
    if place == "slash":
        return _in_slash(state, char)
    if place == "caret":
        return _in_degree(state, char)
    if is_digit(char):
        return _next_digit(state, char)
    if place == "odd":
        if char in ".,})!½π" or char in _OPEN + "/-" or is_letter(char):
            return State("odd", "open" if char in _OPEN + "/-" else ""), PART
        # Behind a blank that stands in a formula no number begins.
        return (State("bad"), DOUBT) if state.detail and char in BLANKS else _behind("doubt", char)
    own = tie_of(state)
    return _behind_part(state, char) or _behind_digits(state, char, own) or _leave(state, char, own)


def _next_digit(state: State, char: str) -> tuple[State, int]:
    place, detail, tie = state
    if place == "whole":
        zero, count = ("z", detail[1:]) if detail[0] == "z" else ("", detail)
        after = State("whole", zero + str(min(int(count) + 1, 4)), tie)
        return after, OVER if tie in ("two", "whole", "group") else WHOLE
    if place == "ten1":
        return (State("ten", detail, tie), TEN) if char == "0" else (State("whole", "2", tie), WHOLE)
    if place == "ten":
        return State("whole", "3", tie), WHOLE
    next_place, label = _NEXT_DIGIT.get(place, ("odd", PART))
    return State(next_place, "", tie), label


def _behind_part(state: State, char: str) -> tuple[State, int] | None:
    """What goes on with a part of a number that needs more, None for anything else."""
    place, detail, tie = state
    if place == "ten" and char == "^":
        return State("raise", detail, "joined"), PART
    if place == "point" and char in "eE":
        return State("e", "", tie), PART
    if place == "e" and char in "+-":
        return State("esign", "", tie), (POWER_MINUS if char == "-" else PART)
    if place == "stroke":
        if char == " ":
            return state, PART
        if char == "-" and not tie:
            return State("stroke", "-", tie), MINUS
        return (outside(State("bad"), char)[0], DOUBT) if detail == "blank" else None
    if place == "comma" and char == "\\":
        return State("comma\\", "", tie), PART
    if place == "comma\\":
        return (State("thin", "", tie), PART) if char == "!" else inside(State("slash"), char)
    if place == "thin" and char == " ":
        return state, PART
    if place == "brace" and detail + char in ("{,", "{,}"):
        return (State("comma", "", tie) if char == "}" else State("brace", "{,", tie)), PART
    if place == "degree" and char in "cCfF":
        return state, PART
    return None


def _behind_digits(state: State, char: str, own: str) -> tuple[State, int] | None:
    """What may follow the digits of a whole number or a decimal, None for anything else."""
    place, detail, tie = state
    if place not in _DIGITS or own == "doubt":
        return None
    before = past(own)
    few = place in ("group3", "ten1", "ten") or (place == "whole" and detail in ("1", "2", "3"))
    if char == "," and few and before != "joined":
        return State("comma", "", before), PART
    if char == "{" and few and before != "joined":
        return State("brace", "{", before), PART
    if char == "." and place != "decimals":
        return State("point", "", before), PART
    if char == "/" and place in ("whole", "ten1", "ten"):
        if tie in ("group", "alone"):
            return State("odd", "open"), PART
        return State("stroke", "", "joined" if tie in ("two", "whole") else ""), PART
    if char in "eE":
        return State("e", "", before), PART
    if char == "%":
        return State("percent", "", before), PERCENT
    if char == "^":
        return State("caret", "", before), PART
    if char == "°":
        return State("degree", "", before), PART
    if char == " ":
        return State("edge", " ", own), ending(own, joint=True)
    if own in POWERS:
        if char in "*×·":
            return State("times", "star" if char == "*" else "plain"), ending(own, joint=True)
        if char in "xX":
            return State("glued", "x", tie if tie == "factor" else before), PART
    return None


def _in_fraction(state: State, char: str) -> tuple[State, int]:
    """In `\\frac{1}{2}` or `\\frac12`, behind the name. The detail: which side, and what was seen of it."""
    _, detail, tie = state
    side, seen = detail.rstrip("{-1 "), detail.lstrip("topbm")
    label = OVER if side == "top" else UNDER
    done = State("fraction", "bottom", tie) if side == "top" else State("ratio", "", tie.replace("mixed", ""))
    if is_digit(char) and not seen:
        return done, label
    if is_digit(char) and seen in ("{", "{-", "{1"):
        return State("fraction", f"{side}{{1", tie), label
    if char == "{" and not seen:
        return State("fraction", f"{side}{{", tie), PART
    if char in BLANKS:
        return State("fraction", f"{detail} " if seen == "{1" else detail, tie), PART
    if char == "}" and seen in ("{1", "{1 "):
        return done, PART
    if char in "+-" and seen == "{" and not tie:
        return State("fraction", f"{side}{{-", tie), (MINUS if char == "-" else PART)
    return State("odd"), PART


def _in_power(state: State, char: str) -> tuple[State, int]:
    """Behind `10^`. TeX raises one digit only where there are no braces; plain text means them all."""
    _, detail, tie = state
    if is_digit(char) and detail != "{1 ":
        bare = {"tex": State("figure", "", tie), "plain": State("power", "", tie)}.get(detail.rstrip("-"))
        return bare or State("raise", "{1", tie), POWER
    if char == "{" and detail in ("tex", "plain"):
        return State("raise", "{", tie), PART
    if char in "+-" and detail in ("plain", "{"):
        return State("raise", f"{detail}-", tie), (POWER_MINUS if char == "-" else PART)
    if char in BLANKS and detail == "tex":
        return state, PART
    if char in BLANKS and detail[0] == "{":
        return State("raise", "{1 " if detail[:2] == "{1" else detail, tie), PART
    if char == "}" and detail[:2] == "{1":
        return State("raised", "", tie), PART
    return State("odd", "open"), PART


def _in_slash(state: State, char: str) -> tuple[State, int]:
    """Behind a number and a backslash: a mark, or the name of a command."""
    _, detail, tie = state
    name = detail + char
    if not is_letter(char):
        if detail:
            return State("odd"), PART
        if char in ", ":
            return State("edge", " ", tie), ending(tie, joint=True)
        if char == "%":
            return State("percent", "", past(tie)), PERCENT
        if char in ")];:!":
            return BEHIND, ending(tie)
        return (EDGE, ending(tie)) if char in "\\$&#{}" else (State("odd"), PART)
    if name in ("pm", "mp"):
        return State("bad"), DOUBT
    if name in FRACTIONS and tie in ("two", "whole"):
        return State("fraction", "top", "mixed"), PART
    if name in TIMES and tie in POWERS:
        return State("times", "tex"), ending(tie, joint=True)
    if name in _TRACKED:
        ties = {"whole": "two", "decimal+": "group"}  # behind a letter these allow the same
        return State("slash", name, ties.get(tie, tie)), PART
    after, label = State("command", "", "alone"), 0
    for letter in name:
        after, label = outside(after, letter)
    return after, DOUBT if label == DOUBT else ending(tie)


def _in_degree(state: State, char: str) -> tuple[State, int]:
    """Behind a number and `^`: a degree mark, or a power, which is not read."""
    seen = state.detail + char
    if seen in _DEGREES:
        return State("degree", "", state.tie), PART
    return (
        State("caret", seen, state.tie) if any(m.startswith(seen) for m in _DEGREES) else State("odd")
    ), PART


def _leave(state: State, char: str, own: str) -> tuple[State, int]:
    """A character that cannot continue the number: is it a unit, a glued letter, or the end?"""
    place, detail, tie = state
    if is_letter(char):
        unit = (detail if place == "unit" else "") + char
        unit = unit.lower() if unit != "M" else unit  # a million
        digits = place in _DIGITS and own != "doubt"
        if (digits or place == "unit") and (unit in _UNIT_PREFIXES or unit == "M"):
            return State("unit", unit, tie if tie == "factor" or not digits else past(own)), PART
        glued = digits or place == "unit"
        return (State("word"), DOUBT if tie == "factor" else NONE) if glued else (State("odd"), PART)
    if place == "unit":
        if detail not in UNITS:
            after, label = outside(State("word"), char)
            return after, DOUBT if tie == "factor" else label
        return (State("index", "unit"), ending(own)) if char == "^" else _behind(own, char)
    if char in "!:½π万" or char in _OPEN or (place in ("point", "stop") and char == "."):
        return State("odd", "open" if char in _OPEN else ""), PART
    if own != "doubt":
        if char == "\\":
            return State("slash", "", own), PART
        if char == "%":
            return State("percent", "", past(own)), PERCENT
        if char in ".," and place not in SENTENCE:
            return State("stop", "", past(own)), PART
    return _behind(own, char)


def _behind(own: str, char: str) -> tuple[State, int]:
    """The first character behind a number."""
    label = ending(own)
    if char == " ":
        return (BEHIND if own == "" else State("edge", " ", "alone")), label
    if char in BLANKS + "$":
        return BEHIND, label
    if char in "/:~*×·":
        return State("bad"), label
    after = {
        "-": State("dash"),
        "'": State("quote"),
        "—": State("quote"),
        "}": State("closed", "n"),
        ")": State("closed", "n"),
        "]": State("closed"),
        "\\": State("command", "", "index" if own == "doubt" else "alone"),
        "_": State("index"),
    }
    return after.get(char, EDGE), label
