"""Sums over the ranks of torch.distributed, or over nothing where there is one process.

ranks = Ranks()
ranks.sum(torch.tensor([3.0]))       # the same tensor where torch.distributed is not initialised
ranks.sum_gradients(optimizer)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed
from torch import Tensor


class Ranks:
    """The default process group as it is when this is made; every rank must make the same calls."""

    def __init__(self) -> None:
        there = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.group: Any = torch.distributed.group.WORLD if there else None

    @property
    def active(self) -> bool:
        """Whether there may be more than this process."""
        return self.group is not None

    def sum(self, values: Tensor) -> Tensor:
        """The sum of every rank's tensor of this shape."""
        if self.active:
            torch.distributed.all_reduce(values, group=self.group)
        return values

    def any(self, here: bool) -> bool:
        """Whether it is so on some rank, so that all of them stop together."""
        return bool(self.sum(torch.tensor([float(here)]))) if self.active else here

    def sum_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Replace every gradient by the sum over the ranks: each has divided by the sizes of the whole batch."""
        if self.active:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    torch.distributed.all_reduce(parameter.grad, group=self.group)
