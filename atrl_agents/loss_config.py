"""What the loss of each algorithm is told: frozen dataclasses that need no torch; config.py has the rest of a run.

    GRPOConfig(loss=GRPOLossConfig(correction="tis"))          # atrl train grpo --loss.correction tis

An algorithm differs from another in its defaults here, and in the few settings that only it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Advantage = Literal["grpo", "grpo_sample", "dr_grpo", "rloo", "batch"]
Surrogate = Literal["clip", "dual_clip", "gspo", "gspo_token", "cispo", "unclipped"]
Correction = Literal[
    "none", "decoupled", "a3po", "tis", "tis_sequence", "mis", "mis_sequence", "mis_geometric", "token_mask",
    "sequence_mask", "dppo",
]  # fmt: skip
Reduction = Literal["sequence", "token", "constant"]


@dataclass(frozen=True)
class LossConfig:
    """What every algorithm's loss has."""

    clip_low: float = 0.2
    """The ratio is clipped below 1 - clip_low."""
    clip_high: float = 0.2
    """The ratio is clipped above 1 + clip_high."""
    reduction: Reduction = "sequence"
    """Mean over each response and then over responses, over all tokens, or by a constant."""
    correction: Correction = "none"
    """For tokens of older weights or of another engine; none: the ratio to what sampled them throughout."""
    kl_weight: float = 0.0
    """Weight of the divergence from the model that the run began with."""
    kl_estimator: Literal["k1", "k2", "k3", "unbiased_k3"] = "k3"
    """How the divergence is estimated from the sampled tokens."""
    entropy_weight: float = 0.0
    """Weight of the mean entropy of the policy, which is raised."""
    mask_truncated: bool = False
    """Leave out responses that hit the length limit."""


@dataclass(frozen=True)
class GRPOLossConfig(LossConfig):
    """GRPO: a group-relative advantage and a clipped ratio."""

    advantage: Advantage = "grpo"
    """grpo: (R - mean) / std of the group (grpo_sample: with G - 1); dr_grpo: R - mean; rloo: R - mean of the others;
    batch: R - mean of the group, over the deviation of the batch."""
    surrogate: Surrogate = "clip"
    """What is done about a ratio far from 1."""
    dual_limit: float = 3.0
    """For surrogate dual_clip: with a negative advantage the ratio counts as this at most."""


@dataclass(frozen=True)
class DrGRPOLossConfig(GRPOLossConfig):
    """Dr.GRPO (arXiv 2503.20783): neither the group's deviation nor the response's length divides."""

    advantage: Advantage = "dr_grpo"
    reduction: Reduction = "constant"


@dataclass(frozen=True)
class DAPOLossConfig(GRPOLossConfig):
    """DAPO (arXiv 2503.14476): a higher upper clip, and every token counts the same."""

    clip_high: float = 0.28
    reduction: Reduction = "token"


@dataclass(frozen=True)
class GSPOLossConfig(GRPOLossConfig):
    """GSPO (arXiv 2507.18071): one ratio a response."""

    surrogate: Surrogate = "gspo"
    clip_low: float = 3e-4
    clip_high: float = 4e-4


@dataclass(frozen=True)
class CISPOLossConfig(GRPOLossConfig):
    """CISPO (arXiv 2506.13585): the weight is clipped, the gradient stays."""

    surrogate: Surrogate = "cispo"
    reduction: Reduction = "token"
    cispo_low: float = 0.0
    """Least weight of a token."""
    cispo_high: float = 5.0
    """Largest weight of a token."""


@dataclass(frozen=True)
class M2POLossConfig(LossConfig):
    """M2PO (arXiv 2510.01161): the fewest tokens are dropped that keep the second moment within a budget."""

    advantage: Advantage = "grpo"
    """As for grpo."""
    reduction: Reduction = "token"
    budget: float = 0.04
    """Largest mean squared log-ratio of the tokens that the variant looks at."""
    variant: Literal["paper", "authors", "areal", "ratio"] = "paper"
    """Four things carry the name; see atrl_agents/second_moment.py."""
    gamma: float = 4.0
    """For variant ratio: largest squared ratio of a token."""


@dataclass(frozen=True)
class PPOLossConfig(LossConfig):
    """PPO (arXiv 1707.06347): a critic tells what was to be expected."""

    reduction: Reduction = "token"
    surrogate: Surrogate = "clip"
    """What is done about a ratio far from 1."""
    dual_limit: float = 3.0
    """For surrogate dual_clip: with a negative advantage the ratio counts as this at most."""
    critic: Literal["own", "head"] = "own"
    """own: a copy of the model with a value head; head: a value head on the model itself."""
    critic_learning_rate: float | None = None
    """Of the critic. None: the policy's."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    value_clip: float | None = 0.2
    """How far a value may move in one update. None: as far as it likes."""
    discount: float = 1.0
    """Of rewards, per token."""
    gae_lambda: float = 0.95
    """1: the whole return; 0: the next value alone."""
    normalise: bool = True
    """Centre and scale the advantages of a batch."""
    bootstrap_truncated: bool = False
    """A response cut off at the length limit is worth, beside its reward, what the critic expects after it; a policy
    can then learn never to end."""
