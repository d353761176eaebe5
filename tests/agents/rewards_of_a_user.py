"""Rewards that their author has not tried."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import Tensor


def raises(tokens: Tensor, problem: TensorDict) -> Tensor:
    return torch.full([len(tokens)], 1 / (1 - bool(len(tokens))))


def raises_on_texts(completions: list[str]) -> list[float]:
    return [1 / (1 - bool(text)) for text in completions]


def one_number(tokens: Tensor, problem: TensorDict) -> Tensor:
    return torch.zeros(())


def infinite(tokens: Tensor, problem: TensorDict) -> Tensor:
    return torch.full([len(tokens)], torch.inf)
