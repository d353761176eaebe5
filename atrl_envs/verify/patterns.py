"""PatternVerifier: a response is right if it holds the gold's token ids, side by side, before its first EOS.

    verifier = PatternVerifier(vocab)
    answers = verifier.encode_answers(["42", "forty-two"])      # or ids: [[17, 4], [901]]
    verdicts = verifier(tokens, start, answers[problem])        # [B] int8: CORRECT, WRONG or INVALID_GOLD

One pattern a row, of any length, anywhere in the response. Ids are compared, not text: the same text may be
tokenised in several ways, and only the pattern's own is found. For tokens that mean something by themselves
(a tool's name, a move); for numbers `MathVerifier` reads the answer however it was split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs.verify.host_patterns import FILLER, judge_patterns
from atrl_envs.verify.peek import may_look
from atrl_envs.verify.placement import alike
from atrl_envs.verify.verdict import Verdict


class PatternVerifier:
    """Judges whether each response holds the pattern of its row.

    vocab: anything with `eos_id`, and with `encode` where patterns are given as texts (see `Vocab`).
    An empty pattern is INVALID_GOLD; one that is longer than the response, or holds an EOS, is never found.
    """

    def __init__(self, vocab: Any) -> None:
        self.vocab, self.eos_id = vocab, int(vocab.eos_id)

    def to(self, device: torch.device | str) -> PatternVerifier:
        """The verifier itself: it keeps no tensors."""
        return self

    def encode_answers(self, answers: Sequence[str] | Sequence[Sequence[int]]) -> TensorDict:
        """Patterns, batch size [M]: ids [M, K] int64, filled up with FILLER, and length [M] int64; on the CPU.

        A text becomes `vocab.encode(text)`.
        """
        rows = [self.vocab.encode(answer) if isinstance(answer, str) else list(answer) for answer in answers]
        width = max(1, *map(len, rows)) if rows else 1
        ids = torch.tensor([row + [FILLER] * (width - len(row)) for row in rows], dtype=torch.int64)
        length = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        return TensorDict({"ids": ids.view(-1, width), "length": length}, batch_size=[len(rows)])

    def __call__(self, tokens: Tensor, start: Tensor, answers: Any, end: Tensor | None = None) -> Tensor:
        """Verdicts [B] int8.

        tokens: [B, S] ids; start: [B], where the response begins; end: [B], where it ends at the latest
        (default S); answers: encoded patterns, [B]. The response ends before its first EOS, too.
        """
        if tokens.dim() != 2 or start.shape != tokens.shape[:1]:
            raise ValueError(
                f"want tokens [B, S] and start [B], got {list(tokens.shape)} and {list(start.shape)}; "
                "flatten trailing dimensions first"
            )
        if tokens.numel() == 0:
            tokens = torch.full((tokens.shape[0], 1), self.eos_id, device=tokens.device)
        ids, length = answers.get("ids"), answers.get("length")
        if may_look(tokens) and may_look(ids):
            return judge_patterns(tokens, start, end, ids, length, self.eos_id)
        ids, length = alike(ids, tokens), alike(length, tokens)
        found = _search(tokens, *_span(tokens, start, end, self.eos_id), ids, length)
        verdict = torch.where(found, int(Verdict.CORRECT), int(Verdict.WRONG))
        return torch.where(length == 0, int(Verdict.INVALID_GOLD), verdict).to(torch.int8)


def _span(tokens: Tensor, start: Tensor, end: Tensor | None, eos_id: int) -> tuple[Tensor, Tensor]:
    """Where each response begins and where it ends, [B] and [B]."""
    size = tokens.shape[1]
    place = torch.arange(size, device=tokens.device)
    begin = start.long().clamp(0, size)
    closing = (tokens == eos_id) & (place >= begin.unsqueeze(1))
    stop = size - (closing.view(torch.uint8) * (size - place).int()).amax(1)
    return begin, stop if end is None else torch.minimum(stop, end.long())


def _search(tokens: Tensor, begin: Tensor, stop: Tensor, ids: Tensor, length: Tensor) -> Tensor:
    """Whether the pattern stands in [begin, stop), [B] bool: one comparison of shifted rows per token of a pattern."""
    size, longest = tokens.shape[1], min(ids.shape[1], tokens.shape[1])
    place = torch.arange(size, device=tokens.device)
    hits = (place >= begin.unsqueeze(1)) & (place <= (stop - length).unsqueeze(1))
    beyond = torch.arange(longest, device=tokens.device) >= length.unsqueeze(1)
    for k in range(longest):
        here = hits[:, : size - k]
        here &= (tokens[:, k:] == ids[:, k : k + 1]) | beyond[:, k : k + 1]
    return hits.any(1) & (length > 0)
