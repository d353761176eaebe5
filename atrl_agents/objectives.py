"""From log-probabilities to the terms of a loss: one frozen description, one pure function.

    spec = Objective(surrogate="clip", reduction="token", correction="tis")
    terms = policy_terms(spec, tokens)          # tokens: TokenBatch of [N, T] tensors
    (terms.objective + terms.kl + terms.entropy).backward()

Each algorithm of `atrl train` is an `Objective` with other settings, see config.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from atrl_envs import keys

from .corrections import PRESETS, Correction, LogProbs, correct, interpolated_proximal
from .diagnostics import RatioSums
from .second_moment import VARIANTS, Variant, harmful, second_moment_limit, second_moment_mask
from .surrogates import (
    KLEstimator,
    Reduction,
    Totals,
    check_shapes,
    cispo,
    dual_clip,
    gspo,
    gspo_token,
    kl_to_reference,
    m2po,
    m2po_clip,
    ppo_clip,
    ratio_of,
    reduce,
    row_mean,
    unclipped,
)

_AT_LEAST = {
    "clip_low": 0, "clip_high": 0, "dual_limit": 1, "cispo_low": 0, "budget": 0, "kl_weight": 0, "max_tokens": 1,
}  # fmt: skip
Surrogate = Literal["clip", "dual_clip", "gspo", "gspo_token", "cispo", "m2po", "unclipped"]


@dataclass(frozen=True)
class Objective:
    """What is maximised.

    Attributes:
        surrogate: of surrogates.py.
        clip_low, clip_high: distances from 1 of the clip range (for `cispo` see cispo_high).
        dual_limit: c of `dual_clip`.
        cispo_low, cispo_high: bounds of CISPO's weight itself.
        budget, variant, gamma: of `m2po`, see second_moment.py.
        reduction: see surrogates.reduce.
        max_tokens: the length limit of a response, for the reduction `constant` without `Totals`.
        correction: a name of corrections.PRESETS, or rules of your own. M2PO bounds the ratio by itself: it takes no
            decoupled one, but for the variant `areal`, whose moments are then those of proximal over behaviour; one
            that takes the clip's place (`dppo`) goes with the surrogates `clip` and `unclipped` alone.
        kl_weight, kl_estimator: of the divergence from a reference policy, added to the loss.
        entropy_weight: of the mean entropy, subtracted from the loss.
    """

    surrogate: Surrogate = "clip"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_limit: float = 3.0
    cispo_low: float = 0.0
    cispo_high: float = 5.0
    budget: float = 0.04
    variant: Variant = "paper"
    gamma: float = 4.0
    reduction: Reduction = "sequence"
    max_tokens: int | None = None
    correction: str | Correction = "none"
    kl_weight: float = 0.0
    kl_estimator: KLEstimator = "k3"
    entropy_weight: float = 0.0

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("surrogate", self.surrogate, get_args(Surrogate)),
            ("variant", self.variant, VARIANTS),
            ("reduction", self.reduction, get_args(Reduction)),
            ("kl_estimator", self.kl_estimator, get_args(KLEstimator)),
        ):
            if value not in choices:
                raise ValueError(f"Unknown {name} {value!r}; choose {', '.join(choices)}.")
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:  # NaN is no number of them either
                raise ValueError(f"{name} must be at least {least}, got {value}.")
        if self.cispo_low > self.cispo_high:
            raise ValueError(f"cispo_low {self.cispo_low} is above cispo_high {self.cispo_high}.")
        if isinstance(self.correction, str) and self.correction not in PRESETS:
            raise ValueError(f"Unknown correction {self.correction!r}; choose {', '.join(PRESETS)}.")
        if not self.rules.clips and self.surrogate not in ("clip", "unclipped"):
            raise ValueError(
                f"The correction {self.correction!r} takes the place of a clip, so the surrogate must be clip or "
                f"unclipped, got {self.surrogate!r}."
            )
        if self.surrogate == "m2po" and self.rules.interpolated:
            raise ValueError(
                f"The correction {self.correction!r} puts the proximal policy between the two others, so its moments "
                "would be those of no policy; with M2PO's variant areal use decoupled."
            )
        if self.surrogate == "m2po" and self.rules.decoupled and self.variant != "areal":
            raise ValueError(
                f"M2PO's variant {self.variant!r} bounds the ratio to what sampled, which the decoupled correction "
                f"{self.correction!r} replaces; use the correction none, or the variant areal."
            )

    @property
    def rules(self) -> Correction:
        """The correction that the name stands for."""
        return PRESETS[self.correction] if isinstance(self.correction, str) else self.correction

    @property
    def masks_the_batch(self) -> bool:
        """Whether one token's part depends on all tokens of the batch."""
        return self.surrogate == "m2po" and self.variant != "ratio"

    @property
    def considers_all(self) -> bool:
        """Whether tokens without an advantage have a part in M2PO's constraint."""
        return self.surrogate == "m2po" and self.variant in ("areal", "ratio")

    @property
    def divides_by_kept(self) -> bool:
        """Whether tokens that the constraint drops leave the denominator, too, as in two of the forms of M2PO."""
        return self.considers_all and self.reduction == "token"

    def reduced(self, values: Tensor, mask: Tensor, totals: Totals | None = None) -> Tensor:
        """`[N, T]` as one number, see surrogates.reduce; `constant` wants `totals` or `max_tokens`."""
        if self.reduction == "constant" and totals is None:
            if self.max_tokens is None:
                raise ValueError(
                    "The reduction constant divides by the length limit of a response: give max_tokens=, or Totals."
                )
            rows = (mask.sum(1) > 0).sum().clamp(min=1)
            return torch.where(mask, values, 0.0).sum() / (rows * self.max_tokens)
        return reduce(values, mask, self.reduction, totals)

    @property
    def moves_without_advantage(self) -> bool:
        """Whether a token of advantage 0 has a gradient."""
        return bool(self.kl_weight or self.entropy_weight or self.rules.penalises)


