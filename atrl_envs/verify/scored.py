"""ScoredVerifier: the gold's text is right, and what else is right a function on the host knows. For puzzles.

    verifier = ScoredVerifier(vocab, "plain", "my_puzzles:score", ("sudoku",))
    verdicts = verifier(tokens, start, answers)                          # [B] int8: CORRECT, MISSING or UNDECIDED
    function, args = verifier.host_job("3*(4+1)", "15*1", data)    # "my_puzzles:score", ("sudoku", "3*(4+1)", data)

The function gets the context, the answer as it stands in the response, and the problem's data; it returns an int of
Verdict. An environment calls it in a process of the host pool for each response that is UNDECIDED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs.verify.exact import ExactVerifier
from atrl_envs.verify.formulas.excerpt import excerpt
from atrl_envs.verify.placement import alike
from atrl_envs.verify.verdict import Verdict

_NO_GOLD = "?"  # stands for a gold that is never compared


class ScoredVerifier:
    """Judges by equality with the gold's text, as ExactVerifier does; any other answer is UNDECIDED.

    A gold that is empty, or has several lines, is never taken for equal: a line break counts as a blank there, and a
    scorer may tell them apart. scorer: the function by name, "module:function"; context: its first arguments.
    """

    def __init__(self, vocab: Any, style: str, scorer: str, context: tuple[Any, ...] = ()) -> None:
        self.style, self.scorer, self.context = style, scorer, context
        self._exact = ExactVerifier(vocab, style=style)

    def to(self, device: torch.device | str) -> ScoredVerifier:
        """The verifier with its tables on `device`."""
        moved = object.__new__(ScoredVerifier)
        moved.__dict__.update(self.__dict__)
        moved._exact = self._exact.to(device)
        return moved

    def encode_answers(self, answers: Sequence[str]) -> TensorDict:
        """Gold answers, batch size [M]: those of ExactVerifier, and `compared` [M] bool; on the CPU."""
        compared = [bool(answer.strip()) and "\n" not in answer.strip() for answer in answers]
        golds = [answer if known else _NO_GOLD for answer, known in zip(answers, compared, strict=True)]
        encoded = self._exact.encode_answers(golds)
        return encoded.set("compared", torch.tensor(compared, dtype=torch.bool))

    def __call__(self, tokens: Tensor, start: Tensor, answers: Any, end: Tensor | None = None) -> Tensor:
        """Verdicts [B] int8; the arguments are those of ExactVerifier."""
        verdict = self._exact(tokens, start, answers, end)
        right = (verdict == int(Verdict.CORRECT)) & alike(answers["compared"], tokens)
        open_ = ~right & (verdict != int(Verdict.MISSING))
        return torch.where(open_, int(Verdict.UNDECIDED), verdict).to(torch.int8)

    def host_job(self, completion: str, answer: str, data: Any) -> tuple[str, tuple[Any, ...]]:
        """What decides about an UNDECIDED response: a function by name, and its arguments.

        completion: the response as text; answer: the gold, which the scorer knows from `data`.
        """
        return self.scorer, (*self.context, (excerpt(completion, self.style) or "").strip(), data)
