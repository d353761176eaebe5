"""One update: advantages, micro-batches, loss, optimiser.

    learner = Learner(actor, loss, config)
    metrics = learner.update(batch)     # batch: complete groups of finished episodes, [N, S]

Groups whose rewards are all equal have advantage 0 and contribute exactly nothing, so their forward
and backward passes are left out; every sum is still divided by the sizes of the whole batch, so the
gradient is that of the whole batch however it is cut into micro-batches.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from atrl_envs import keys

from .advantages import Scale, group_relative, leave_one_out
from .config import GRPOConfig, OptimConfig
from .diagnostics import RatioSums
from .losses import GRPOLoss
from .surrogates import Totals


def make_optimizer(model: Any, config: OptimConfig) -> torch.optim.AdamW:
    """AdamW over the trainable parameters."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(
        trainable,
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


class Diverged(RuntimeError):
    """Training has left the numbers: a loss, gradient or log-probability is infinite or no number."""


class Learner:
    """Turn batches of finished episodes into optimiser steps.

    Args:
        actor: a policy with `model` and `response_log_probs`.
        config: of the run.
        max_new_tokens: the env's limit (what the `constant` reduction divides by).
    """

    def __init__(self, actor: Any, config: GRPOConfig, max_new_tokens: int) -> None:
        self.model = actor.model
        self.config = config
        self.max_new_tokens = max_new_tokens
        loss = config.loss
        self.loss = GRPOLoss(
            actor, clip_low=loss.clip_low, clip_high=loss.clip_high, reduction=loss.reduction
        )
        self.optimizer = make_optimizer(self.model, config.optim)
        self.updates = 0
        # The optimiser skips parameters without a gradient; with zeros, a batch without contrast moves the weights
        # by momentum alone, in a resumed run as in one that was never interrupted.
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)

    def update(self, batch: TensorDictBase) -> dict[str, float]:
        """One optimiser step on complete groups, ordered by group; returns the metrics of the step.

        Diverged: a number of the batch or the gradient is not finite; the weights are left as they were.
        """
        for name, what in ((keys.REWARD, "a reward"), (keys.LOG_PROB, "a sampled token's log-probability")):
            if not bool(torch.isfinite(batch[name]).all()):
                raise Diverged(self._diverged(what))
        valid = batch[keys.SCORED]
        advantage = self.advantage(batch[keys.REWARD], valid)
        response = batch[keys.LENGTH] - batch[keys.PROMPT_LENGTH]
        totals = Totals(
            rows=float(valid.sum()), tokens=float(response[valid].sum()), max_tokens=self.max_new_tokens
        )
        contrast = self._per_group(advantage != 0).any(1)
        batch = batch.set(keys.ADVANTAGE, advantage)

        self.optimizer.zero_grad(set_to_none=False)
        objective = torch.zeros(())
        sums: RatioSums | None = None
        for index in self._micro_batches(batch, contrast):
            part = batch[index]
            width = int(part[keys.LENGTH].max())
            loss, part_sums = self.loss.objective(_narrow(part, width), totals)
            loss.backward()
            objective += loss.detach()
            sums = part_sums if sums is None else sums + part_sums
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optim.grad_clip)
        if not math.isfinite(float(grad_norm)):
            raise Diverged(self._diverged("the norm of the gradient"))
        self.optimizer.param_groups[0]["lr"] = learning_rate = self.learning_rate()
        self.optimizer.step()
        self.updates += 1
        return {
            "loss": float(objective),
            "grad_norm": float(grad_norm),
            "learning_rate": learning_rate,
            "contrast_fraction": float(contrast.float().mean()),
            **(sums.metrics() if sums is not None else {}),
        }

    def advantage(self, reward: Tensor, valid: Tensor) -> Tensor:
        """`[N]` advantages by the configured rule; 0 where the response could not be judged."""
        size = self.config.samples_per_prompt
        if self.config.loss.advantage == "rloo":
            return leave_one_out(reward, size, valid=valid)
        scale: Scale = "population" if self.config.loss.advantage == "grpo" else "none"
        return group_relative(reward, size, valid=valid, scale=scale)

    def learning_rate(self) -> float:
        """The learning rate of the next step: a linear ramp over the first updates, then the schedule."""
        optim, done = self.config.optim, self.updates
        ramp = min(1.0, (done + 1) / max(1, optim.ramp_steps))
        left = max(0.0, 1.0 - done / max(1, self.config.steps)) if optim.schedule == "linear" else 1.0
        return optim.learning_rate * ramp * left

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]

    def _diverged(self, what: str) -> str:
        return (
            f"{what} in update {self.updates + 1} is not finite, so the update was not made; training has diverged: "
            "give a smaller --optim.learning-rate, a --temperature nearer 1, or rewards of moderate size"
        )

    def _per_group(self, values: Tensor) -> Tensor:
        return values.view(-1, self.config.samples_per_prompt)

    def _micro_batches(self, batch: TensorDictBase, contrast: Tensor) -> list[Tensor]:
        """Indices of whole groups with contrast, similar lengths together, each part within the token budget.

        The budget counts the padded tokens that a group would take without sharing its prompt. A group that
        exceeds it by itself is a part of its own.
        """
        size = self.config.samples_per_prompt
        longest = self._per_group(batch[keys.LENGTH]).amax(1)
        groups = contrast.nonzero().squeeze(-1)
        groups = groups[longest[groups].argsort(stable=True)]
        parts: list[list[int]] = [[]]
        for group, width in zip(groups.tolist(), longest[groups].tolist(), strict=True):
            if parts[-1] and (len(parts[-1]) + 1) * size * width > self.config.micro_batch_tokens:
                parts.append([])
            parts[-1].append(group)
        member = torch.arange(size)
        return [(torch.tensor(sorted(part))[:, None] * size + member).flatten() for part in parts if part]


def _narrow(batch: TensorDictBase, width: int) -> TensorDictBase:
    """Cut the padding columns beyond the longest sequence."""
    return batch.apply(lambda tensor: tensor[:, :width] if tensor.ndim == 2 else tensor)
