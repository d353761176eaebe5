"""Policy-gradient surrogates as pure functions of `[N, T]` tensors with a bool mask.

    objective = ppo_clip(log_ratio, advantage, mask, clip_low=0.2, clip_high=0.2)
    loss = -reduce(objective, mask, "sequence")

`log_ratio` is log pi_theta - log pi_behaviour of each response token (or - log pi_proximal, see corrections.py). Every
function returns `[N, T]`, to be maximised, 0 where the mask is False, whatever stands there. Shapes must be equal: a
silent broadcast of `[N]` against `[N, 1]` is an `[N, N]` matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from .second_moment import harmful as harmful
from .second_moment import second_moment_limit as second_moment_limit
from .second_moment import second_moment_mask as second_moment_mask

Reduction = Literal["sequence", "token", "constant"]
KLEstimator = Literal["k1", "k2", "k3", "unbiased_k3"]
LOG_RATIO_LIMIT = 20.0  # log-ratios are clamped to +-this before exp
LARGEST = 1e30  # numbers are kept within +-this where an infinity would be subtracted from itself


def ratio_of(log_ratio: Tensor) -> Tensor:
    """`exp(log_ratio)` with the exponent kept in +-20, so that no ratio is infinite."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


# -- objectives --------------------------------------------------------------------------------------


