"""A verifier on a CUDA device: the same verdicts, without waiting for the device once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def assert_never_waits(verifier: Any, tokens: Tensor, start: Tensor, answers: Any) -> None:
    """The first call may copy tables; the second may not synchronise, or CUDA raises."""
    expected = verifier(tokens, start, answers)
    moved, tokens, start, golds = verifier.to("cuda"), tokens.cuda(), start.cuda(), answers.to("cuda")
    moved(tokens, start, golds)
    torch.cuda.set_sync_debug_mode("error")
    try:
        verdicts = moved(tokens, start, golds)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(verdicts.cpu(), expected)
