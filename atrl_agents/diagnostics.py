"""What every policy loss reports, as sums that add up over micro-batches.

    sums = RatioSums.of(log_ratio, mask, entropy=entropy, clipped=clipped)
    sums = sums + other_micro_batch
    sums.metrics()   # {"ratio_mean": .., "clip_fraction": .., "kl": .., "ess": .., ...}

All values are over response tokens; padding never enters.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from .surrogates import LOG_RATIO_LIMIT

QUADRANTS = ("better_more", "better_less", "worse_more", "worse_less")
"""Advantage above or below 0, ratio above or not above 1: `better_more` and `worse_less` are the harmful ones."""


@dataclass(frozen=True)
class RatioSums:
    """Detached sums over response tokens, kept as float64; d = log pi_theta - log pi_behaviour, r = exp(d)."""

    tokens: Tensor
    ratio: Tensor
    ratio_squared: Tensor
    log_ratio_squared: Tensor
    kl: Tensor
    entropy: Tensor
    clipped: Tensor
    kept: Tensor
    log_ratio_squared_kept: Tensor
    dropped: Tensor  # [4], by quadrant

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        log_ratio: Tensor,
        mask: Tensor,
        *,
        entropy: Tensor | None = None,
        clipped: Tensor | None = None,
        kept: Tensor | None = None,
        advantage: Tensor | None = None,
    ) -> RatioSums:
        """Sums of one micro-batch; all arguments `[N, T]`, `clipped` and `kept` bool.

        kept: tokens that have a gradient; None: all. With `advantage`, the others are counted by quadrant.
        """

        def total(values: Tensor) -> Tensor:
            return values.sum().double()

        d = torch.where(mask, log_ratio, 0.0)
        more = d.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).expm1()  # r - 1, exact where r is close to 1
        count = total(mask)
        zero = torch.zeros_like(count)
        moment, dropped = d.square(), zero.expand(4)
        m2, gain = total(moment), total(more)
        if kept is not None and advantage is not None:
            gone, above = mask & ~kept, d > 0
            better, worse = gone & (advantage > 0), gone & (advantage < 0)
            high = total(better & above), total(worse & above)
            dropped = torch.stack([high[0], total(better) - high[0], high[1], total(worse) - high[1]])
        return cls(
            tokens=count,
            ratio=count + gain,
            ratio_squared=count + 2 * gain + total(more.square()),
            log_ratio_squared=m2,
            kl=total(more - d),
            entropy=zero if entropy is None else total(torch.where(mask, entropy, 0.0)),
            clipped=zero if clipped is None else total(clipped & mask),
            kept=count if kept is None else total(kept & mask),
            log_ratio_squared_kept=m2 if kept is None else total(torch.where(kept, moment, 0.0)),
            dropped=dropped,
        )

    def __add__(self, other: RatioSums) -> RatioSums:
        return RatioSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def tensors(self) -> dict[str, Tensor]:
        """The metrics as 0-dimensional tensors (no host sync).

        `kl` is the k3 estimate of KL(behaviour || theta), mean of r - 1 - d over behaviour samples; `ess` is
        1 / mean(w^2) with w = r / mean r; `chi2` is mean r^2 - 1; `m2` is mean d^2.
        """
        n = self.tokens.clamp(min=1)
        mean, mean_square = self.ratio / n, self.ratio_squared / n
        return {
            "ratio_mean": mean,
            "clip_fraction": self.clipped / n,
            "kept_fraction": self.kept / n,
            "kl": self.kl / n,
            "entropy": self.entropy / n,
            "ess": mean.square() / mean_square.clamp(min=1e-12),
            "chi2": (self.ratio_squared - self.tokens) / n,
            "m2": self.log_ratio_squared / n,
        }

    def trust_tensors(self) -> dict[str, Tensor]:
        """`m2_kept`, mean d^2 of the tokens that stay, and the share of all tokens that was dropped, by quadrant."""
        shares = self.dropped / self.tokens.clamp(min=1)
        return {
            "m2_kept": self.log_ratio_squared_kept / self.kept.clamp(min=1),
            **{f"dropped_{name}": shares[i] for i, name in enumerate(QUADRANTS)},
        }

    def metrics(self, *, trust: bool = False) -> dict[str, float]:
        """The metrics as floats, gathered from the device in one transfer; with `trust`, `trust_tensors` too."""
        named = self.tensors() | (self.trust_tensors() if trust else {})
        values = torch.stack(list(named.values())).tolist()
        return dict(zip(named, values, strict=True))
