"""What is different while a gradient is computed: adapters drop out, and layers may be computed twice.

    with training_pass([model], seed=0, number=7):     # the same noise for the same (seed, number)
        loss(model).backward()

A model is in eval mode otherwise, in rollouts too; dropout of the model's own stays off here as there, so that the
policy that is trained is the one that sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from atrl_envs import streams

_LORA_DROPOUT = "lora_dropout"


@contextmanager
def training_pass(models: Iterable[nn.Module], *, seed: int, number: int) -> Iterator[None]:
    """Switch on what only training passes do, draw its noise from (seed, number), and switch it off again."""
    models = list(models)
    switched = [module for model in models for module in _training_only(model)]
    if not switched:
        yield
        return
    cuda = sorted({p.device.index for model in models for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(int(streams.mix(seed, number)))
        for module in switched:
            module.training = True  # this module alone: what is inside it stays as it is
        try:
            yield
        finally:
            for module in switched:
                module.training = False


def _training_only(model: nn.Module) -> Iterator[nn.Module]:
    for name, module in model.named_modules():
        twice = isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing
        if twice or (isinstance(module, nn.Dropout) and _LORA_DROPOUT in name):
            yield module
