"""From the bytes of an answer to a verdict: one walk of an automaton down the bytes, and an exact comparison.

verdict = judge_alone(answer, style, tables, gold)           # [B] int8
verdict = judge_running(answer, cut, tables, gold)           # style last_number
"""

from __future__ import annotations

from atrl_envs.verify import labels as L
from atrl_envs.verify.automaton import END, SKIP
from atrl_envs.verify.compaction import squeeze, squeeze_before
from atrl_envs.verify.extract import SIGHT_BEHIND, STEPS_BEFORE, WINDOW, Answer, last_digit
from atrl_envs.verify.masks import (
    Array,
    along,
    at_least,
    below,
    equals,
    highest,
    pick_down,
    steps,
    take,
    to_bytes,
    upright,
    where,
)
from atrl_envs.verify.numbers import Gold, compare
from atrl_envs.verify.peek import nearest, surely_none, widest
from atrl_envs.verify.verdict import Verdict
from atrl_envs.verify.walk import Tables, balanced, read

CONTEXT = 16  # bytes before a number that say whether it is what it seems: a sign, a hedge, a formula
STEPS = 96  # bytes of an answer that are walked down, after runs of digits and blanks are shortened


def judge_alone(answer: Answer, style: str, tables: Tables, gold: Gold) -> Array:
    """Verdicts [B] int8 of the styles in which the answer stands alone at its spot."""
    extent, spot = answer.extent, answer.spot
    letters = upright(answer.letters[:, : widest(extent, answer.letters.shape[1])])
    short, home, crowded = squeeze(letters, STEPS)
    found, code = read(short, tables)
    sound = balanced(found, tables)
    if home is not None:
        found = along(found, home) * ~equals(letters, END)
    named = equals(found, L.EQUALS)
    if not surely_none(named):
        place = steps(1, len(found) + 1, found)[:, None]
        left = highest(named * place)
        found = found * (place > left)
        if style == "plain":  # a sentence about the answer is not a bare one
            sound = sound & ((left == 0) | equals(pick_down(letters, at_least(left - 1, 0)), 61))
    verdict = compare(found, letters, gold, tables)
    wrong = code == L.LIST
    if style == "plain":
        # In a bare response figures and marks that are no number are a wrong answer, not an open question.
        wrong = wrong | ~take(tables.rich, letters).any(0)
    other = where(wrong, int(Verdict.WRONG), int(Verdict.UNDECIDED))
    verdict = where((code == L.NUMBER) & sound, verdict, other)
    undecided = (extent > WINDOW) | spot.doubt | (answer.lost & ~spot.found)
    undecided = undecided if crowded is None else undecided | crowded
    verdict = where(undecided, int(Verdict.UNDECIDED), verdict)
    return _close(verdict, ~undecided & ((code == L.EMPTY) | ~spot.found), gold, tables)


def judge_running(answer: Answer, cut: int, tables: Tables, gold: Gold) -> Array:
    """Verdicts [B] int8 of style last_number: the machine marks where numbers end; the last one is compared.

    cut: where the machine begins in a text whose beginning is out of sight.
    """
    letters, spot = upright(answer.letters), answer.spot
    size, begun_late = len(letters), spot.braced
    place = steps(1, size + 1, letters)[:, None]
    in_sight = 1  # the first position that is read
    if size > STEPS_BEFORE:
        if answer.squeezed is not None:
            short, home = answer.squeezed
        else:
            last = last_digit(answer.letters, answer.extent * 0, answer.extent)
            short, home = squeeze_before(letters, last, STEPS_BEFORE, SIGHT_BEHIND)
        in_sight = highest((below(home, 0) & below(letters, SKIP)) * place) + 1
        begun_late = begun_late | (in_sight > 1)
        found, code = read(short, tables, begun_late * cut)
        found = along(found, at_least(home, 0)) * ~(below(home, 0) | equals(letters, END))
    else:
        found, code = read(letters, tables, begun_late * cut)
    behind = ~below(found, L.ENDS)
    # Positions from 1: the byte behind the last number, and the last byte before it.
    ends = highest(behind * place)
    kind = pick_down(found, at_least(ends - 1, 0))
    at_end = code > 0
    missing = (ends == 0) & ~at_end
    doubtful = where(at_end, code == L.AT_DOUBT, kind == L.DOUBT)
    joined = where(at_end, code == L.AT_JOINED, (kind == L.ENDS_JOINED) | (kind == L.JOINT_JOINED))
    ends = where(at_end, size + 1, ends)
    earlier = place < ends
    joint = (equals(found, L.JOINT) | equals(found, L.JOINT_JOINED)) & joined
    outside = ((equals(found, L.NONE) & below(letters, SKIP)) | behind) & ~joint & earlier
    begins = highest(outside * place)
    inside = earlier & (place > begins)
    # What looked like the 10 of a power of ten is that, or a number.
    found = where(equals(found, L.TEN), to_bytes(where(joined, L.PART, L.WHOLE)), found) * inside
    first = min(nearest(begins, 0), size - 1)
    crop = slice(first, max(first + 1, widest(ends - 1, size)))
    verdict = compare(found[crop], letters[crop], gold, tables)
    close = begins < in_sight + CONTEXT  # what stands before it may be out of sight
    unsure = doubtful | spot.doubt | (answer.lost & missing) | (begun_late & (missing | close))
    verdict = where(unsure, int(Verdict.UNDECIDED), verdict)
    return _close(verdict, ~unsure & (missing | ~spot.found), gold, tables)


def _close(verdict: Array, missing: Array, gold: Gold, tables: Tables) -> Array:
    """MISSING over any other verdict, and what the kind of the gold makes of it: [B] int8."""
    verdict = where(missing, int(Verdict.MISSING), verdict)
    return take(tables.verdicts, gold[1][:, 0] * 8 + verdict)
