"""Policy-gradient surrogates as pure functions of `[N, T]` tensors with a bool mask.

    objective = ppo_clip(log_ratio, advantage, mask, clip_low=0.2, clip_high=0.2)
    loss = -reduce(objective, mask, "sequence")

Every function asserts equal shapes: a silent broadcast of `[N]` against `[N, 1]` is an `[N, N]` matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["sequence", "token", "constant"]
LOG_RATIO_LIMIT = 20.0  # log-ratios are clamped to +-this before exp


def ratio_of(log_ratio: Tensor) -> Tensor:
    """`exp(log_ratio)` with the exponent kept in +-20, so that no ratio is infinite."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def ppo_clip(
    log_ratio: Tensor, advantage: Tensor, mask: Tensor, *, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """`min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)` per token (arXiv 1707.06347, eq. 7).

    Args:
        log_ratio: `[N, T]` log pi_theta - log pi_behaviour.
        advantage: `[N, T]`.
        mask: `[N, T]` bool, True on response tokens.
        clip_low, clip_high: distances of the clip range from 1.

    Returns:
        `[N, T]`, to be maximised; 0 where the mask is False.
    """
    check_shapes(log_ratio=log_ratio, advantage=advantage, mask=mask)
    ratio = ratio_of(log_ratio)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return torch.minimum(ratio * advantage, clipped * advantage).masked_fill(~mask, 0.0)


@dataclass(frozen=True)
class Totals:
    """What a reduction divides by: sizes of the whole batch, of which a micro-batch is a part.

    Attributes:
        rows: responses in the batch.
        tokens: response tokens in the batch.
        max_tokens: the length limit of a response (for `constant`).
    """

    rows: float
    tokens: float
    max_tokens: int


def reduce(values: Tensor, mask: Tensor, how: Reduction, totals: Totals | None = None) -> Tensor:
    """One number from `[N, T]` values.

    * `sequence`: mean over each response, then over responses (GRPO).
    * `token`: mean over all response tokens (DAPO).
    * `constant`: sum / (responses * max_tokens) (Dr.GRPO).

    Sums over micro-batches, each reduced with the `totals` of the whole batch, equal the reduction of the
    whole batch. Without `totals` the given batch is the whole one (`constant` then divides by `N * T`).
    An all-False mask gives 0.
    """
    check_shapes(values=values, mask=mask)
    values = values.masked_fill(~mask, 0.0)
    length = mask.sum(1)
    if totals is None:
        rows: float | Tensor = (length > 0).sum().clamp(min=1)
        tokens: float | Tensor = length.sum().clamp(min=1)
        max_tokens = values.shape[1]
    else:
        rows, tokens, max_tokens = max(totals.rows, 1), max(totals.tokens, 1), totals.max_tokens
    if how == "sequence":
        return (values.sum(1) / length.clamp(min=1)).sum() / rows
    if how == "token":
        return values.sum() / tokens
    if how == "constant":
        return values.sum() / (rows * max_tokens)
    raise ValueError(f"Unknown reduction {how!r}; choose sequence, token or constant.")


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `[N, T]` values over True entries; 0 if there are none."""
    return values.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def check_shapes(**tensors: Tensor) -> None:
    """Raise ValueError unless all tensors have one shape `[N, T]`."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        got = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"Expected tensors of one shape [N, T], got {got}. Nothing is broadcast here: expand first."
        )
