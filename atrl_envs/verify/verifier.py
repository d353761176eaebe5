"""MathVerifier: verdicts for a whole batch of responses, computed where the tokens are.

    verifier = MathVerifier(vocab, style="boxed")
    answers = verifier.encode_answers(["0.5", "12"])            # host side, once per bank
    verdicts = verifier(tokens, start, answers[problem])        # [B] int8, see Verdict

One call: the bytes of each answer, wherever its style has it, one walk of an automaton down these bytes, and an exact
comparison. There is no loop over rows, and on an accelerator no value read back by the host and no shape that
depends on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs.verify.extract import STYLES, Answer
from atrl_envs.verify.finder import Finder
from atrl_envs.verify.gold import encode_gold
from atrl_envs.verify.grammar import answer_machine
from atrl_envs.verify.labels import HOST
from atrl_envs.verify.masks import Array
from atrl_envs.verify.placement import alike, beside, each_tensor
from atrl_envs.verify.reading import judge_alone, judge_running
from atrl_envs.verify.scanner import scanner, scanner_machine
from atrl_envs.verify.walk import machine_arrays, machine_tables


class MathVerifier:
    """Judges the number in each response against its gold answer.

    vocab: anything with `byte_table` (see `Vocab`) and `eos_id`.
    style: where the answer stands. "plain": the whole response. "gsm8k_hash": the line behind the last `####`.
    "boxed": the last balanced `\\boxed{}`. "answer_tag": the last `<answer>..</answer>`. "last_number".
    fallback: a gold that is no number is kept for the host: what is compared with it is UNDECIDED, not INVALID_GOLD.
    What is UNDECIDED may be given to the host, see `host_job`.
    Raises ValueError for an unknown style.
    """

    def __init__(self, vocab: Any, style: str = "plain", fallback: bool = False) -> None:
        if style not in STYLES:
            raise ValueError(f"unknown style {style!r}; known styles: {', '.join(STYLES)}")
        self.style, self.fallback = style, fallback
        self._finder = Finder.of(vocab, style)
        machine = scanner_machine if style == "last_number" else answer_machine
        self._tables, self._arrays = machine_tables(machine), machine_arrays(machine)
        self._cut = scanner().cut if style == "last_number" else 0

    def to(self, device: torch.device | str) -> MathVerifier:
        """The verifier with its tables on `device`; without this, a call on other tensors copies them every time."""
        moved = object.__new__(MathVerifier)
        moved.__dict__.update(self.__dict__)
        moved._finder = self._finder.to(device)
        moved._tables = each_tensor(self._tables, lambda tensor: tensor.to(device))
        return moved

    def with_fallback(self) -> MathVerifier:
        """The same verifier for golds of every kind; encode the golds with it."""
        other = object.__new__(MathVerifier)
        other.__dict__.update(self.__dict__, fallback=True)
        return other

    def asks_host(self, answers: Any) -> Tensor:
        """The golds [B] that only the host can compare: [B] bool."""
        return answers["form"][:, 0] == HOST

    def host_job(self, completion: str, answer: str, data: Any = None) -> tuple[str, tuple[str, str, str]]:
        """What decides on an UNDECIDED row, as a job of a HostPool: (function, arguments); its value is a Verdict.

        completion: the text of the response, up to its end of sequence; answer: its gold.
        """
        return "atrl_envs.verify.fallback:decide", (completion, answer, self.style)

    def encode_answers(self, answers: Sequence[str]) -> TensorDict:
        """Normal forms of gold answers, batch size [M], on the CPU.

        digits [M, G] uint8, form [M, 8] int64, sides [M, 2, F] uint8: see `gold.Gold`.
        A gold that is empty or not one number is kept and marked: its rows get INVALID_GOLD, or, with `fallback` and
        not empty, UNDECIDED.
        """
        machine = answer_machine()
        golds = [encode_gold(answer, machine, self.fallback) for answer in answers]
        form = torch.tensor([gold.row() for gold in golds], dtype=torch.int64)
        fields = {
            # Before the digits of a gold there is a zero, and behind them at least one.
            "digits": _digits([f"0{gold.digits}0" for gold in golds]),
            "form": form.view(-1, 8),
            "sides": _digits([side for gold in golds for side in gold.sides()]).unflatten(0, (-1, 2)),
        }
        return TensorDict(fields, batch_size=[len(golds)])

    def __call__(self, tokens: Tensor, start: Tensor, answers: Any, end: Tensor | None = None) -> Tensor:
        """Verdicts [B] int8.

        tokens: [B, S] ids; start: [B], where the response begins; end: [B], where it ends at the latest
        (default S); answers: encoded golds, [B]. The response ends before its first EOS, too.
        Raises ValueError for other shapes.
        """
        golds = tuple(alike(answers[name], tokens) for name in ("digits", "form", "sides"))

        def judge(answer: Answer, rows: Array | None) -> Array:
            arrays = isinstance(answer.letters, numpy.ndarray)
            gold, own = (
                (map(numpy.asarray, golds), self._arrays) if arrays else (golds, beside(self._tables, tokens))
            )
            digits, form, sides = (part if rows is None else part[rows] for part in gold)
            if self.style == "last_number":
                return judge_running(answer, self._cut, own, (digits, form, sides))
            return judge_alone(answer, self.style, own, (digits, form, sides))

        return self._finder.judge(tokens, start, end, judge, arrays=True)


def _digits(numbers: Sequence[str]) -> Tensor:
    """[N, F] uint8, zeros behind the shorter ones."""
    width = max(map(len, numbers), default=1)
    shown = bytearray(b"".join(number.encode().ljust(width, b"0") for number in numbers))
    digits = torch.frombuffer(shown, dtype=torch.uint8) & 15 if shown else torch.empty(0, dtype=torch.uint8)
    return digits.view(-1, width)