@dataclass(frozen=True)
class TokenBatch:
    """What an objective reads, all `[N, T]` but `group` `[N]`; only `log_prob` and `entropy` have gradients.

    Attributes:
        log_prob: under the current weights.
        behaviour: under what sampled the tokens.
        advantage, mask: the mask is True on response tokens.
        entropy: of the current policy at each token, or None.
        proximal: log-probabilities when the update began; None: the current ones, as at an update's first step.
        reference: under the reference policy, where `kl_weight` is not 0.
        kept, limit: M2PO's constraint where it was solved for the whole batch; None: this is the whole batch.
        version: of the weights that sampled each token (for A-3PO); versions: proximal and current.
        group: ids of the rows' groups.
    """

    log_prob: Tensor
    behaviour: Tensor
    advantage: Tensor
    mask: Tensor
    entropy: Tensor | None = None
    proximal: Tensor | None = None
    reference: Tensor | None = None
    kept: Tensor | None = None
    limit: Tensor | None = None
    version: Tensor | None = None
    versions: tuple[float, float] | None = None
    group: Tensor | None = None


@dataclass(frozen=True)
class Terms:
    """Terms of the loss, `[]`, to be summed and minimised, and what there is to report."""

    objective: Tensor
    kl: Tensor
    entropy: Tensor
    sums: RatioSums


def policy_terms(spec: Objective, batch: TokenBatch, totals: Totals | None = None) -> Terms:
    """The loss of a (micro-)batch; `totals` are the sizes of the whole batch it is a part of."""
    _check_parts(batch)
    mask, advantage, rules = batch.mask, batch.advantage, spec.rules
    proximal = _proximal(rules, batch)
    off_policy = batch.log_prob - batch.behaviour
    log_ratio = batch.log_prob - proximal if rules.decoupled else off_policy
    if spec.surrogate == "m2po":
        moments = proximal - batch.behaviour if rules.decoupled else off_policy.detach()
        batch = _constrained(spec, batch, moments, totals)
    values, clipped, kept = _surrogate(spec, batch, log_ratio)
    constraint = kept
    if rules.rules:
        found = correct(
            rules.rules,
            LogProbs(batch.log_prob, batch.behaviour, proximal),
            advantage,
            mask,
            group=batch.group,
        )
        values = values * found.weight * found.kept - found.penalty
        kept = kept & found.kept
    objective = -_mean(spec, values, mask, constraint, totals)
    zero = torch.zeros_like(objective)
    kl = entropy = zero
    if spec.kl_weight:
        if batch.reference is None:
            raise ValueError("kl_weight is not 0, so the log-probabilities under a reference are needed.")
        distance = kl_to_reference(
            batch.log_prob, batch.reference, mask, estimator=spec.kl_estimator, log_ratio=off_policy
        )
        kl = spec.kl_weight * spec.reduced(distance, mask, totals)
    if spec.entropy_weight:
        if batch.entropy is None:
            raise ValueError("entropy_weight is not 0, so the entropies of the tokens are needed.")
        entropy = -spec.entropy_weight * spec.reduced(batch.entropy, mask, totals)
    sums = RatioSums.of(
        off_policy.detach(),
        mask,
        entropy=batch.entropy,
        clipped=clipped,
        kept=None if kept is mask else kept,
        advantage=advantage,
    )
    return Terms(objective, kl, entropy, sums)


def _check_parts(batch: TokenBatch) -> None:
    """ValueError unless everything of a token is `[N, T]`."""
    parts = {
        field.name: part
        for field in fields(batch)
        if isinstance(part := getattr(batch, field.name), Tensor) and field.name not in ("limit", keys.GROUP)
    }
    check_shapes(**parts)


@dataclass(frozen=True)
class Constraint:
    """M2PO's constraint, solved for a whole batch: kept `[N, T]` bool, and the authors' limit `[]` of |d|."""

    kept: Tensor
    limit: Tensor | None = None


