"""One update: advantages, micro-batches, loss, optimiser.

    learner = Learner(actor, config, max_new_tokens=6)
    learner.begin()                     # the weights are now those that training begins with
    metrics = learner.update(batch)     # batch: complete groups of finished episodes, [N, S]

Groups whose rewards are all equal have advantage 0 and contribute exactly nothing, so their forward
and backward passes are left out; every sum is still divided by the sizes of the whole batch, so the
gradient is that of the whole batch however it is cut into micro-batches, or spread over the ranks of
torch.distributed.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from atrl_envs import keys

from . import lora
from .advantages import Scale, batch_normalised, gae, group_relative, leave_one_out
from .balance import within_budget
from .config import OptimConfig, TrainConfig
from .diagnostics import RatioSums
from .log_probs import response_log_probs
from .loss_config import GRPOLossConfig, M2POLossConfig, PPOLossConfig
from .losses import (
    KEPT,
    LIMIT,
    PROXIMAL,
    REFERENCE,
    TARGET,
    VALUE,
    GRPOLoss,
    M2POLoss,
    PolicyLoss,
    PPOLoss,
    explained_variance,
)
from .objectives import Objective, solve
from .ranks import Ranks
from .surrogates import Totals
from .training_pass import training_pass
from .value_model import ValueModel


class Diverged(RuntimeError):
    """Training has left the numbers: a loss, gradient or log-probability is infinite or no number."""


def make_loss(actor: Any, config: TrainConfig, critic: Any = None) -> PolicyLoss:
    """The loss module of a run's algorithm."""
    loss = config.loss
    known = {field.name for field in dataclasses.fields(Objective)}
    settings = {f.name: getattr(loss, f.name) for f in dataclasses.fields(loss) if f.name in known}
    if isinstance(loss, PPOLossConfig):
        return PPOLoss(actor, critic, value_weight=loss.value_weight, value_clip=loss.value_clip, **settings)
    return (M2POLoss if isinstance(loss, M2POLossConfig) else GRPOLoss)(actor, **settings)


