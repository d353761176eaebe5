"""ExactVerifier: the answer is right if it is the gold's text, byte for byte. For words, lists, hexadecimal.

    verifier = ExactVerifier(vocab, style="boxed")
    answers = verifier.encode_answers(["0x2a", "3 1 2", "Tuesday"])     # host side, once per bank
    verdicts = verifier(tokens, start, answers[problem])                # [B] int8, see Verdict

The answer is found as MathVerifier finds it. A run of ASCII blanks counts as one space, blanks at the ends
count as nothing; everything else has to agree, so `[1, 2]` is not `[1,2]`. Bytes are compared where they
stand: each byte that counts knows its place in the answer, and so which byte of the gold it has to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs.verify.automaton import END
from atrl_envs.verify.extract import STYLES, WINDOW, Answer
from atrl_envs.verify.finder import Finder
from atrl_envs.verify.peek import widest
from atrl_envs.verify.placement import alike
from atrl_envs.verify.verdict import Verdict

EXACT_STYLES = tuple(style for style in STYLES if style != "last_number")

Gold = tuple[Tensor, Tensor]  # letters [B, G] uint8, END behind them; length [B]


class ExactVerifier:
    """Judges the answer in each response by its text.

    vocab: anything with `byte_table` (see `Vocab`) and `eos_id`.
    style: where the answer stands, as for MathVerifier: "plain", "gsm8k_hash", "boxed" or "answer_tag".
    ignore_case: ASCII letters agree in any case; other letters never do.
    Raises ValueError for an unknown style, and for "last_number", which finds nothing but numbers.
    """

    def __init__(self, vocab: Any, style: str = "plain", ignore_case: bool = False) -> None:
        if style not in EXACT_STYLES:
            hint = "; numbers are judged by MathVerifier" if style == "last_number" else ""
            raise ValueError(f"style {style!r} is none of {', '.join(EXACT_STYLES)}{hint}")
        self.style, self.ignore_case = style, ignore_case
        self._finder = Finder.of(vocab, style)

    def to(self, device: torch.device | str) -> ExactVerifier:
        """The verifier with its table on `device`; without this, a call on other tensors copies it every time."""
        moved = object.__new__(ExactVerifier)
        moved.__dict__.update(self.__dict__)
        moved._finder = self._finder.to(device)
        return moved

    def encode_answers(self, answers: Sequence[str]) -> TensorDict:
        """Gold answers, batch size [M]: letters [M, G] uint8, END behind the text, and length [M] int64; on the CPU.

        A gold without any byte but blanks is kept: its rows get INVALID_GOLD.
        """
        raw = [b" ".join(answer.encode("utf-8", "surrogatepass").split()) for answer in answers]
        raw = [text.lower() for text in raw] if self.ignore_case else raw
        width = 1 + max(map(len, raw), default=0)
        shown = b"".join(text.ljust(width, bytes([END])) for text in raw)
        letters = torch.frombuffer(bytearray(shown), dtype=torch.uint8) if raw else torch.empty(0)
        fields = {
            "letters": letters.to(torch.uint8).view(-1, width),
            "length": torch.tensor([len(text) for text in raw], dtype=torch.int64),
        }
        return TensorDict(fields, batch_size=[len(raw)])

    def __call__(self, tokens: Tensor, start: Tensor, answers: Any, end: Tensor | None = None) -> Tensor:
        """Verdicts [B] int8.

        tokens: [B, S] ids; start: [B], where the response begins; end: [B], where it ends at the latest
        (default S); answers: encoded golds, [B]. The response ends before its first EOS, too.
        """
        expected, wanted = (alike(answers[name], tokens) for name in ("letters", "length"))
        # Of an answer as many bytes are looked at as spell the longest gold with every blank doubled.
        finder = replace(self._finder, limit=max(WINDOW, 2 * expected.shape[1]))

        def judge(answer: Answer, rows: Tensor | None) -> Tensor:
            gold = (expected, wanted) if rows is None else (expected[rows], wanted[rows])
            return judge_exact(answer, self.ignore_case, gold)

        return finder.judge(tokens, start, end, judge)


def judge_exact(answer: Answer, ignore_case: bool, gold: Gold) -> Tensor:
    """Verdicts [B] int8.

    An answer that does not end within the window is WRONG where what is seen cannot begin the gold, else UNDECIDED.
    """
    expected, wanted = gold
    spot, width = answer.spot, widest(answer.extent, answer.letters.shape[1])
    # A window for each row by itself: a verdict does not depend on the other golds of a batch.
    limit = (2 * wanted).clamp(min=WINDOW)
    step = torch.arange(width, device=wanted.device)
    letters = answer.letters[:, :width] | ((step < limit.unsqueeze(1)).view(torch.uint8) - 1)
    if ignore_case:
        letters = letters | ((letters - 65 < 26).view(torch.uint8) << 5)
    solid, size, agrees = _agreement(letters, expected)
    more = answer.extent > limit  # the answer goes on out of sight
    right = agrees & (size == wanted)
    possible = agrees & (size <= wanted)
    unsure = spot.doubt | (answer.lost & ~spot.found) | (more & possible)
    verdict = torch.where(right, int(Verdict.CORRECT), int(Verdict.WRONG))
    verdict = torch.where(unsure, int(Verdict.UNDECIDED), verdict)
    verdict = torch.where(~unsure & (~solid | ~spot.found), int(Verdict.MISSING), verdict)
    return torch.where(wanted == 0, int(Verdict.INVALID_GOLD), verdict).to(torch.int8)


def _agreement(letters: Tensor, expected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each answer: whether it has more than blanks, its size without spare blanks, whether the gold begins so."""
    blank = (letters == 32) | (letters - 9 < 5)  # and \t \n \v \f \r; bytes wrap around
    solid = ~blank & (letters != END)
    place = torch.arange(1, letters.shape[1] + 1, dtype=torch.int32, device=letters.device)
    final = (solid.view(torch.uint8) * place).amax(1)
    # Of a run of blanks the first counts, if something solid stands before it and something behind the run.
    behind_solid = torch.nn.functional.pad(solid[:, :-1], (1, 0))
    counts = solid | (blank & behind_solid & (place < final.unsqueeze(1)))
    home = counts.cumsum(1, dtype=torch.int64)
    shown = letters.masked_fill(blank, 32)
    # Behind the gold stands END, which no byte of an answer equals.
    wanted = expected.gather(1, (home - 1).clamp(0, expected.shape[1] - 1))
    return final > 0, home[:, -1], ((shown == wanted) | ~counts).all(1)
