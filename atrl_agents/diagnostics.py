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
    """Detached float64 sums over response tokens, d = log pi_theta - log pi_behaviour, r = exp(d)."""

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

        kept: tokens that have a gradient; with `advantage`, the others are counted by quadrant.
        """
        d = log_ratio.double().masked_fill(~mask, 0.0)
        ratio = d.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().masked_fill(~mask, 0.0)
        count = mask.sum().double()
        zero = torch.zeros_like(count)
        moment, dropped = d.square(), zero.expand(4)
        if kept is not None and advantage is not None:
            gone, more = mask & ~kept, d > 0
            sides = [advantage > 0, advantage < 0]
            dropped = torch.stack(
                [(gone & side & way).sum().double() for side in sides for way in (more, ~more)]
            )
        return cls(
            tokens=count,
            ratio=ratio.sum(),
            ratio_squared=ratio.square().sum(),
            log_ratio_squared=moment.sum(),
            kl=(ratio - 1.0 - d).masked_fill(~mask, 0.0).sum(),
            entropy=zero if entropy is None else entropy.double().masked_fill(~mask, 0.0).sum(),
            clipped=zero if clipped is None else (clipped & mask).sum().double(),
            kept=count if kept is None else (kept & mask).sum().double(),
            log_ratio_squared_kept=moment.sum() if kept is None else moment.masked_fill(~kept, 0.0).sum(),
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
            "chi2": mean_square - 1.0,
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
