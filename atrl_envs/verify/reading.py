"""From the bytes of an answer to a verdict: one walk of an automaton down the bytes, and an exact comparison.

verdict = judge_alone(answer, style, tables, gold)           # [B] int8
verdict = judge_running(answer, cut, tables, gold)           # style last_number
"""

from __future__ import annotations

import torch
from torch import Tensor

from atrl_envs.verify import labels as L
from atrl_envs.verify.automaton import END, SKIP
from atrl_envs.verify.compaction import squeeze, squeeze_before
from atrl_envs.verify.extract import SIGHT_BEHIND, STEPS_BEFORE, WINDOW, Answer, last_digit
from atrl_envs.verify.masks import before, below, equals
from atrl_envs.verify.numbers import Gold, compare
from atrl_envs.verify.peek import lowest, surely_none, widest
from atrl_envs.verify.verdict import Verdict
from atrl_envs.verify.walk import Tables, balanced, read

CONTEXT = 16  # bytes before a number that say whether it is what it seems: a sign, a hedge, a formula
STEPS = 96  # bytes of an answer that are walked down, after runs of digits and blanks are shortened


def judge_alone(answer: Answer, style: str, tables: Tables, gold: Gold) -> Tensor:
    """Verdicts [B] int8 of the styles in which the answer stands alone at its spot."""
    plain = style == "plain"
    extent, spot = answer.extent, answer.spot
    letters = answer.letters[:, : widest(extent, answer.letters.shape[1])].contiguous()
    short, home, crowded = squeeze(letters, STEPS)
    found, code = read(short, tables)
    sound = balanced(found, tables)
    if home is not None:
        found = found.gather(1, home) * ~equals(letters, END)
    size = found.shape[1]
    place = torch.arange(1, size + 1, dtype=torch.int32, device=found.device)
    left = (equals(found, L.EQUALS).view(torch.uint8) * place).amax(1)
    if not surely_none(left > 0):
        found = found * ~before(size, left)
    verdict = compare(found, letters, gold, tables)
    wrong = code == L.LIST
    if plain:
        # In a bare response figures and marks that are no number are a wrong answer, not an open question.
        rich = tables.rich.index_select(0, letters.view(-1).int()).view(letters.shape)
        wrong = wrong | (rich.sum(1, dtype=torch.int32) == 0)
        # And a sentence about the answer is not a bare one.
        mark = letters.gather(1, (left - 1).clamp(min=0).long().unsqueeze(1)).squeeze(1)
        sound = sound & ((left == 0) | (mark == 61))
    other = torch.where(wrong, int(Verdict.WRONG), int(Verdict.UNDECIDED))
    verdict = torch.where((code == L.NUMBER) & sound, verdict, other)
    undecided = crowded | (extent > WINDOW) | spot.doubt | (answer.lost & ~spot.found)
    verdict = torch.where(undecided, int(Verdict.UNDECIDED), verdict)
    return _close(verdict, ~undecided & ((code == L.EMPTY) | ~spot.found), gold, tables)


def judge_running(answer: Answer, cut: int, tables: Tables, gold: Gold) -> Tensor:
    """Verdicts [B] int8 of style last_number: the machine marks where numbers end; the last one is compared.

    cut: where the machine begins in a text whose beginning is out of sight.
    """
    letters, spot = answer.letters, answer.spot
    begun_late = spot.braced
    place = torch.arange(1, letters.shape[1] + 1, dtype=torch.int32, device=letters.device)
    in_sight = torch.ones_like(answer.extent)  # the first position that is read
    if letters.shape[1] > STEPS_BEFORE:
        if answer.squeezed is not None:
            short, home = answer.squeezed
        else:
            last = last_digit(letters, torch.zeros_like(answer.extent), answer.extent)
            short, home = squeeze_before(letters, last, STEPS_BEFORE, SIGHT_BEHIND)
        out_of_sight = (below(home, 0) & below(letters, SKIP)).view(torch.uint8) * place
        in_sight = out_of_sight.amax(1) + 1
        begun_late = begun_late | (in_sight > 1)
        found, code = read(short, tables, begun_late.int() * cut)
        found = found.gather(1, home.clamp(min=0)) * ~(below(home, 0) | equals(letters, END))
    else:
        found, code = read(letters, tables, begun_late.int() * cut)
    behind = ~below(found, L.ENDS)
    # Positions from 1: the byte behind the last number, and the last byte before it.
    ends = (behind.view(torch.uint8) * place).amax(1)
    kind = found.gather(1, (ends - 1).clamp(min=0).long().unsqueeze(1)).squeeze(1)
    at_end = code > 0
    missing = (ends == 0) & ~at_end
    doubtful = torch.where(at_end, code == L.AT_DOUBT, kind == L.DOUBT)
    joined = torch.where(at_end, code == L.AT_JOINED, (kind == L.ENDS_JOINED) | (kind == L.JOINT_JOINED))
    ends = torch.where(at_end, letters.shape[1] + 1, ends)
    earlier = before(letters.shape[1], ends - 1)
    joint = (equals(found, L.JOINT) | equals(found, L.JOINT_JOINED)) & joined.unsqueeze(1)
    outside = ((equals(found, L.NONE) & below(letters, SKIP)) | behind) & ~joint & earlier
    begins = (outside.view(torch.uint8) * place).amax(1)
    inside = earlier & ~before(letters.shape[1], begins)
    # What looked like the 10 of a power of ten is that, or a number; bytes wrap around.
    change = torch.where(joined, L.PART - L.TEN, L.WHOLE - L.TEN).to(torch.uint8)
    found = (found + equals(found, L.TEN) * change.unsqueeze(1)) * inside
    first = min(lowest(begins, 0), letters.shape[1] - 1)
    crop = slice(first, max(first + 1, widest(ends - 1, letters.shape[1])))
    verdict = compare(found[:, crop].contiguous(), letters[:, crop].contiguous(), gold, tables)
    close = begins < in_sight + CONTEXT  # what stands before it may be out of sight
    unsure = doubtful | spot.doubt | (answer.lost & missing) | (begun_late & (missing | close))
    verdict = torch.where(unsure, int(Verdict.UNDECIDED), verdict)
    return _close(verdict, ~unsure & (missing | ~spot.found), gold, tables)


def _close(verdict: Tensor, missing: Tensor, gold: Gold, tables: Tables) -> Tensor:
    """MISSING over any other verdict, and what the kind of the gold makes of it: [B] int8."""
    verdict = torch.where(missing, int(Verdict.MISSING), verdict)
    return tables.verdicts.index_select(0, gold[1][:, 0] * 8 + verdict)
