"""Loss modules: read keys, call a pure function, write keys.

    loss = GRPOLoss(actor)                   # actor: a TransformersPolicy
    out = loss(batch)                        # batch: finished episodes with an advantage
    out["loss_objective"].backward()

The formulas are in surrogates.py and advantages.py; nothing is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives.common import LossModule

from atrl_envs import keys

from .diagnostics import RatioSums
from .log_probs import ResponseLogProbs
from .surrogates import Reduction, Totals, ppo_clip, ratio_of, reduce


class Actor(Protocol):
    """What a loss needs of a policy: log-probabilities of given responses, with gradient."""

    def response_log_probs(
        self, tokens: Tensor, prompt_length: Tensor, length: Tensor, group: Tensor | None = None
    ) -> ResponseLogProbs: ...


class GRPOLoss(LossModule):
    """PPO's clipped surrogate with an advantage per response (GRPO, arXiv 2402.03300, eq. 3, without KL).

    Reads, for N episodes of S columns: `tokens` `[N, S]`, `prompt_length`, `length`, `group` `[N]`,
    `response_mask` `[N, S]` bool, `log_prob` `[N, S]` (of the policy that sampled), `advantage` `[N]` or `[N, S]`.
    Writes `loss_objective` and detached diagnostics, all `[]`.

    Args:
        actor: a policy with `response_log_probs`, such as TransformersPolicy.
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high].
        reduction: `sequence` (GRPO), `token` (DAPO) or `constant` (Dr.GRPO); see surrogates.reduce.
    """

    @dataclass
    class _AcceptedKeys:
        tokens: NestedKey = keys.TOKENS
        prompt_length: NestedKey = keys.PROMPT_LENGTH
        length: NestedKey = keys.LENGTH
        group: NestedKey = keys.GROUP
        response_mask: NestedKey = keys.RESPONSE_MASK
        log_prob: NestedKey = keys.LOG_PROB
        advantage: NestedKey = keys.ADVANTAGE

    tensor_keys: _AcceptedKeys
    out_keys = [  # noqa: RUF012 (torchrl reads it from the class)
        "loss_objective", "ratio_mean", "clip_fraction", "kept_fraction", "kl", "entropy", "ess", "chi2", "m2",
    ]  # fmt: skip

    def __init__(
        self,
        actor: Any,
        *,
        clip_low: float = 0.2,
        clip_high: float = 0.2,
        reduction: Reduction = "sequence",
    ) -> None:
        super().__init__()
        self.actor_network = actor
        self.clip_low = clip_low
        self.clip_high = clip_high
        self.reduction: Reduction = reduction
        self.set_in_keys()

    def set_in_keys(self) -> None:
        self._in_keys = list(vars(self.tensor_keys).values())

    @property
    def in_keys(self) -> list[NestedKey]:  # type: ignore[override]
        return self._in_keys

    @in_keys.setter
    def in_keys(self, values: list[NestedKey]) -> None:
        self._in_keys = values

    def _forward_value_estimator_keys(self, **kwargs: Any) -> None:
        self.set_in_keys()

    def forward(self, tensordict: TensorDictBase, totals: Totals | None = None) -> TensorDict:
        """The loss of a (micro-)batch; `totals` are the sizes of the whole batch it is a part of."""
        loss, sums = self.objective(tensordict, totals)
        return TensorDict({"loss_objective": loss, **{k: v.float() for k, v in sums.tensors().items()}}, [])

    def objective(self, tensordict: TensorDictBase, totals: Totals | None = None) -> tuple[Tensor, RatioSums]:
        """The loss and its diagnostics as sums, for callers that accumulate micro-batches."""
        names = self.tensor_keys
        tokens, mask, behaviour = (
            tensordict.get(k) for k in (names.tokens, names.response_mask, names.log_prob)
        )
        per_row = (tensordict.get(k) for k in (names.prompt_length, names.length, names.group))
        prompt_length, length, group = (t.reshape(tokens.shape[0]) for t in per_row)
        advantage = tensordict.get(names.advantage)
        if advantage.ndim == 1:
            advantage = advantage.unsqueeze(-1).expand(mask.shape)
        current = self.actor_network.response_log_probs(tokens, prompt_length, length, group=group)
        log_ratio = current.log_prob - behaviour
        values = ppo_clip(log_ratio, advantage, mask, clip_low=self.clip_low, clip_high=self.clip_high)
        loss = -reduce(values, mask, self.reduction, totals)
        with torch.no_grad():
            ratio = ratio_of(log_ratio)
            clipped = ((ratio > 1 + self.clip_high) & (advantage > 0)) | (
                (ratio < 1 - self.clip_low) & (advantage < 0)
            )
        return loss, RatioSums.of(log_ratio, mask, entropy=current.entropy, clipped=clipped)