def solve(
    spec: Objective, log_ratio: Tensor, advantage: Tensor, mask: Tensor, *, ranks: object = None
) -> Constraint:
    """The constraint for log-ratios `[N, T]` of the whole batch (and of all `ranks`); see second_moment_mask."""
    if spec.variant == "authors":
        limit = second_moment_limit(log_ratio, advantage, mask, budget=spec.budget, ranks=ranks)
        return Constraint(mask & ~(harmful(log_ratio, advantage, mask) & (log_ratio.abs() > limit)), limit)
    kept = second_moment_mask(
        log_ratio, advantage, mask, budget=spec.budget, variant=spec.variant, gamma=spec.gamma, ranks=ranks
    )
    return Constraint(kept)


def _constrained(spec: Objective, batch: TokenBatch, log_ratio: Tensor, totals: Totals | None) -> TokenBatch:
    """The batch with its constraint; solved here where it is a whole one."""
    if batch.kept is not None:
        if spec.variant == "authors" and batch.limit is None:
            raise ValueError(
                "M2PO's variant authors needs the limit that goes with kept; see objectives.solve."
            )
        return replace(batch, kept=batch.kept & batch.mask)
    if totals is not None and not totals.whole and spec.masks_the_batch:
        raise ValueError(
            "M2PO's constraint is over the whole batch and this is a part of it: solve it for the whole (see "
            "objectives.solve) and give `kept`, and `limit` for the variant authors."
        )
    found = solve(spec, log_ratio, batch.advantage, batch.mask)
    return replace(batch, kept=found.kept, limit=found.limit)


def _mean(spec: Objective, values: Tensor, mask: Tensor, kept: Tensor, totals: Totals | None) -> Tensor:
    """The objective as one number; over the tokens that the constraint keeps where the variant says so."""
    if not spec.divides_by_kept:
        return spec.reduced(values, mask, totals)
    if totals is not None and totals.kept is None:
        raise ValueError(
            f"M2PO's variant {spec.variant!r} divides by the tokens kept: give Totals(kept=...)."
        )
    count = kept.sum().clamp(min=1) if totals is None or totals.kept is None else max(totals.kept, 1.0)
    return torch.where(mask, values, 0.0).sum() / count


def _proximal(rules: Correction, batch: TokenBatch) -> Tensor:
    if not rules.interpolated:
        return batch.log_prob.detach() if batch.proximal is None else batch.proximal
    if batch.version is None or batch.versions is None:
        raise ValueError(
            "a3po needs the version of every token, and those of the proximal and current weights."
        )
    proximal, current = batch.versions
    return interpolated_proximal(
        batch.log_prob.detach(),
        batch.behaviour,
        batch.version,
        proximal_version=proximal,
        current_version=current,
    )


def _surrogate(spec: Objective, batch: TokenBatch, log_ratio: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """Values, where a clip has taken the gradient (None: nowhere), and which tokens no mask drops; all `[N, T]`."""
    advantage, mask, kind = batch.advantage, batch.mask, spec.surrogate
    clip = {"clip_low": spec.clip_low, "clip_high": spec.clip_high}
    if kind == "unclipped" or not spec.rules.clips:
        return unclipped(log_ratio, advantage, mask), None, mask
    if kind == "m2po":
        return _m2po(spec, batch, log_ratio, clip)
    if kind == "cispo":
        values = cispo(batch.log_prob, log_ratio, advantage, mask, low=spec.cispo_low, high=spec.cispo_high)
        ratio = ratio_of(log_ratio.detach())
        return values, (ratio < spec.cispo_low) | (ratio > spec.cispo_high), mask
    if kind in ("gspo", "gspo_token"):
        form = gspo if kind == "gspo" else gspo_token
        mean = row_mean(log_ratio.detach(), mask).unsqueeze(1).expand_as(log_ratio)
        return form(log_ratio, advantage, mask, **clip), _outside(mean, advantage, **clip), mask
    outside = _outside(log_ratio.detach(), advantage, **clip)
    if kind == "dual_clip":
        values = dual_clip(log_ratio, advantage, mask, limit=spec.dual_limit, **clip)
        return values, outside | ((advantage < 0) & (ratio_of(log_ratio.detach()) > spec.dual_limit)), mask
    return ppo_clip(log_ratio, advantage, mask, **clip), outside, mask


def _m2po(
    spec: Objective, batch: TokenBatch, log_ratio: Tensor, clip: dict[str, float]
) -> tuple[Tensor, Tensor | None, Tensor]:
    advantage, mask = batch.advantage, batch.mask
    kept, limit = batch.kept, batch.limit
    assert kept is not None
    if spec.variant == "paper":
        return m2po(log_ratio, advantage, mask, kept), None, kept
    if spec.variant == "authors":
        assert limit is not None
        return m2po_clip(log_ratio, advantage, mask, limit), None, kept
    values = ppo_clip(log_ratio, advantage, mask, **clip) * kept
    return values, kept & _outside(log_ratio.detach(), advantage, **clip), kept


def _outside(log_ratio: Tensor, advantage: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """Where PPO's clip has taken the gradient."""
    high, low = math.log1p(clip_high), math.log1p(-clip_low) if clip_low < 1 else -math.inf
    return ((log_ratio > high) & (advantage > 0)) | ((log_ratio < low) & (advantage < 0))
