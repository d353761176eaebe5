"""The losses of TRL and TorchRL on tensors that are there already: their own code, with the model taken out.

    calls = loss_calls(tensors)          # name -> a function that makes the loss with its diagnostics, to be backwarded

Every side gets the same log-probabilities `[B, L]`, with gradient, in place of a forward pass, and runs what its
trainer calls per batch, what it reports included. A peer that is not installed is left out.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import Tensor, nn

from atrl_agents.log_probs import ResponseLogProbs
from atrl_agents.losses import GRPOLoss, M2POLoss, PPOLoss

GROUP = 4


@dataclass
class Tensors:
    """One batch: log_prob and value are leaves with gradient; all `[B, L]`, every token a response's."""

    log_prob: Tensor
    behaviour: Tensor
    advantage: Tensor
    value: Tensor
    target: Tensor
    entropy: Tensor

    @classmethod
    def of(cls, rows: int, columns: int, spread: float = 0.3) -> Tensors:
        """Log-ratios of heavy tails, as of stale data: t with 2.5 degrees of freedom, times `spread`."""
        g = torch.Generator().manual_seed(0)
        normal = torch.randn(rows, columns, generator=g)
        chi = torch._standard_gamma(torch.full((rows, columns), 1.25), generator=g) * 2
        ratio = normal / (chi / 2.5).sqrt() * spread
        behaviour = -torch.rand(rows, columns, generator=g) * 3 - ratio.amax()
        per_row = torch.randn(rows, 1, generator=g).expand(rows, columns).contiguous()
        made = cls(behaviour + ratio, behaviour, per_row, *torch.randn(3, rows, columns, generator=g))
        made.log_prob.requires_grad_()
        made.value = made.value.clone().requires_grad_()
        return made


class Given(nn.Module):
    """A policy and critic that answer what they were given."""

    in_keys: tuple[str, ...] = ()
    out_keys: tuple[str, ...] = ()

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self.tensors = tensors

    def response_log_probs(self, *_: Any, **__: Any) -> ResponseLogProbs:
        t = self.tensors
        return ResponseLogProbs(t.log_prob, t.entropy, torch.ones_like(t.log_prob, dtype=torch.bool))

    def values(self, *_: Any) -> Tensor:
        return nn.functional.pad(self.tensors.value, (0, 1))

    def get_dist(self, *_: Any, **__: Any) -> Any:
        t = self.tensors
        mask = torch.ones_like(t.log_prob, dtype=torch.bool)
        return SimpleNamespace(log_prob=lambda _: t.log_prob, mask=mask)


def loss_calls(tensors: Tensors) -> dict[str, Callable[[], Tensor]]:
    """`objective, side` -> the loss."""
    calls = ours(tensors)
    if importlib.util.find_spec("trl") is not None:
        calls["GRPO, trl"] = trl_grpo(tensors)
    calls["GRPO, torchrl"] = torchrl_grpo(tensors)
    calls["PPO, torchrl"] = torchrl_ppo(tensors)
    return calls


def ours(t: Tensors) -> dict[str, Callable[[], Tensor]]:
    rows, columns = t.log_prob.shape
    data = TensorDict(
        {
            "tokens": torch.zeros(rows, columns, dtype=torch.int64),
            "prompt_length": torch.zeros(rows, dtype=torch.int64),
            "length": torch.full((rows,), columns),
            "response_mask": torch.ones(rows, columns, dtype=torch.bool),
            "log_prob": t.behaviour,
            "advantage": t.advantage,
            "value": t.value.detach(),
            "value_target": t.target,
        },
        batch_size=[rows],
    )
    given = Given(t)
    losses = {
        "GRPO": GRPOLoss(given),
        "PPO": PPOLoss(given, given),
        "M2PO": M2POLoss(given),
        "M2PO authors": M2POLoss(given, variant="authors"),
        "M2PO ratio": M2POLoss(given, variant="ratio"),
    }

    def call(loss: Any) -> Callable[[], Tensor]:
        def run() -> Tensor:
            out = loss(data)
            total: Tensor = sum(value for name, value in out.items() if name.startswith("loss_"))  # type: ignore[assignment]
            return total

        return run

    return {f"{name}, atrl": call(loss) for name, loss in losses.items()}


def trl_grpo(t: Tensors) -> Callable[[], Tensor]:
    """`GRPOTrainer._compute_loss` with what it asks its trainer for."""
    from trl import GRPOTrainer

    accelerator = SimpleNamespace(
        gather=lambda x: x, reduce=lambda x, reduction: x, gather_for_metrics=lambda x: x, num_processes=1
    )
    trainer = SimpleNamespace(
        accelerator=accelerator,
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level="token",
        beta=0.0,
        loss_type="grpo",
        epsilon_low=0.2,
        epsilon_high=0.2,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        current_gradient_accumulation_steps=1,
        max_completion_length=t.log_prob.shape[1],
        use_adaptive_entropy=False,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (t.log_prob, t.entropy, None),
    )
    ids = torch.zeros(t.log_prob.shape, dtype=torch.int64)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1] + 1,
        "completion_ids": ids,
        "completion_mask": ids + 1,
        "advantages": t.advantage[:, 0],
        "old_per_token_logps": t.behaviour,
    }

    def run() -> Tensor:
        trainer._metrics["train"].clear()
        loss: Tensor = GRPOTrainer._compute_loss(trainer, None, inputs)
        return loss

    return run


def torchrl_grpo(t: Tensors) -> Callable[[], Tensor]:
    from torchrl.objectives.llm import GRPOLoss as TheirLoss

    loss = TheirLoss(Given(t), entropy_bonus=False, aggregation="prompt_mean")
    loss.set_keys(action="tokens", sample_log_prob="log_prob", advantage="advantage")
    data = TensorDict(
        {
            "tokens": torch.zeros(t.log_prob.shape, dtype=torch.int64),
            "log_prob": t.behaviour,
            "advantage": t.advantage.unsqueeze(-1),
        },
        batch_size=[len(t.log_prob)],
    )
    return lambda: loss(data).get("loss_objective")


def torchrl_ppo(t: Tensors) -> Callable[[], Tensor]:
    from torchrl.objectives import ClipPPOLoss

    class Value(nn.Module):
        def forward(self, observation: Tensor) -> Tensor:
            return t.value.unsqueeze(-1)

    critic = TensorDictModule(Value(), in_keys=["observation"], out_keys=["state_value"])
    loss = ClipPPOLoss(
        Given(t),
        critic,
        entropy_bonus=False,
        critic_coeff=0.5,
        loss_critic_type="l2",
        clip_value=0.2,
        functional=False,
    )
    loss.set_keys(action="tokens", sample_log_prob="log_prob")
    data = TensorDict(
        {
            "observation": torch.zeros(*t.log_prob.shape, 1),
            "tokens": torch.zeros(t.log_prob.shape, dtype=torch.int64),
            "log_prob": t.behaviour,
            "advantage": t.advantage.unsqueeze(-1),
            "value_target": t.target.unsqueeze(-1),
            "state_value": t.value.detach().unsqueeze(-1),
        },
        batch_size=list(t.log_prob.shape),
    )

    def run() -> Tensor:
        out = loss(data)
        total: Tensor = out.get("loss_objective") + out.get("loss_critic")
        return total

    return run