def make_optimizer(
    model: Any, config: OptimConfig, critic: nn.Module | None = None, critic_lr: float | None = None
) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; those of a critic are a group of their own."""
    groups = [{"params": _trainable(model), "peak": config.learning_rate}]
    if critic is not None:
        peak = config.learning_rate if critic_lr is None else critic_lr
        groups.append({"params": _trainable(critic), "peak": peak})
    return torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


class Learner:
    """Turn batches of finished episodes into optimiser steps.

    Args:
        actor: a policy with `model` and `response_log_probs`.
        config: of the run.
        max_new_tokens: the env's limit (what the `constant` reduction divides by).
    """

    def __init__(self, actor: Any, config: TrainConfig, max_new_tokens: int) -> None:
        self.actor, self.model = actor, actor.model
        self.config = config
        self.max_new_tokens = max_new_tokens
        self.ranks = Ranks()
        self.critic: ValueModel | None = None
        critic_lr = None
        if isinstance(config.loss, PPOLossConfig):
            kind = ValueModel.own if config.loss.critic == "own" else ValueModel.on
            self.critic, critic_lr = kind(self.model), config.loss.critic_learning_rate
        self.reference: Any = None  # of a model with an adapter, the model without it
        if config.loss.kl_weight and not lora.is_adapted(self.model):
            self.reference = copy.deepcopy(self.model).requires_grad_(False)
        self.loss = make_loss(actor, config, self.critic)
        self.optimizer = make_optimizer(self.model, config.optim, self.critic, critic_lr)
        self.updates = 0
        # The optimiser skips parameters without a gradient; with zeros, a batch without contrast moves the weights
        # by momentum alone, in a resumed run as in one that was never interrupted.
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)

    @torch.no_grad()
    def begin(self) -> None:
        """Reinforcement learning starts from the weights that the model has now; so do the critic and the reference."""
        state = self.model.state_dict()
        if self.reference is not None:
            self.reference.load_state_dict(state)
        if self.critic is not None and not self.critic.shared:
            self.critic.trunk.load_state_dict(state)

    def update(self, batch: TensorDictBase) -> dict[str, float]:
        """Train on complete groups, ordered by group; returns the metrics of the update.

        Diverged, on every rank: a number of the batch or the gradient is not finite; the step is not made.
        """
        for name, what in ((keys.REWARD, "a reward"), (keys.LOG_PROB, "a sampled token's log-probability")):
            if self.ranks.any(not bool(torch.isfinite(batch[name]).all())):
                raise Diverged(self._diverged(what))
        batch = batch.copy()  # what is written here is not the caller's
        trained, metrics = self._prepare(batch)
        for epoch in range(self.config.epochs):
            metrics |= self._step(batch, trained, epoch)
        self.updates += 1
        return metrics | {"contrast_fraction": float(self._contrast(batch).float().mean())}

    def gradient_norm(self, batch: TensorDictBase) -> float:
        """Norm of the gradient that `update` would clip and apply to this batch; nothing is changed."""
        parameters = _trainable(self.model)
        kept = [parameter.grad for parameter in parameters]
        batch = batch.copy()
        trained, _ = self._prepare(batch)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._accumulate(batch, trained, (self.updates, self.updates))
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        for parameter, gradient in zip(parameters, kept, strict=True):
            parameter.grad = gradient
        return float(norm)

    def advantage(self, reward: Tensor, valid: Tensor) -> Tensor:
        """`[N]` advantages by the configured rule; 0 where the response could not be judged."""
        loss, size = self.config.loss, self.config.samples_per_prompt
        assert isinstance(loss, (GRPOLossConfig, M2POLossConfig))
        if loss.advantage == "rloo":
            return leave_one_out(reward, size, valid=valid)
        if loss.advantage == "batch":
            centred = group_relative(reward, size, valid=valid, scale="none")
            return batch_normalised(centred, valid, ranks=self.ranks.group)
        scales: dict[str, Scale] = {"grpo": "population", "grpo_sample": "sample", "dr_grpo": "none"}
        return group_relative(reward, size, valid=valid, scale=scales[loss.advantage])

    def learning_rate(self) -> float:
        """The learning rate of the next step: a linear ramp over the first updates, then the schedule."""
        return self.config.optim.learning_rate * self._schedule()

    def state_dict(self) -> dict[str, Any]:
        state = {"optimizer": self.optimizer.state_dict(), "updates": self.updates}
        if self.critic is not None:
            state["critic"] = {name: p.detach() for name, p in lora.trainable(self.critic).items()}
        if self.reference is not None:
            state["reference"] = self.reference.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # The moments go on; what the optimiser is told comes from the config, which may have been given anew.
        told = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(state["optimizer"])
        for group, settings in zip(self.optimizer.param_groups, told, strict=True):
            group.update(settings)
        self.updates = state["updates"]
        if self.critic is not None:
            trained, saved = lora.trainable(self.critic), state["critic"]
            with torch.no_grad():
                for name, parameter in trained.items():
                    parameter.copy_(saved[name])
        if self.reference is not None:
            self.reference.load_state_dict(state["reference"])

    # -- before the first step -------------------------------------------------------------------

    def _prepare(self, batch: TensorDictBase) -> tuple[Tensor, dict[str, float]]:
        """Write what all steps of the update share: advantages, and what older or other models say of the tokens.

        Returns which responses are trained `[N]` bool, and metrics. What could not be judged is no part of a group's
        baseline; what `mask_truncated` leaves out is.
        """
        loss, rules = self.config.loss, self.loss.spec.rules
        valid, metrics = batch[keys.SCORED], {}
        trained = valid & ~batch[keys.TRUNCATED] if loss.mask_truncated else valid
        batch.set(keys.RESPONSE_MASK, batch[keys.RESPONSE_MASK] & trained.unsqueeze(1))
        if isinstance(loss, PPOLossConfig):
            metrics = self._values(batch, loss)
        else:
            advantage = self.advantage(batch[keys.REWARD], valid)
            batch.set(keys.ADVANTAGE, advantage.masked_fill(~trained, 0.0))
        if loss.kl_weight:
            batch.set(REFERENCE, self._reference(batch))
        if self.config.epochs > 1 and rules.decoupled and not rules.interpolated:
            batch.set(PROXIMAL, self._log_probs(batch, self.model, self._every_group(batch)))
        return trained, metrics

    def _reference(self, batch: TensorDictBase) -> Tensor:
        """`[N, S]` log-probabilities under the model that reinforcement learning began with."""
        groups = self._every_group(batch)
        if self.reference is not None:
            return self._log_probs(batch, self.reference, groups)
        with lora.disabled(self.model):
            return self._log_probs(batch, self.model, groups)

    @torch.no_grad()
    def _values(self, batch: TensorDictBase, loss: PPOLossConfig) -> dict[str, float]:
        """Write values, their targets and advantages."""
        assert self.critic is not None
        mask, length = batch[keys.RESPONSE_MASK], batch[keys.LENGTH]
        value = torch.zeros(mask.shape[0], mask.shape[1] + 1, device=mask.device)
        for index, part in self._parts(batch, self._micro_batches(batch, self._every_group(batch))):
            found = self.critic.values(
                part[keys.TOKENS], part[keys.PROMPT_LENGTH], part[keys.LENGTH], part[keys.GROUP]
            )
            value[index, : found.shape[1]] = found
        after = value.gather(1, length.unsqueeze(1)).squeeze(1)
        value = value[:, :-1].masked_fill(~mask, 0.0)
        cut = batch[keys.TRUNCATED] & loss.bootstrap_truncated
        settings = {"gamma": loss.discount, "lam": loss.gae_lambda}
        advantage, target = gae(batch[keys.REWARD], value, mask, truncated=cut, after=after, **settings)
        batch.set(VALUE, value).set(TARGET, target)
        if loss.normalise:
            advantage = batch_normalised(advantage, mask, ranks=self.ranks.group)
        batch.set(keys.ADVANTAGE, advantage)
        return {"explained_variance": float(explained_variance(value, target, mask))}

    # -- a step ----------------------------------------------------------------------------------

    def _step(self, batch: TensorDictBase, trained: Tensor, epoch: int) -> dict[str, float]:
        """One optimiser step on the whole batch."""
        self.optimizer.zero_grad(set_to_none=False)
        versions = (self.updates, self.updates + epoch / self.config.epochs)
        terms, sums = self._accumulate(batch, trained, versions)
        self.ranks.sum_gradients(self.optimizer)
        groups, limit = self.optimizer.param_groups, self.config.optim.grad_clip
        norms = [torch.nn.utils.clip_grad_norm_(group["params"], limit) for group in groups]
        if self.ranks.any(not all(math.isfinite(float(norm)) for norm in norms)):
            raise Diverged(self._diverged("the norm of the gradient"))
        for group in groups:
            group["lr"] = group["peak"] * self._schedule()
        self.optimizer.step()
        named = {f"loss_{name}": float(term) for name, term in terms.items()}
        return {
            "loss": named.pop("loss_objective", 0.0),
            **named,
            "grad_norm": float(norms[0]),
            "learning_rate": groups[0]["lr"],
            **(sums.metrics(trust=self.loss.spec.surrogate == "m2po") if sums is not None else {}),
        }

    def _accumulate(
        self, batch: TensorDictBase, trained: Tensor, versions: tuple[float, float]
    ) -> tuple[dict[str, Tensor], RatioSums | None]:
        """Add the gradient of the whole batch, micro-batch by micro-batch."""
        spec = self.loss.spec
        needs_all = self.critic is not None or spec.moves_without_advantage
        parts = self._micro_batches(batch, self._every_group(batch) if needs_all else self._contrast(batch))
        whole = len(parts) < 2 and not self.ranks.active
        counts = [trained.sum(), batch[keys.RESPONSE_MASK].sum()]
        if spec.surrogate == "m2po" and (spec.considers_all or not whole):
            self._solve(batch)
            counts.append(batch[KEPT].sum())
        rows, tokens, *kept = self.ranks.sum(torch.stack(counts).double()).tolist()
        totals = Totals(
            rows=rows,
            tokens=tokens,
            max_tokens=self.max_new_tokens,
            kept=kept[0] if kept else None,
            whole=whole,
        )
        terms: dict[str, Tensor] = {}
        sums: RatioSums | None = None
        models = [self.model, *([self.critic] if self.critic is not None else [])]
        step = round(versions[1] * self.config.epochs)
        with training_pass(models, seed=self.config.seed, number=step):
            for _, part in self._parts(batch, parts):
                outcome = self.loss.outcome(part, totals, versions)
                outcome.total.backward()
                for name, term in outcome.terms.items():
                    terms[name] = terms.get(name, torch.zeros(())) + term.detach()
                sums = outcome.sums if sums is None else sums + outcome.sums
        return terms, sums

    def _solve(self, batch: TensorDictBase) -> None:
        """Write M2PO's constraint for the whole batch and all ranks, after a first pass without gradient."""
        spec, mask = self.loss.spec, batch[keys.RESPONSE_MASK]
        groups = self._every_group(batch) if spec.considers_all else self._contrast(batch)
        current = batch.get(PROXIMAL, None) if spec.rules.decoupled else None
        if current is None:
            current = self._log_probs(batch, self.model, groups)
        passed = groups.repeat_interleave(self.config.samples_per_prompt).unsqueeze(1)
        log_ratio = torch.where(passed, current - batch[keys.LOG_PROB], 0.0)
        advantage = batch[keys.ADVANTAGE].unsqueeze(1).expand(mask.shape)
        found = solve(spec, log_ratio, advantage, mask, ranks=self.ranks.group)
        batch.set(KEPT, found.kept)
        if found.limit is not None:
            batch.set(LIMIT, found.limit.expand(len(batch)))

    @torch.no_grad()
    def _log_probs(self, batch: TensorDictBase, model: Any, groups: Tensor) -> Tensor:
        """`[N, S]` under `model`, of the groups chosen; 0 elsewhere."""
        found = torch.zeros_like(batch[keys.LOG_PROB])
        for index, part in self._parts(batch, self._micro_batches(batch, groups)):
            out = response_log_probs(
                model,
                part[keys.TOKENS],
                part[keys.PROMPT_LENGTH],
                part[keys.LENGTH],
                group=part[keys.GROUP],
                temperature=self.actor.temperature,
            ).log_prob
            found[index, : out.shape[1]] = out
        return found

    # -- groups and micro-batches ----------------------------------------------------------------

    def _contrast(self, batch: TensorDictBase) -> Tensor:
        """Which groups have an advantage, bool."""
        return self._per_group(batch[keys.ADVANTAGE] != 0).flatten(1).any(1)

    def _every_group(self, batch: TensorDictBase) -> Tensor:
        """All of them, bool."""
        return self._per_group(torch.ones_like(batch[keys.SCORED])).any(1)

    def _parts(self, batch: TensorDictBase, indices: list[Tensor]) -> Iterator[tuple[Tensor, TensorDictBase]]:
        """Rows of the batch, cut to their longest sequence."""
        for index in indices:
            part = batch[index]
            yield index, _narrow(part, int(part[keys.LENGTH].max()))

    def _micro_batches(self, batch: TensorDictBase, chosen: Tensor) -> list[Tensor]:
        """Indices of the rows of the chosen groups, whole groups together, each part within the token budget.

        `sorted`: similar lengths together; the budget counts the padded tokens that the groups would take without
        sharing their prompts. `balanced`: parts of equal tokens, without padding. A group that exceeds the budget by
        itself is a part of its own.
        """
        size, budget = self.config.samples_per_prompt, self.config.micro_batch_tokens
        length = self._per_group(batch[keys.LENGTH])
        groups = chosen.nonzero().squeeze(-1)
        if self.config.micro_batches == "balanced":
            tokens = length.sum(1)[groups].tolist()
            parts = [[int(groups[i]) for i in part] for part in within_budget(tokens, budget)]
        else:
            longest = length.amax(1)
            groups = groups[longest[groups].argsort(stable=True)]
            parts = [[]]
            for group, width in zip(groups.tolist(), longest[groups].tolist(), strict=True):
                if parts[-1] and (len(parts[-1]) + 1) * size * width > budget:
                    parts.append([])
                parts[-1].append(group)
        member = torch.arange(size)
        return [(torch.tensor(sorted(part))[:, None] * size + member).flatten() for part in parts if part]

    def _per_group(self, values: Tensor) -> Tensor:
        return values.view(-1, self.config.samples_per_prompt, *values.shape[1:])

    def _schedule(self) -> float:
        """The share of its peak that the learning rate of the next step has."""
        optim, done = self.config.optim, self.updates
        ramp = min(1.0, (done + 1) / max(1, optim.ramp_steps))
        left = max(0.0, 1.0 - done / max(1, self.config.steps)) if optim.schedule == "linear" else 1.0
        return ramp * left

    def _diverged(self, what: str) -> str:
        return (
            f"{what} in update {self.updates + 1} is not finite, so the update was not made; training has diverged: "
            "give a smaller --optim.learning-rate, a --temperature nearer 1, or rewards of moderate size"
        )


def _trainable(module: Any) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _narrow(batch: TensorDictBase, width: int) -> TensorDictBase:
    """Cut the padding columns beyond the longest sequence."""
    return batch.apply(lambda tensor: tensor[:, :width] if tensor.ndim == 2 else tensor)
