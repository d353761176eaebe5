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
    ) -> RatioSums:
        """Sums of one micro-batch; all arguments `[N, T]`, `clipped` and `kept` bool."""
        d = log_ratio.double().masked_fill(~mask, 0.0)
        ratio = d.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp().masked_fill(~mask, 0.0)
        count = mask.sum().double()
        zero = torch.zeros_like(count)
        return cls(
            tokens=count,
            ratio=ratio.sum(),
            ratio_squared=ratio.square().sum(),
            log_ratio_squared=d.square().sum(),
            kl=(ratio - 1.0 - d).masked_fill(~mask, 0.0).sum(),
            entropy=zero if entropy is None else entropy.double().masked_fill(~mask, 0.0).sum(),
            clipped=zero if clipped is None else (clipped & mask).sum().double(),
            kept=count if kept is None else (kept & mask).sum().double(),
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

    def metrics(self) -> dict[str, float]:
        """The metrics as floats, gathered from the device in one transfer."""
        named = self.tensors()
        values = torch.stack(list(named.values())).tolist()
        return dict(zip(named, values, strict=True))
