"""What is known at a place of running text: is it inside a number, and may that number go on?

    tie_of(State("whole", "2"))                  # "two": a group of three digits or `1/2` may follow a blank
    tie_of(State("whole", "3", "two"))           # "group": `20 000` is one number

The rules are a transition function over characters: `between.py` has those outside of numbers, `within.py` those
inside. Where they see a number and are not sure of its value they say DOUBT, and the answer is left open.
"""

from __future__ import annotations

from typing import NamedTuple

from atrl_envs.verify import vocabulary
from atrl_envs.verify.labels import DOUBT, ENDS, ENDS_JOINED, JOINT, JOINT_JOINED


class State(NamedTuple):
    """Where a text is, with a detail; `tie`: how the number here, or the one before, is tied to another.

    Places outside of numbers:
      edge: a number may begin here; detail: " " and the letters since, behind a number; letters that may be `minus`
      word, index: digits do not count, behind a letter or behind ^ and _     (detail "digit": one came)
      dot: behind a period that may be a point       (detail "word": it is none, "bad": perhaps it is one)
      command: in a name behind a backslash          closed: behind a closing bracket (detail "n": of a number)
      sign: behind a minus that may belong           coin: behind a currency sign
      times: behind a sign of multiplication         x: behind an x that may be one (glued: to a number)
      stars, dash, quote: behind `**`, `-` and `'` that a number stands before
      bad: whatever number begins here is not read
    Places in numbers: whole; ten1, ten (perhaps of a power of ten); comma, comma\\, thin (,\\!), brace ({,}); group1
      to group3; point, decimals; e, esign, power, raise (behind 10^), figure, raised; stroke, under; fraction (in
      \\frac), ratio (behind it); percent, caret, degree, unit; stop (behind a sentence period); slash (behind a
      backslash); odd (not read).
    Ties of what may follow a number behind a blank, see `tie_of`:
      two: it has up to three digits, so groups of three, a fraction, or a power of ten may be joined to it
      whole: more digits, so a fraction or a power       group: groups of digits, so groups or a power
      decimal: a power; decimal+: a power, and it is joined to what stands before
      alone: nothing; alone+: nothing, and it is joined to what stands before; doubt: it is not read
    Ties of a number that is not over: two, whole, group, alone as above, of what stands before it; joined: with that;
      factor: it stands behind a sign of multiplication.
    """

    place: str
    detail: str = ""
    tie: str = ""


EDGE = State("edge")
BEHIND = State("edge", " ")  # some blanks behind a number to which nothing can be joined
OUTSIDE = frozenset("edge word dot index command closed sign coin times x glued stars dash quote bad".split())
BLANKS = " \t\n\r\v\f"
UNITS = vocabulary.SHORT_UNITS | {"m"}
SENTENCE = frozenset({"point", "stop", "comma"})  # what follows begins anew
READ = SENTENCE | frozenset("under ratio power figure raised percent degree brace thin".split())
POWERS = frozenset({"two", "whole", "group", "decimal", "decimal+"})  # what a power of ten may be joined to
JOINED = frozenset({"group", "decimal+", "alone+"})
FRACTIONS = ("frac", "dfrac", "tfrac", "cfrac")
TIMES = ("times", "cdot")


def tie_of(state: State) -> str:
    """How the number that ends here is tied to what stands before it, and what may be joined to it."""
    place, detail, tie = state
    if place == "slash":
        return "doubt" if detail else tie
    if place in ("ten1", "ten"):
        return "two"
    if place == "whole":
        three = detail in ("3", "z3")
        if tie in ("two", "group") and three:
            return "group"
        if tie == "group" or (tie == "alone" and three):
            return "doubt"
        if tie not in ("", "factor"):
            return "alone"
        return "two" if detail in ("1", "2", "3") else "whole"
    if place in ("group3", "decimals"):
        return {"": "decimal", "joined": "decimal+"}.get(tie, "alone")
    if place in READ or (place == "unit" and detail in UNITS):
        return "alone+" if tie == "joined" else ("" if place in SENTENCE else "alone")
    return "doubt"


def past(tie: str) -> str:
    """The tie of a number that goes on, from `tie_of` of what there is of it."""
    return "joined" if tie in JOINED else ("alone" if tie == "alone" else "")


def ending(tie: str, joint: bool = False) -> int:
    """The label of the character behind a number; joint: what follows may be joined to it."""
    if tie == "doubt":
        return DOUBT
    if joint and tie in POWERS:
        return JOINT_JOINED if tie in JOINED else JOINT
    return ENDS_JOINED if tie in JOINED else ENDS


def is_letter(char: str) -> bool:
    return char < "\x80" and char.isalpha()


def is_digit(char: str) -> bool:
    return "0" <= char <= "9"
