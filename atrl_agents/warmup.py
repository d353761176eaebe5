"""A supervised start on gold responses, so that a cold model gives answers worth comparing.

    warm_up(actor, bank, WarmupConfig(), steps=300, seed=0)

Next-token cross-entropy on the bank's gold responses, problems drawn from the run's own stream. It uses
training problems only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from atrl_envs import streams
from atrl_envs.bank import ProblemBank

from . import lora
from .config import WarmupConfig
from .learner import Diverged
from .training_pass import training_pass

_WINDOW = 4  # batches over which the share of right answers is taken
_RAMP = 20  # steps of linear warm-up of the learning rate


def warm_up(
    actor: Any,
    bank: ProblemBank,
    config: WarmupConfig,
    *,
    steps: int,
    seed: int,
    on_step: Callable[[int, float], None] | None = None,
) -> int:
    """Train the actor's model by next-token prediction; returns the steps made.

    The learning rate ramps up, stays, and falls to 0 over the last `config.anneal_steps`. Those begin when the
    model would answer a share `config.until` of the last few batches' problems right (every token of the gold
    response the likeliest one), so that the rest is left to reinforcement learning, or in time to end at `steps`.

    Args:
        actor: a policy with `model` and `response_log_probs`.
        on_step: called with (step, mean loss per response token, in nats).

    Raises:
        Diverged: the loss is no longer a finite number.
    """
    tokens, prompt_length, length = bank.gold_sequences()
    model = actor.model
    optimizer = torch.optim.AdamW(
        lora.trainable(model).values(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    batch_size = config.batch_size
    problems = tokens.shape[0]
    exact: deque[float] = deque(maxlen=_WINDOW)
    end = steps
    for step in range(steps):
        if step >= end:
            break
        index = torch.arange(step * batch_size, (step + 1) * batch_size)
        index = streams.permuted_index(streams.mix(seed, 1, index // problems), index % problems, problems)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * min(
                1.0, (step + 1) / _RAMP, (end - step) / config.anneal_steps
            )
        width = int(length[index].max())
        optimizer.zero_grad()
        with training_pass([model], seed=seed, number=-1 - step):  # updates have the numbers from 0 up
            out = actor.response_log_probs(tokens[index, :width], prompt_length[index], length[index])
            loss = -out.log_prob.sum() / (length - prompt_length)[index].sum()
            if not math.isfinite(float(loss.detach())):
                raise Diverged(
                    f"the loss of the warm start is {float(loss.detach())} at step {step + 1}; it has diverged: give a "
                    "smaller --warmup.learning-rate"
                )
            loss.backward()
        exact.append(float(out.likeliest.all(1).float().mean()))
        torch.nn.utils.clip_grad_norm_(lora.trainable(model).values(), 1.0)
        optimizer.step()
        if on_step is not None:
            on_step(step + 1, float(loss.detach()))
        if len(exact) == _WINDOW and sum(exact) / _WINDOW >= config.until:
            end = min(end, step + 1 + config.anneal_steps)
    return end
