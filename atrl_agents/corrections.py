"""Corrections for tokens that another policy sampled: one algebra, scope x action x quantity, and its presets.

    correction = PRESETS["tis"]
    found = correct(correction.rules, between, advantage, mask)     # weight and kept [N, T], penalty [N, T]
    objective = found.weight * found.kept * surrogate - found.penalty

Three policies have a part: the behaviour (what sampled, engine and age included), the proximal one (the trainer's
weights when the update began) and the current one. A decoupled correction clips the ratio current / proximal and weighs
by proximal / behaviour (arXiv 2110.00641); the others use current / behaviour throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from .surrogates import check_shapes, masked_mean, ratio_of, row_mean, wide

Scope = Literal["token", "sequence", "product", "group", "batch"]  # not a key
Action = Literal["truncate", "clip", "mask", "penalise"]
Quantity = Literal["ratio", "log_ratio", "squared", "probability"]
Pair = Literal["proximal", "current"]
Sign = Literal["any", "positive", "negative"]


@dataclass(frozen=True)
class Rule:
    """One rule about a quantity q of the log-ratio d of two policies, the behaviour being the second.

    Attributes:
        action: `truncate` weighs by min(q, high), `clip` by q within [low, high], `mask` drops what is outside
            [low, high], `penalise` adds coefficient * q to the loss. Weights and masks have no gradient.
        quantity: `ratio` exp(d), `log_ratio` d, `squared` d^2, or `probability` pi - pi_behaviour.
        scope: of each `token`; the mean over its response (`sequence`), `group` or the `batch`, for the ratio the
            geometric mean; `product` is the sum over the response, for the ratio its product.
        of: the first policy, `proximal` or `current`.
        when: only tokens with an advantage of this sign.
    """

    action: Action
    quantity: Quantity = "ratio"
    scope: Scope = "token"
    low: float = -math.inf
    high: float = math.inf
    of: Pair = "proximal"
    when: Sign = "any"
    coefficient: float = 0.0

    def __post_init__(self) -> None:
        for name, kind in (
            ("action", Action),  # not a key
            ("quantity", Quantity), ("scope", Scope), ("of", Pair), ("when", Sign),
        ):  # fmt: skip
            if getattr(self, name) not in get_args(kind):
                raise ValueError(
                    f"Unknown {name} {getattr(self, name)!r}; choose {', '.join(get_args(kind))}."
                )


@dataclass(frozen=True)
class Correction:
    """A named combination.

    Attributes:
        decoupled: the surrogate's ratio is current / proximal; else current / behaviour.
        interpolated: the proximal policy is not computed but taken between the two others (A-3PO).
        clips: the surrogate clips; False where the rules take the clip's place.
    """

    rules: tuple[Rule, ...] = ()
    decoupled: bool = False
    interpolated: bool = False
    clips: bool = True

    @property
    def penalises(self) -> bool:
        """Whether a token without advantage has a gradient."""
        return any(rule.action == "penalise" for rule in self.rules)


_WEIGHT = Rule("truncate")
PRESETS: dict[str, Correction] = {
    "none": Correction(),
    "decoupled": Correction((_WEIGHT,), decoupled=True),  # arXiv 2110.00641, eq. 11; AReaL, arXiv 2505.24298
    "a3po": Correction((_WEIGHT,), decoupled=True, interpolated=True),  # arXiv 2512.06547
    "tis": Correction((Rule("truncate", high=2.0),), decoupled=True),  # fengyao.notion.site/off-policy-rl
    "tis_sequence": Correction((Rule("truncate", scope="product", high=2.0),), decoupled=True),
    "mis": Correction((_WEIGHT, Rule("mask", low=0.5, high=5.0)), decoupled=True),  # IcePop, arXiv 2510.18855
    "mis_sequence": Correction(
        (Rule("truncate", scope="product"), Rule("mask", scope="product", low=0.5, high=5.0)), decoupled=True
    ),
    "mis_geometric": Correction(
        (Rule("truncate", scope="sequence"), Rule("mask", scope="sequence", low=0.5, high=5.0)),
        decoupled=True,
    ),
    "token_mask": Correction((_WEIGHT, Rule("mask", low=0.5, high=2.0)), decoupled=True),
    "sequence_mask": Correction(  # DeepSeek-V3.2, arXiv 2512.02556: mean(log mu - log pi) > 0.5 and A < 0
        (Rule("mask", quantity="log_ratio", scope="sequence", low=-0.5, of="current", when="negative"),)
    ),
    "dppo": Correction(  # arXiv 2602.04879
        (
            Rule("mask", quantity="probability", high=0.2, of="current", when="positive"),
            Rule("mask", quantity="probability", low=-0.2, of="current", when="negative"),
            Rule("penalise", quantity="squared", of="current", coefficient=1e-3),
        ),
        clips=False,
    ),
}


@dataclass(frozen=True)
class LogProbs:
    """Log-probabilities `[N, T]` of the tokens under the three policies; only `current` has a gradient."""

    current: Tensor
    behaviour: Tensor
    proximal: Tensor

    def of(self, pair: Pair) -> Tensor:
        """`[N, T]` of the named policy."""
        return self.current if pair == "current" else self.proximal


@dataclass(frozen=True)
class Corrected:
    """What the rules say: weight (float, no gradient), kept (bool) and penalty (with gradient), all `[N, T]`."""

    weight: Tensor
    kept: Tensor
    penalty: Tensor


def correct(
    rules: tuple[Rule, ...],
    log_probs: LogProbs,
    advantage: Tensor,
    mask: Tensor,
    *,
    group: Tensor | None = None,
) -> Corrected:
    """Apply rules; their weights are multiplied, a token stays where every mask keeps it, penalties are added.

    Args:
        advantage, mask: `[N, T]`.
        group: `[N]` ids, for rules of scope `group`.

    Outside the mask the weight is 1, nothing is kept and the penalty is 0. A rule of scope `group` or `batch` sees the
    rows it is given: give it the whole batch, or micro-batches of whole groups.
    """
    check_shapes(current=log_probs.current, behaviour=log_probs.behaviour, advantage=advantage, mask=mask)
    check_shapes(current=log_probs.current, proximal=log_probs.proximal)
    weight, penalty = torch.ones_like(log_probs.current), torch.zeros_like(log_probs.current)
    kept = mask
    for rule in rules:
        concerned = mask & _sign(rule.when, advantage)
        if rule.action == "penalise":
            penalty = penalty + (rule.coefficient * _quantity(rule, log_probs, mask, group)).masked_fill(
                ~concerned, 0.0
            )
            continue
        with torch.no_grad():
            quantity = _quantity(rule, log_probs, mask, group)
            if rule.action == "mask":
                kept = kept & ~(concerned & ((quantity < rule.low) | (quantity > rule.high)))
            else:
                low = rule.low if rule.action == "clip" else -math.inf
                weight = weight * torch.where(concerned, quantity.clamp(low, rule.high), 1.0)
    return Corrected(weight.detach(), kept, penalty)


def interpolated_proximal(
    current: Tensor, behaviour: Tensor, version: Tensor, *, proximal_version: float, current_version: float
) -> Tensor:
    """A-3PO's proximal log-probabilities without a forward pass, `[N, T]`, no gradient (arXiv 2512.06547).

    `log pi_behav + alpha (log pi_theta - log pi_behav)`, alpha = (v_prox - v_behav) / (v_theta - v_behav) in [0, 1];
    alpha is 1 where the token is of the current weights.

    Args:
        version: `[N, T]` of the weights that sampled each token.
        proximal_version: of the weights when the update began.
        current_version: of the weights now, a fraction more for every optimiser step of the update.
    """
    check_shapes(current=current, behaviour=behaviour, version=version)
    age = current_version - version.to(current.dtype)
    share = ((proximal_version - version) / age.clamp(min=1e-6)).clamp(0.0, 1.0)
    share = torch.where(age > 0, share, 1.0)
    return (behaviour + share * (current - behaviour)).detach()


def _sign(when: Sign, advantage: Tensor) -> Tensor:
    if when == "any":
        return torch.ones_like(advantage, dtype=torch.bool)
    return advantage > 0 if when == "positive" else advantage < 0


def _quantity(rule: Rule, log_probs: LogProbs, mask: Tensor, group: Tensor | None) -> Tensor:
    """q `[N, T]`; a number of a response, a group or the batch stands at each of its tokens."""
    first = torch.where(mask, wide(log_probs.of(rule.of)), 0.0)
    second = torch.where(mask, wide(log_probs.behaviour), 0.0)
    difference = first - second
    if rule.quantity == "probability":
        return _over(rule.scope, first.exp() - second.exp(), mask, group)
    if rule.quantity == "squared":
        return _over(rule.scope, difference.square(), mask, group)
    difference = _over(rule.scope, difference, mask, group)
    return ratio_of(difference) if rule.quantity == "ratio" else difference


def _over(scope: Scope, values: Tensor, mask: Tensor, group: Tensor | None) -> Tensor:
    """Values `[N, T]` by scope; 0 outside the mask on entry."""
    if scope == "token":
        return values
    if scope == "sequence":
        return row_mean(values, mask).unsqueeze(1).expand_as(values)
    if scope == "product":
        return values.sum(1, keepdim=True).expand_as(values)
    if scope == "batch":
        return masked_mean(values, mask).expand_as(values)
    if group is None or group.shape != values.shape[:1]:
        got = "none" if group is None else tuple(group.shape)
        raise ValueError(
            f"A rule of scope group needs the group of each of {values.shape[0]} rows, [N], got {got}."
        )
    same = group.unsqueeze(1) == group.unsqueeze(0)
    total, count = values.sum(1), mask.sum(1).to(values.dtype)
    mean = (same * total).sum(1) / (same * count).sum(1).clamp(min=1)
    return mean.unsqueeze(1).expand_as(values)
