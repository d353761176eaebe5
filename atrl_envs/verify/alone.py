"""A verifier that never asks the host, whatever the environment would let it.

    Alone(MathVerifier(vocab, style="boxed"))

For sums and the like: the host knows that 12+34 is 46, so it would take the question for its own answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Alone:
    """`inner` without its `host_job` and `with_fallback`: what it calls UNDECIDED stays so, and pays nothing."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.style = inner, inner.style

    def to(self, device: torch.device | str) -> Alone:
        """With its tables on `device`."""
        return Alone(self.inner.to(device))

    def encode_answers(self, answers: Sequence[str]) -> Any:
        """As `inner` does."""
        return self.inner.encode_answers(answers)

    def __call__(self, tokens: Tensor, start: Tensor, answers: Any, end: Tensor | None = None) -> Tensor:
        """As `inner` does: verdicts [B] int8."""
        return self.inner(tokens, start, answers, end)
