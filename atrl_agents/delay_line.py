"""One run on data that is exactly k updates old: a delay line between rollout and training.

    row = delayed_run(config, staleness=8)      # success, gradient norms, M2, what was clipped or masked

Each update samples a batch with the weights of that moment and puts it at the end of a queue, and trains on the batch
at its head, which is k updates old (the first k + 1 batches are of the first weights). That is the Stale-k of the M2PO
paper (arXiv 2510.01161, section 5), with k from 0 on.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from atrl_envs import keys
from atrl_envs.verify import Verdict

from . import models
from .config import GRPOConfig, M2POConfig, TrainConfig
from .evaluate import Evaluator, collect
from .learner import Diverged, Learner
from .loss_config import GRPOLossConfig, M2POLossConfig
from .workers import EnvRecipe, sampling_policy

_RECENT = 20  # updates at the end of a run over which success is averaged


class DelayLine:
    """Batches of `groups` groups, each handed out `staleness` updates after it was sampled.

    sampled: the newest batch that was put in.
    """

    def __init__(self, env: Any, actor: Any, *, groups: int, staleness: int) -> None:
        self.env, self.actor, self.groups, self.staleness = env, actor, groups, staleness
        self.sampled: Any = None
        self._queue: deque[Any] = deque()

    def next(self, step: int) -> Any:
        """The batch that update `step` trains on; the actor's weights are those of this moment.

        AssertionError where a token is not of the weights of `step - staleness` (of the first weights, before that).
        """
        self.actor.set_version(step)
        while len(self._queue) <= self.staleness:
            self.sampled = collect(self.env, self.actor, groups=self.groups)
            self._queue.append(self.sampled)
        batch = self._queue.popleft()
        version, wanted = batch[keys.VERSION][batch[keys.RESPONSE_MASK]], max(0, step - self.staleness)
        if int(version.min()) != wanted or int(version.max()) != wanted:
            raise AssertionError(
                f"update {step} got tokens of versions {int(version.min())} to {int(version.max())}, wanted {wanted}"
            )
        return batch


@dataclass
class Record:
    """What is kept of every update."""

    success: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    m2: list[float] = field(default_factory=list)
    touched: list[float] = field(default_factory=list)
    probe: dict[str, list[float]] = field(default_factory=dict)

    def add(self, sampled: Any, metrics: dict[str, float]) -> None:
        """One update: the newest batch says how good the policy is, the metrics what it was taught."""
        self.success.append(float((sampled[keys.VERDICT] == int(Verdict.CORRECT)).float().mean()))
        self.grad_norm.append(metrics["grad_norm"])
        if "m2" in metrics:  # a batch without any contrast has none
            self.m2.append(metrics["m2"])
            self.touched.append(metrics["clip_fraction"] + 1 - metrics["kept_fraction"])

    def summary(self) -> dict[str, Any]:
        """Plain numbers, see `delayed_run`."""
        return {
            "success": _mean(self.success[-_RECENT:]),
            "success_curve": _sixteenths(self.success),
            "grad_norm": _mean(self.grad_norm),
            "grad_norm_variance": statistics.pvariance(self.grad_norm) if self.grad_norm else 0.0,
            "m2": _mean(self.m2),
            "masked": _mean(self.touched),
            "probe": {name: _mean(values) for name, values in self.probe.items()},
            "steps": len(self.success),
        }


def delayed_run(
    config: TrainConfig, staleness: int, *, model: Path | str | None = None, probe_every: int = 0
) -> dict[str, Any]:
    """Train on batches that are `staleness` updates old.

    Args:
        config: of the run; it is synchronous whatever its mode.
        model: a folder to begin with; None: what the config says, without a warm start.
        probe_every: every so many updates, compare gradient norms of PPO's clip and the forms of M2PO on the same
            batch and weights; 0: never.

    Returns:
        accuracy_before, accuracy_after: greedy, held out; success: of the last sampled batches, 0 where the run
        diverged; success_curve: the mean of each sixteenth of the run; grad_norm, grad_norm_variance: over updates; m2,
        masked: means over updates of the mean squared log-ratio and of the share of tokens whose ratio a clip, a cap or
        a mask has touched; diverged; probe: mean norms by name; steps; seconds.
    """
    torch.set_num_threads(1)
    began = time.monotonic()
    name = config.model if model is None else str(model)
    language_model, vocab = models.load(name, tiny=config.tiny, seed=config.seed)
    env = EnvRecipe(config, vocab)()
    actor = sampling_policy(language_model, vocab, config, env.max_new_tokens)
    learner = Learner(actor, config, env.max_new_tokens)
    learner.begin()
    evaluator = Evaluator(config.env, vocab, problems=config.eval_problems, seed=config.seed)
    before = evaluator(language_model).accuracy
    line = DelayLine(env, actor, groups=config.prompts_per_batch, staleness=staleness)
    probes = _probes(actor, config, env.max_new_tokens) if probe_every else {}
    record, diverged = Record(probe={name: [] for name in probes}), False
    for step in range(config.steps):
        batch = line.next(step)
        if probe_every and step and step % probe_every == 0:
            for name, probe in probes.items():
                record.probe[name].append(probe.gradient_norm(batch))
        try:
            record.add(line.sampled, learner.update(batch))
        except Diverged:
            diverged = True
            break
    after = 0.0 if diverged else evaluator(language_model).accuracy
    found = {"accuracy_before": before, "accuracy_after": after, **record.summary(), "diverged": diverged}
    return found | ({"success": 0.0} if diverged else {}) | {"seconds": time.monotonic() - began}


def _probes(actor: Any, config: TrainConfig, max_new_tokens: int) -> dict[str, Learner]:
    """Learners that only tell gradients: the protocol of AsyncTensorRLHF's Table 3, PPO's clip against M2PO."""
    common = {
        name: getattr(config, name)
        for name in ("env", "optim", "prompts_per_batch", "samples_per_prompt", "steps", "micro_batch_tokens")
    }
    kinds: dict[str, TrainConfig] = {
        "clip": GRPOConfig(**common, loss=GRPOLossConfig(reduction="token")),
        "unclipped": GRPOConfig(**common, loss=GRPOLossConfig(reduction="token", surrogate="unclipped")),
        "m2po paper": M2POConfig(**common),
        "m2po ratio": M2POConfig(**common, loss=M2POLossConfig(variant="ratio")),
    }
    return {name: Learner(actor, kind, max_new_tokens) for name, kind in kinds.items()}


def _sixteenths(curve: list[float]) -> list[float]:
    cuts = [round(i * len(curve) / 16) for i in range(17)]
    return [round(_mean(curve[a:b]), 4) for a, b in itertools.pairwise(cuts) if b > a]


def _mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else 0.0
