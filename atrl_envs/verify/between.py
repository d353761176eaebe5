"""Running text outside of numbers: where does one begin, and does what stands around it change its value?

outside(State("edge"), "7")            # State("whole", "1"), WHOLE
outside(State("edge", " million"), ",")     # .., DOUBT: the number before it is not what its digits say
"""

from __future__ import annotations

from atrl_envs.verify import vocabulary
from atrl_envs.verify.labels import DECIMALS, DOUBT, MINUS, NONE, OVER, PART, TEN, WHOLE
from atrl_envs.verify.running import (
    BEHIND,
    BLANKS,
    EDGE,
    FRACTIONS,
    POWERS,
    TIMES,
    State,
    is_digit,
    is_letter,
)

# What is said behind a number; each begins with the blank, and ends where the letters do.
SAID = frozenset(f" {word}" for word in vocabulary.CHANGES_BEHIND)
SIGNS = vocabulary.SIGNS | vocabulary.FUNCTIONS
_BEGUN = frozenset(word[:size] for word in SAID | SIGNS for size in range(1, len(word)))
# Commands that change nothing: behind a number they are decoration, and so are their braces around one.
_PLAIN = frozenset("text mbox hbox textrm textit textbf mathrm mathbf mathit boxed fbox".split())
_QUIET = _PLAIN | frozenset("right quad qquad degree end displaystyle qed square blacksquare".split())
_NUMERIC = frozenset(word[:size] for word in FRACTIONS + TIMES for size in range(1, len(word) + 1))
_CHANGING = vocabulary.FUNCTIONS | {"pm", "mp", "choose", "minus", "textminus"}  # commands before a number
_OTHERS = frozenset(word[:size] for word in _QUIET | _CHANGING for size in range(1, len(word) + 1))


def outside(state: State, char: str) -> tuple[State, int]:
    """One character outside a number."""
    place = state.place
    if is_digit(char):
        return _first_digit(state, char)
    if place == "command":
        return _in_command(state, char)
    if place in ("times", "x", "glued", "stars", "dash", "quote"):
        return _behind_mark(state, char)
    if place == "edge" and (is_letter(char) or is_letter(state.detail[-1:])):
        return _in_phrase(state, char)
    if place == "edge" and state.detail == " " and (found := _behind_blank(state, char)):
        return found
    if place == "closed" and state.detail and (found := _behind_bracket(char)):
        return found
    if place == "index" and char in "{-+(":
        return State("index", state.detail), NONE
    if place == "bad" and char in "{(-+*$." + BLANKS:
        return State("bad"), NONE
    if place == "sign":
        return _behind_sign(state, char)
    if place == "coin" and char in BLANKS:
        return state, PART
    if place in ("word", "index") and state.detail == "digit" and char in BLANKS:
        return BEHIND, NONE
    if place == "index" and state.detail == "up" and char == " ":
        return state, NONE
    if (char == "{" and place == "closed") or (char in "$-" and place == "coin" and state.detail):
        return State("bad"), NONE
    if char == "\\" and place == "coin" and state.detail:
        return State("command", "", "sign"), PART
    return _anywhere(state, char)


def _anywhere(state: State, char: str) -> tuple[State, int]:
    """What a character begins, whatever the place."""
    place, detail, _ = state
    if is_letter(char):
        return State("word"), DOUBT if place == "index" and detail == "unit" else NONE
    if char == ".":
        if place in ("word", "index", "dot"):
            return State("dot", "word" if place != "dot" and (detail or place == "index") else "bad"), NONE
        return State("dot"), PART
    if char == "," and place in ("word", "index") and detail:
        return State("dot", "word"), NONE
    if char == "-" and place not in ("word", "closed"):
        return State("sign"), MINUS
    if char == "$":
        return State("coin"), (PART if place == "coin" else NONE)
    if char == "\\":
        return State("command", "", "index" if place in ("index", "bad") else ""), PART
    if char in "_^":
        return State("index", "up" if char == "^" else ""), NONE
    if char in "-/±√":
        return State("bad"), NONE
    if char == "—":  # a dash, unless a number follows at once
        return State("quote"), NONE
    if char == "½":
        return State("odd"), PART
    return (State("closed") if char in "})" else EDGE), NONE


def _first_digit(state: State, char: str) -> tuple[State, int]:
    place, detail, tie = state
    if place == "glued" and detail + char in ("x1", "x10"):
        return State("glued", detail + char, tie), PART
    if place in ("word", "index", "x", "glued") or (place == "dot" and detail == "word"):
        return State("index" if place == "index" else "word", "digit"), DOUBT if tie == "factor" else NONE
    if place in ("bad", "command", "dash", "quote") or (place == "dot" and detail):
        return State("odd"), PART
    if place == "stars" and not detail:
        return State("odd"), PART
    if place == "edge" and is_letter(detail[-1:]):
        return State("word", "digit"), DOUBT if detail in SAID else NONE
    if place == "dot":
        return State("decimals"), DECIMALS
    if place == "times" and char == "1":
        return State("ten1", "tex" if detail == "tex" else "plain", "factor"), TEN
    before = ""
    if place == "edge" and tie:
        before = tie if tie in ("two", "whole", "group") else "alone"
    # Groups behind a blank and the numerator of a mixed number look alike at first, so both are labelled alike.
    label = OVER if before in ("two", "whole", "group") else WHOLE
    # A number in groups does not begin with a zero; a group may.
    count = "1" if char != "0" else "z1" if before else "4"
    return State("whole", count, "factor" if place == "times" else before), label


