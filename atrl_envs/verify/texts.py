"""Verdicts on plain strings, for scripts, tests and notebooks.

verify_texts(["so \\\\boxed{1/2}"], ["0.5"], style="boxed")                            # [Verdict.CORRECT]
verify_texts(["so \\\\boxed{2\\\\pi}"], ["\\\\pi+\\\\pi"], style="boxed", fallback=True)   # [Verdict.CORRECT]
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from atrl_envs.verify.verdict import Verdict
from atrl_envs.verify.verifier import MathVerifier

if TYPE_CHECKING:
    from atrl_envs.host import HostPool

END_MARKS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
_CELLS = 1 << 22  # bytes judged in one go
_JOBS_A_WORKER = 64  # a process takes a second to start


class _Bytes:
    """The vocabulary of raw bytes: id = byte, and 256 ends the text."""

    eos_id = 256

    @property
    def byte_table(self) -> tuple[Tensor, Tensor]:
        table = torch.arange(257).clamp(max=255).to(torch.uint8).unsqueeze(1)
        return table, (torch.arange(257) < 256).long()


def verify_texts(
    completions: Sequence[str],
    golds: Sequence[str],
    style: str = "boxed",
    fallback: bool = False,
    pool: HostPool | None = None,
) -> list[Verdict]:
    """The verdict on each completion against its gold.

    A text ends at the first end-of-sequence mark that is written out in it (`<|im_end|>` and the like).
    fallback: what the tensor program calls UNDECIDED goes to processes of the host; what times out or crashes there
    stays UNDECIDED. pool: use these processes, which have nothing else to do; else some are started and ended here.
    Raises ValueError where the lists differ in length, or the pool has jobs pending.
    """
    if len(completions) != len(golds):
        raise ValueError(f"got {len(completions)} completions and {len(golds)} golds; give one gold each")
    verifier = MathVerifier(_Bytes(), style, fallback)
    texts = [_until_end(completion) for completion in completions]
    verdicts = _on_tensors(verifier, texts, golds)
    undecided = [i for i, verdict in enumerate(verdicts) if verdict == Verdict.UNDECIDED]
    if fallback and undecided:
        jobs = [verifier.host_job(texts[i], golds[i]) for i in undecided]
        for i, verdict in zip(undecided, _on_host(jobs, pool), strict=True):
            verdicts[i] = verdict
    return verdicts


def _on_tensors(verifier: MathVerifier, texts: Sequence[str], golds: Sequence[str]) -> list[Verdict]:
    """Verdicts of the tensor program, in batches of texts of similar length."""
    raw = [text.encode("utf-8", "replace") for text in texts]
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


def _on_host(jobs: Sequence[tuple[str, tuple[str, str, str]]], pool: HostPool | None) -> list[Verdict]:
    """Verdicts of jobs in processes, in order."""
    from atrl_envs.host import HostPool

    if pool is None:
        workers = min(os.cpu_count() or 1, 1 + len(jobs) // _JOBS_A_WORKER)
        with HostPool(workers=workers) as pool:
            return _on_host(jobs, pool)
    if pool.pending:
        raise ValueError(
            f"the pool has {pool.pending} jobs of others pending; collect them first, or give another"
        )
    verdicts = {pool.submit(function, *arguments): Verdict.UNDECIDED for function, arguments in jobs}
    while pool.pending:
        for outcome in pool.collect(wait=1.0):
            if outcome.status == "ok":
                verdicts[outcome.ticket] = Verdict(outcome.value)
    return list(verdicts.values())


def _until_end(text: str) -> str:
    found = [at for at in map(text.find, END_MARKS) if at >= 0]
    return text[: min(found)] if found else text