def unclipped(log_ratio: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """`r A`: the policy gradient with importance sampling."""
    log_ratio, advantage = _response_only(log_ratio, advantage, mask)
    with torch.no_grad():
        value = ratio_of(log_ratio) * advantage
        slope = value * _moves(log_ratio)
    return _with_slope(value, slope, log_ratio)


def ppo_clip(
    log_ratio: Tensor, advantage: Tensor, mask: Tensor, *, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """`min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)` (PPO, arXiv 1707.06347, eq. 7; DAPO raises clip_high).

    Args:
        log_ratio: `[N, T]`.
        advantage: `[N, T]`.
        mask: `[N, T]` bool, True on response tokens.
        clip_low, clip_high: distances of the clip range from 1.
    """
    log_ratio, advantage = _response_only(log_ratio, advantage, mask)
    with torch.no_grad():
        ratio = ratio_of(log_ratio)
        clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantage
    return _lesser(ratio * advantage, clipped, log_ratio)


def dual_clip(
    log_ratio: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    limit: float = 3.0,
) -> Tensor:
    """`ppo_clip`, and for A < 0 no less than `limit * A` (arXiv 1912.09729).

    A large ratio with a negative advantage then has no gradient either. limit: c > 1.
    """
    value = ppo_clip(log_ratio, advantage, mask, clip_low=clip_low, clip_high=clip_high)
    advantage = torch.where(mask, wide(advantage), 0.0)
    return torch.where(advantage < 0, torch.maximum(value, limit * advantage), value)


def gspo(
    log_ratio: Tensor, advantage: Tensor, mask: Tensor, *, clip_low: float = 3e-4, clip_high: float = 4e-4
) -> Tensor:
    """`min(s A, clip(s) A)` with the response's ratio `s = exp(mean_t d_t)` (GSPO, arXiv 2507.18071, eq. 5 and 7).

    Every token of a response holds the same value, so that the reduction `sequence` is the paper's mean.
    """
    log_ratio, advantage = _response_only(log_ratio, advantage, mask)
    mean = row_mean(log_ratio, mask).unsqueeze(1).expand_as(log_ratio)
    return ppo_clip(mean, advantage, mask, clip_low=clip_low, clip_high=clip_high)


def gspo_token(
    log_ratio: Tensor, advantage: Tensor, mask: Tensor, *, clip_low: float = 3e-4, clip_high: float = 4e-4
) -> Tensor:
    """GSPO's token form, `s_t = sg[s] * pi_theta / sg[pi_theta]` (arXiv 2507.18071, eq. 14).

    The clip is decided by the response's ratio, the advantage may differ from token to token.
    """
    log_ratio, advantage = _response_only(log_ratio, advantage, mask)
    mean = row_mean(log_ratio, mask).unsqueeze(1).detach()
    near = log_ratio.clamp(-LARGEST, LARGEST)
    return ppo_clip(mean + (near - near.detach()), advantage, mask, clip_low=clip_low, clip_high=clip_high)


def cispo(
    log_prob: Tensor,
    log_ratio: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    low: float = 0.0,
    high: float = 5.0,
) -> Tensor:
    """`sg[clip(r, low, high)] A log pi_theta` (CISPO, arXiv 2506.13585, eq. 4 and 5): the weight is clipped, and
    every token keeps its gradient.

    Args:
        log_prob: `[N, T]` log pi_theta, with gradient.
        low, high: bounds of the ratio itself, not distances from 1.
    """
    check_shapes(log_prob=log_prob, log_ratio=log_ratio, advantage=advantage, mask=mask)
    log_ratio, advantage = _response_only(log_ratio, advantage, mask)
    weight = ratio_of(log_ratio).clamp(low, high).detach()
    return weight * advantage * torch.where(mask, wide(log_prob), 0.0)


def m2po(log_ratio: Tensor, advantage: Tensor, mask: Tensor, kept: Tensor) -> Tensor:
    """`M r A` with M = `kept` of `second_moment_mask` (M2PO, arXiv 2510.01161): neither clip nor KL.

    Reduce it by `token` over all response tokens, the dropped ones included.
    """
    check_shapes(mask=mask, kept=kept)
    return unclipped(log_ratio, advantage, mask & kept)


def m2po_clip(log_ratio: Tensor, advantage: Tensor, mask: Tensor, limit: Tensor) -> Tensor:
    """`min(r A, clip(r, exp(-T), exp(T)) A)` with T of `second_moment_limit`: M2PO as in its authors' code."""
    log_ratio, advantage = _response_only(log_ratio, advantage, mask)
    if limit.numel() != 1:
        raise ValueError(f"limit must be one number [], got {tuple(limit.shape)}")
    with torch.no_grad():
        limit = limit.to(log_ratio.dtype)
        clipped = ratio_of(torch.minimum(torch.maximum(log_ratio, -limit), limit)) * advantage
        plain = ratio_of(log_ratio) * advantage
    return _lesser(plain, clipped, log_ratio)


# -- the distance from a reference -------------------------------------------------------------------


def kl_to_reference(
    log_prob: Tensor,
    reference: Tensor,
    mask: Tensor,
    *,
    estimator: KLEstimator = "k3",
    log_ratio: Tensor | None = None,
) -> Tensor:
    """Estimates of KL(pi_theta || pi_ref) per token, `[N, T]`, with d' = log pi_ref - log pi_theta.

    `k1` is -d', `k2` is d'^2 / 2, `k3` is exp(d') - d' - 1 (http://joschu.net/blog/kl-approx.html). `unbiased_k3`
    weighs k3 by the ratio pi_theta / pi_behaviour, whose `log_ratio` it needs, so that its gradient is that of the
    divergence although the tokens are another policy's (DeepSeek-V3.2, arXiv 2512.02556).
    """
    check_shapes(log_prob=log_prob, reference=reference, mask=mask)
    difference = torch.where(mask, wide(reference) - wide(log_prob), 0.0)
    if estimator == "k1":
        return -difference
    if estimator == "k2":
        return difference.square() / 2
    if estimator not in get_args(KLEstimator):
        raise ValueError(f"Unknown estimator {estimator!r}; choose {', '.join(get_args(KLEstimator))}.")
    difference = difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    k3 = difference.exp() - difference - 1.0
    if estimator == "k3":
        return k3
    if log_ratio is None:
        raise ValueError("unbiased_k3 needs log_ratio, log pi_theta - log pi_behaviour of the tokens.")
    check_shapes(log_prob=log_prob, log_ratio=log_ratio)
    return ratio_of(torch.where(mask, wide(log_ratio), 0.0)) * k3


def value_loss(
    value: Tensor, target: Tensor, mask: Tensor, *, before: Tensor | None = None, clip: float | None = None
) -> Tensor:
    """`(V - target)^2 / 2` per token, `[N, T]`, to be minimised; with `clip`, PPO's larger of that and the same for a
    value kept within `clip` of the value `before` the update (the code of arXiv 1707.06347).
    """
    check_shapes(value=value, target=target, mask=mask)
    value = torch.where(mask, wide(value), 0.0)
    with torch.no_grad():
        slope = value - torch.where(mask, target, 0.0)
        error = slope.square()
        if clip is not None and before is not None:
            check_shapes(value=value, before=before)
            moved = value - torch.where(mask, before, 0.0)
            near = moved.clamp(-clip, clip)
            other = slope + (near - moved)
            larger = other.square() > error
            error = torch.where(larger, other.square(), error)
            slope = torch.where(larger, other * (near == moved), slope)
        error = error / 2
    return _with_slope(error, slope, value)


# -- from [N, T] to a number -------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """What a reduction divides by: sizes of the whole batch, of which a micro-batch is a part.

    Attributes:
        rows: responses in the batch.
        tokens: response tokens in the batch.
        max_tokens: the length limit of a response (for `constant`).
        kept: response tokens that M2PO's constraint keeps, where it divides by those.
        whole: this is no part but all of the batch, so a constraint may be solved on it.
    """

    rows: float
    tokens: float
    max_tokens: int
    kept: float | None = None
    whole: bool = False


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
    values = torch.where(mask, wide(values), 0.0)
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
    return torch.where(mask, wide(values), 0.0).sum() / mask.sum().clamp(min=1)


def row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of each row of `[N, T]` over its True entries, `[N]`; 0 where a row has none."""
    return torch.where(mask, wide(values), 0.0).sum(1) / mask.sum(1).clamp(min=1)


def check_shapes(**tensors: Tensor) -> None:
    """Raise ValueError unless all tensors have one shape `[N, T]`."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        got = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"Expected tensors of one shape [N, T], got {got}. Nothing is broadcast here: expand first."
        )


def wide(values: Tensor) -> Tensor:
    """In float32, or as precise as it came: sums and ratios of half precision overflow."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _moves(log_ratio: Tensor) -> Tensor:
    """Where `ratio_of` has a gradient."""
    return log_ratio.abs() <= LOG_RATIO_LIMIT


def _lesser(plain: Tensor, clipped: Tensor, log_ratio: Tensor) -> Tensor:
    """`min(plain, clipped)`, where `plain` is r A and `clipped` has no gradient."""
    with torch.no_grad():
        value = torch.minimum(plain, clipped)
        slope = plain * ((plain <= clipped) & _moves(log_ratio))
    return _with_slope(value, slope, log_ratio)


def _with_slope(value: Tensor, slope: Tensor, by: Tensor) -> Tensor:
    """`value`, whose derivative by `by` is `slope`: the backward pass is one multiplication.

    d r / d log r is r, so the slopes of these objectives are known as soon as their values are. Where `by` is infinite
    the slope is 0.
    """
    near = by.clamp(-LARGEST, LARGEST)
    return value + slope * (near - near.detach())


def _response_only(log_ratio: Tensor, advantage: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Both with 0 outside the mask: there, infinite or undefined numbers must reach neither value nor gradient.

    At least in float32, since exp(20) is no number of float16.
    """
    check_shapes(log_ratio=log_ratio, advantage=advantage, mask=mask)
    return torch.where(mask, wide(log_ratio), 0.0), torch.where(mask, wide(advantage), 0.0)
