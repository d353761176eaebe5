"""What a verifier says about one response: five verdicts, not a score.

verdicts = verifier(tokens, start, answers)          # [B] int8
reward = (verdicts == Verdict.CORRECT).float()
"""

from __future__ import annotations

from enum import IntEnum


class Verdict(IntEnum):
    """Only CORRECT is ever paid; the other four say why not.

    CORRECT: the answer has exactly the value of the gold answer.
    WRONG: it has another value, or it offers several values where one is asked.
    MISSING: there is no answer in the asked format.
    UNDECIDED: there is an answer, of a kind that the tensor program may not judge.
    INVALID_GOLD: the gold answer is empty or not a number: the row says nothing about the response
        and belongs out of training.
    """

    CORRECT = 0
    WRONG = 1
    MISSING = 2
    UNDECIDED = 3
    INVALID_GOLD = 4