def _in_phrase(state: State, char: str) -> tuple[State, int]:
    """In words that may say something about the number before them, or be a sign of the next."""
    _, detail, tie = state
    if is_letter(char):
        if char in "xX" and detail == " " and tie in POWERS:
            return State("x"), PART
        letter = char if char == "M" and detail == " " else char.lower()  # `5 M` is a million, `5 m` is not
        said = detail.replace("M", "m") + letter
        return (State("edge", said) if said in _BEGUN or said in SAID | SIGNS else State("word")), NONE
    if detail in SAID or detail in SIGNS:
        after = State("bad") if detail in SIGNS or detail == " or" else outside(EDGE, char)[0]
        return after, DOUBT if detail in SAID else NONE
    if char == " " and f"{detail} " in _BEGUN:
        return State("edge", f"{detail} "), NONE
    return outside(State("word"), char)


def _behind_blank(state: State, char: str) -> tuple[State, int] | None:
    """One or more blanks behind a number; None for what has nothing to do with it."""
    tie = state.tie
    if char in BLANKS:
        return (State("edge", " ", "alone") if char == " " else BEHIND), NONE
    if tie in POWERS and char in "*×·":
        return State("times", "plain"), PART
    if tie in ("two", "whole") and char == "/":
        return State("stroke", "blank", "joined"), PART
    if char == "-":
        return State("sign", "behind"), MINUS
    if char == "\\":
        # Behind a backslash ties that allow the same are one.
        ties = {"whole": "two", "group": "decimal", "decimal+": "decimal"}
        return State("command", "", ties.get(tie, tie) or "alone"), PART
    if char in "^!+*×·/÷±√π_½万":
        return outside(State("bad") if char in "*×·/÷±√" else EDGE, char)[0], DOUBT
    return None


def _behind_bracket(char: str) -> tuple[State, int] | None:
    """Right behind a bracket in which a number stands."""
    if char in BLANKS:
        return BEHIND, NONE
    if char == "\\":
        return State("command", "", "alone"), PART
    if char == "-":
        return State("dash"), NONE
    if is_letter(char) or char in "^!+*×·/÷±√π_½({":
        return State("bad") if char in "*×·/÷±√({" else outside(EDGE, char)[0], DOUBT
    return None


def _behind_sign(state: State, char: str) -> tuple[State, int]:
    if char == ".":
        return State("dot"), PART
    if char == "$":
        return State("coin", "sign"), PART
    if char in "({":
        return State("sign"), PART
    if char == "\\":
        return State("command", "", "sign"), PART
    if is_letter(char):
        return State("word"), DOUBT if state.detail else NONE
    return State("bad"), NONE


def _behind_mark(state: State, char: str) -> tuple[State, int]:
    """Behind a mark that may join the number before it to the next, or be something else."""
    place, detail, tie = state
    if place == "glued":
        if detail + char == "x10^":
            return State("raise", "plain", tie), PART
        after, label = outside(State("word", "digit" if detail != "x" else ""), char)
        return after, DOUBT if tie == "factor" else label
    if place == "x":
        return (State("times", "plain"), PART) if char == " " else outside(State("word"), char)
    if place == "times":
        if char == " ":
            return state, PART
        if char == "*":
            return State("stars", "" if detail == "star" else "apart"), NONE if detail == "star" else DOUBT
        after, label = outside(EDGE, char)
        # A star right behind a number may end italics.
        return after, label if char in "-.$" or (detail == "star" and char in ",;:!?)]\"'\n\r") else DOUBT
    if place == "stars" and detail:  # `2 ** 3` is a power, in `2 **3**` bold begins
        return (State("bad"), NONE) if char in BLANKS else outside(EDGE, char)
    if is_letter(char) and place != "quote":
        return State("word"), DOUBT
    if char == "." and place == "dash":
        return State("bad"), NONE
    return (BEHIND, NONE) if char in BLANKS and place == "stars" else outside(EDGE, char)


def _in_command(state: State, char: str) -> tuple[State, int]:
    """In a name behind a backslash. tie: of the number before, "sign" or "index" behind one of these, or none."""
    _, detail, tie = state
    name = detail + char
    behind = tie in ("two", "decimal", "alone")
    if name in FRACTIONS and tie in ("", "two", "sign"):
        return State("fraction", "top", "joined" if tie == "two" else ""), PART
    if name in TIMES and tie in ("two", "decimal"):
        return State("times", "tex"), PART
    if is_letter(char):
        if name in _NUMERIC:
            return State("command", name, tie), PART
        if tie != "sign" and name in _OTHERS:
            return State("command", name, "alone" if behind else tie), PART
        return State("command", "other", "sign" if tie == "sign" else ""), DOUBT if behind else NONE
    if tie == "sign":
        return (State("coin", "sign"), PART) if char == "$" and not detail else (State("bad"), NONE)
    if detail in _CHANGING or (detail in FRACTIONS and tie):
        return State("bad") if char == "[" else outside(State("bad"), char)[0], DOUBT if behind else NONE
    if char == "{" and detail:
        after = State("bad") if detail not in _PLAIN or tie == "index" else BEHIND if behind else EDGE
        return after, DOUBT if behind and detail not in _QUIET else NONE
    if behind and char in BLANKS + (",;:!)]" if not detail else ")]"):
        return BEHIND, DOUBT if detail and detail not in _QUIET else NONE
    if not detail and (tie == "index" or char not in "$%&#_{}"):
        return State("bad") if tie == "index" else EDGE, DOUBT if behind and char != "\\" else NONE
    after, label = outside(EDGE, char)
    return after, DOUBT if behind and detail and detail not in _QUIET else label
