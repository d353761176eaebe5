"""M2PO's constraint: which response tokens stay, so that the second moment of the log-ratios keeps a budget.

    kept = second_moment_mask(log_ratio, advantage, mask, budget=0.04)             # [N, T] bool
    limit = second_moment_limit(log_ratio, advantage, mask, budget=0.04)           # [], the authors' cap on |d|

d = log pi_theta - log pi_behaviour, M2 = d^2, r = exp(d). The harmful quadrants H hold the tokens whose ratio has gone
further than the advantage justifies: A > 0 and r > 1, or A < 0 and r < 1. The constraint is over the whole training
batch, so solve it for all micro-batches at once; `ranks` extends it over the ranks of a process group. Sums are float64
and over sorted moments, so they do not depend on the order in which a batch was put together.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy
import torch
import torch.distributed
from torch import Tensor

Variant = Literal["paper", "authors", "areal", "ratio"]
VARIANTS: tuple[Variant, ...] = ("paper", "authors", "areal", "ratio")
_HUGE = 1e300  # in place of an infinity that would make 0 * inf


def harmful(log_ratio: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """H: `[N, T]` bool, response tokens with A > 0 and d > 0, or A < 0 and d < 0."""
    return mask & (advantage * log_ratio > 0)


def second_moment_mask(
    log_ratio: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    budget: float = 0.04,
    variant: Variant = "paper",
    gamma: float = 4.0,
    ranks: Any = None,
) -> Tensor:
    """Which tokens keep their gradient, by each of the four things that carry the name.

    * `paper` (arXiv 2510.01161): of H, the fewest and largest M2 are dropped so that the mean M2 of the
      tokens of H that stay is at most `budget`.
    * `authors` (their code): tokens of H with |d| above `second_moment_limit` are dropped.
    * `areal` (AReaL): like `paper`, with all response tokens as candidates.
    * `ratio` (AsyncTensorRLHF, section 3.3): every response token with r^2 <= gamma stays; gamma has no published
      default, 4 is ours.

    Of equal M2 at the border, those with the smaller index (rank, row, column) stay.

    Args:
        log_ratio, advantage: `[N, T]`. Not differentiated.
        mask: `[N, T]` bool, True on response tokens.
        budget: largest mean M2, >= 0; infinite drops nothing.
        ranks: a torch.distributed process group over which the batch is spread, its rows in the order of the ranks.

    Returns:
        `[N, T]` bool, False outside `mask`. No host sync on an accelerator, unless `ranks` is given.
    """
    _check(log_ratio, advantage, mask, budget)
    if not gamma > 0:
        raise ValueError(f"gamma must be above 0, got {gamma}")
    distance = _precise(log_ratio)
    if variant == "ratio":
        return mask & (2 * distance <= math.log(gamma))
    if variant == "authors":
        limit = second_moment_limit(log_ratio, advantage, mask, budget=budget, ranks=ranks)
        return mask & ~(harmful(log_ratio, advantage, mask) & (distance.abs() > limit))
    if variant not in VARIANTS:
        raise ValueError(f"Unknown variant {variant!r}; choose {', '.join(VARIANTS)}.")
    candidates = harmful(log_ratio, advantage, mask) if variant == "paper" else mask
    if math.isinf(budget):
        return mask
    moment = torch.where(candidates, distance.square(), torch.inf)
    ordered, earlier = _ordered(moment, ranks)
    if ranks is None and _on_host(ordered):  # the infinite ones at the end are no candidates
        ordered = ordered[: max(1, int(candidates.sum()))]
    total = ordered.cumsum(0, dtype=torch.float64)
    mean = total / _places(total)  # of the smallest: it only grows with their number
    count = torch.searchsorted(mean, budget, right=True)
    if _on_host(ordered) and (largest := _gap(ordered, int(count))) is not None:
        return mask ^ (candidates & (moment > largest))
    border = _at(ordered, count - 1)
    tie = candidates & (moment == border)
    room = count - (ordered < border).sum()
    room = room if earlier is None else room - (earlier == border).sum()
    kept = (moment < border) | (tie & (tie.view(-1).cumsum(0).view_as(tie) <= room))
    return mask & (~candidates | kept)


def second_moment_limit(
    log_ratio: Tensor, advantage: Tensor, mask: Tensor, *, budget: float = 0.04, ranks: Any = None
) -> Tensor:
    """T `[]` float64 with `sum_H min(M2, T^2) = budget * |H|`; infinite where the mean M2 of H is within the budget.

    The ratio is then clipped to [exp(-T), exp(T)]. Arguments as for `second_moment_mask`.
    """
    _check(log_ratio, advantage, mask, budget)
    candidates = harmful(log_ratio, advantage, mask)
    moment = torch.where(candidates, _precise(log_ratio).square(), torch.inf)
    ordered, _ = _ordered(moment, ranks)
    size = (ordered < torch.inf).sum().double()
    values = ordered.double().clamp(max=_HUGE)
    place = _places(values)
    total = values.cumsum(0)
    capped = total + (size - place).clamp(min=0) * values  # the left side with T^2 at each of the values
    below = torch.searchsorted(capped, (budget * size).view(1), right=True)
    spent = torch.where(below > 0, total.gather(0, (below - 1).clamp(min=0)), 0.0)
    square = (budget * size - spent) / (size - below).clamp(min=1)
    return torch.where(below < size, square.clamp(min=0).sqrt(), torch.inf).squeeze(0)


def _check(log_ratio: Tensor, advantage: Tensor, mask: Tensor, budget: float) -> None:
    from .surrogates import check_shapes

    check_shapes(log_ratio=log_ratio, advantage=advantage, mask=mask)
    if not budget >= 0:
        raise ValueError(f"budget must be at least 0, got {budget}")


def _precise(log_ratio: Tensor) -> Tensor:
    """Without gradient, in float32 or as precise as it came."""
    return log_ratio.detach().to(torch.promote_types(log_ratio.dtype, torch.float32))


def _places(ordered: Tensor) -> Tensor:
    return torch.arange(1, ordered.shape[0] + 1, dtype=ordered.dtype, device=ordered.device)


def _gap(ordered: Tensor, count: int) -> float | None:
    """The largest of the `count` smallest values, where the next one is larger still."""
    border = float(ordered[count - 1]) if count else -math.inf
    following = float(ordered[count]) if count < ordered.shape[0] else math.inf
    return border if following > border or following == math.inf else None


def _at(ordered: Tensor, place: Tensor) -> Tensor:
    """The value at a place `[]`; -inf before the first, +inf after the last."""
    value = ordered.gather(0, place.clamp(0, ordered.shape[0] - 1).view(1)).squeeze(0)
    return torch.where(place < 0, -torch.inf, torch.where(place < ordered.shape[0], value, torch.inf))


def _ordered(moment: Tensor, ranks: Any) -> tuple[Tensor, Tensor | None]:
    """All moments, smallest first (infinite ones are no candidates); with ranks, also those of earlier ranks."""
    values = moment.reshape(-1)
    values = values if values.numel() else moment.new_full((1,), torch.inf)
    if ranks is None:
        return _sorted(values), None
    world, rank = torch.distributed.get_world_size(ranks), torch.distributed.get_rank(ranks)
    sizes = [torch.zeros(1, dtype=torch.int64, device=values.device) for _ in range(world)]
    torch.distributed.all_gather(sizes, torch.full_like(sizes[0], values.numel()), group=ranks)
    widest = max(int(size) for size in sizes)
    padded = torch.nn.functional.pad(values, (0, widest - values.numel()), value=torch.inf)
    everyone = [torch.empty_like(padded) for _ in range(world)]
    torch.distributed.all_gather(everyone, padded, group=ranks)
    return _sorted(torch.cat(everyone)), torch.cat([values[:0], *everyone[:rank]])


def _sorted(values: Tensor) -> Tensor:
    """Smallest first; NumPy sorts on the CPU without the indices that torch computes besides."""
    if _on_host(values):
        return torch.from_numpy(numpy.sort(values.numpy()))
    return values.sort().values


def _on_host(values: Tensor) -> bool:
    return values.device.type == "cpu" and type(values) is Tensor and not torch.compiler.is_compiling()
