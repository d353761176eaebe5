"""Verdicts on plain strings, for scripts, tests and notebooks.

verify_texts(["so \\\\boxed{1/2}"], ["0.5"], style="boxed")          # [Verdict.CORRECT]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from atrl_envs.verify.verdict import Verdict
from atrl_envs.verify.verifier import MathVerifier

END_MARKS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
_CELLS = 1 << 22  # bytes judged in one go


class _Bytes:
    """The vocabulary of raw bytes: id = byte, and 256 ends the text."""

    eos_id = 256

    @property
    def byte_table(self) -> tuple[Tensor, Tensor]:
        table = torch.arange(257).clamp(max=255).to(torch.uint8).unsqueeze(1)
        return table, (torch.arange(257) < 256).long()


def verify_texts(
    completions: Sequence[str], golds: Sequence[str], style: str = "boxed", fallback: bool = False
) -> list[Verdict]:
    """The verdict on each completion against its gold.

    A text ends at the first end-of-sequence mark that is written out in it (`<|im_end|>` and the like).
    Raises ValueError where the lists differ in length, NotImplementedError for fallback=True: answers that
    the tensor program may not judge are UNDECIDED.
    """
    if len(completions) != len(golds):
        raise ValueError(f"got {len(completions)} completions and {len(golds)} golds; give one gold each")
    if fallback:
        raise NotImplementedError("verify_texts has no host fallback; call it with fallback=False")
    verifier = MathVerifier(_Bytes(), style)
    raw = [_until_end(completion).encode("utf-8", "replace") for completion in completions]
    order = sorted(range(len(raw)), key=lambda i: len(raw[i]))
    verdicts: dict[int, Verdict] = {}
    while order:
        size = max(1, len(raw[order[-1]]))
        chosen = [order.pop() for _ in range(min(len(order), max(1, _CELLS // size)))]
        padded = b"".join(raw[i].ljust(size, b"\0") for i in chosen)
        tokens = torch.frombuffer(bytearray(padded), dtype=torch.uint8).view(len(chosen), size).long()
        end = torch.tensor([len(raw[i]) for i in chosen])
        answers = verifier.encode_answers([golds[i] for i in chosen])
        found = verifier(tokens, torch.zeros_like(end), answers, end=end)
        verdicts.update((i, Verdict(v)) for i, v in zip(chosen, found.tolist(), strict=True))
    return [verdicts[i] for i in range(len(raw))]


def _until_end(text: str) -> str:
    found = [at for at in map(text.find, END_MARKS) if at >= 0]
    return text[: min(found)] if found else text
