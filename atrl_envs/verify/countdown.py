"""CountdownVerifier: does an expression make the target out of the given numbers? Many answers are right.

    verifier = CountdownVerifier(vocab, style="plain")
    answers = verifier.encode_answers(["3,4,5,6=44"])           # numbers, target; host side, once per bank
    verdicts = verifier(tokens, start, answers[problem])        # "(5+6)*4" is CORRECT

An expression is numbers, + - * / (also × · ÷ and the minus −) between them, and round brackets, blanks anywhere
but inside a number. Each given number is used at most once and written as it was given. There are no signs in
front of numbers, no powers, no other characters. One `=` with the target behind it may follow; any other text
makes the answer WRONG, and so does a division by zero. See `expressions` for how it is worked out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs.verify.exact import EXACT_STYLES
from atrl_envs.verify.expressions import FIGURES, MOST_NUMBERS, Reading, equals, fits
from atrl_envs.verify.extract import Answer
from atrl_envs.verify.finder import Finder
from atrl_envs.verify.peek import widest
from atrl_envs.verify.placement import alike
from atrl_envs.verify.verdict import Verdict

WINDOW = 256  # bytes of an expression that are looked at
_NUMBER = rf"\d{{1,{FIGURES}}}"
_GOLD = re.compile(rf"({_NUMBER}(?:,{_NUMBER}){{0,{MOST_NUMBERS - 1}}})=({_NUMBER})", re.ASCII)

Gold = tuple[
    Tensor, Tensor
]  # numbers [B, N] int64, -1 behind them; target [B] int64, -1 where there is no gold


class CountdownVerifier:
    """Judges expressions against the numbers that they may use and the target that they have to make.

    vocab: anything with `byte_table` (see `Vocab`) and `eos_id`.
    style: where the expression stands, as for MathVerifier: "plain", "gsm8k_hash", "boxed" or "answer_tag".
    Raises ValueError for an unknown style, and for "last_number", which finds nothing but numbers.
    """

    def __init__(self, vocab: Any, style: str = "plain") -> None:
        if style not in EXACT_STYLES:
            raise ValueError(
                f"style {style!r} does not hold an expression; use one of {', '.join(EXACT_STYLES)}"
            )
        self.style = style
        self._finder = Finder.of(vocab, style, limit=WINDOW)

    def to(self, device: torch.device | str) -> CountdownVerifier:
        """The verifier with its table on `device`; without this, a call on other tensors copies it every time."""
        moved = object.__new__(CountdownVerifier)
        moved.__dict__.update(self.__dict__)
        moved._finder = self._finder.to(device)
        return moved

    def encode_answers(self, answers: Sequence[str]) -> TensorDict:
        """Golds like "3,4,5,6=44", batch size [M]: numbers [M, N] int64, -1 behind them, and target [M]; on the CPU.

        N is the most numbers of any gold. What is no such text, or has more than 12 numbers or a number of more than
        9 digits, is kept with a target of -1: its rows get INVALID_GOLD.
        """
        found = [_GOLD.fullmatch(answer.strip()) for answer in answers]
        rows = [[int(number) for number in match[1].split(",")] if match else [] for match in found]
        width = max((len(row) for row in rows), default=1) or 1
        numbers = torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.int64)
        target = torch.tensor([int(match[2]) if match else -1 for match in found], dtype=torch.int64)
        return TensorDict({"numbers": numbers.view(-1, width), "target": target}, batch_size=[len(rows)])

    def __call__(self, tokens: Tensor, start: Tensor, answers: Any, end: Tensor | None = None) -> Tensor:
        """Verdicts [B] int8.

        tokens: [B, S] ids; start: [B], where the response begins; end: [B], where it ends at the latest
        (default S); answers: encoded golds, [B]. The response ends before its first EOS, too.
        Raises ValueError for other shapes.
        """
        numbers, target = (alike(answers[name], tokens) for name in ("numbers", "target"))

        def judge(answer: Answer, rows: Tensor | None) -> Tensor:
            return judge_countdown(
                answer, (numbers, target) if rows is None else (numbers[rows], target[rows])
            )

        return self._finder.judge(tokens, start, end, judge)


def judge_countdown(answer: Answer, gold: Gold) -> Tensor:
    """Verdicts [B] int8. UNDECIDED: the expression goes on behind the window, or may overflow int64."""
    (given, target), spot = gold, answer.spot
    letters = answer.letters[:, : widest(answer.extent, answer.letters.shape[1])]
    cut = answer.extent > answer.letters.shape[1]
    reading = Reading(letters, cut)
    parts = reading.parts(given.shape[1])
    legal = reading.sound & ~parts.crowded & _available(parts.numbers, given) & reading.claims(target)
    small = fits(parts.numbers)
    right = ~cut & legal & equals(parts, target, reading.sound & small)
    # What is seen of a long expression may be wrong already.
    possible = torch.where(cut, reading.sound & ~parts.crowded, legal & ~small)
    unsure = spot.doubt | (answer.lost & ~spot.found) | possible
    verdict = torch.where(right, int(Verdict.CORRECT), int(Verdict.WRONG))
    verdict = torch.where(unsure, int(Verdict.UNDECIDED), verdict)
    missing = ~unsure & (~spot.found | (reading.empty & ~cut))
    verdict = torch.where(missing, int(Verdict.MISSING), verdict)
    return torch.where(target < 0, int(Verdict.INVALID_GOLD), verdict).to(torch.int8)


def _available(numbers: Tensor, given: Tensor) -> Tensor:
    """Whether every number [B, N] is among the given ones [B, N], as often as it is there: [B]."""
    same = numbers.unsqueeze(2) == given.unsqueeze(1)
    owned = (given.unsqueeze(2) == given.unsqueeze(1)).sum(1)
    known = same.any(2) | (numbers == -1)
    return ((same.sum(1) <= owned) | (given < 0)).all(1) & known.all(1)
