"""The one place where the host may look at data: on the CPU, to leave out work that would change nothing.

    width = widest(lengths, limit=512)      # int: the longest of the batch on the CPU, else the limit

On an accelerator, under FakeTensorMode and under torch.compile the answer is the limit, known without looking:
no device is ever waited for. Results are the same either way.
"""

from __future__ import annotations

import torch
from torch import Tensor


def may_look(tensor: Tensor) -> bool:
    """Whether reading a value costs nothing: a real tensor on the CPU, outside of compilation."""
    return type(tensor) is Tensor and tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def widest(lengths: Tensor, limit: int) -> int:
    """Largest of `lengths`, between 1 and `limit`; `limit` itself where looking would mean waiting."""
    if not may_look(lengths) or lengths.numel() == 0:
        return limit
    return max(1, min(limit, int(lengths.max())))


def lowest(numbers: Tensor, limit: int) -> int:
    """Smallest of `numbers`; `limit`, below which there is none, where looking would mean waiting."""
    return int(numbers.min()) if may_look(numbers) and numbers.numel() else limit


def surely_none(flags: Tensor) -> bool:
    """Whether no flag is set, as far as may be seen: False where looking would mean waiting."""
    return may_look(flags) and not bool(flags.any())


def surely_all(flags: Tensor) -> bool:
    """Whether every flag is set, as far as may be seen: False where looking would mean waiting."""
    return may_look(flags) and bool(flags.all())


def places(flags: Tensor) -> Tensor:
    """Where flags [N] are set, in order; for code that runs only where one may look."""
    return flags.nonzero().squeeze(1)
