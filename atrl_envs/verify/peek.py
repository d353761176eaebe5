"""The one place where the host may look at data: on the CPU, to leave out work that would change nothing.

    width = widest(lengths, limit=512)      # int: the longest of the batch on the CPU, else the limit

On an accelerator, under FakeTensorMode and under torch.compile the answer is the limit, known without looking:
no device is ever waited for. Results are the same either way.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor

from atrl_envs.verify.placement import Record, each_tensor


def may_look(data: Any) -> bool:
    """Whether reading a value costs nothing: an array, or a real tensor on the CPU outside of compilation."""
    if isinstance(data, Tensor):
        return type(data) is Tensor and data.device.type == "cpu" and not torch.compiler.is_compiling()
    return True


def widest(lengths: Any, limit: int) -> int:
    """Largest of `lengths`, between 1 and `limit`; `limit` itself where looking would mean waiting."""
    if not may_look(lengths) or len(lengths) == 0:
        return limit
    return max(1, min(limit, int(lengths.max())))


def nearest(numbers: Any, limit: int) -> int:
    """Smallest of `numbers`; `limit`, below which there is none, where looking would mean waiting."""
    return int(numbers.min()) if may_look(numbers) and len(numbers) else limit


def surely_none(flags: Any) -> bool:
    """Whether no flag is set, as far as may be seen: False where looking would mean waiting."""
    return may_look(flags) and not bool(flags.any())


def surely_all(flags: Any) -> bool:
    """Whether every flag is set, as far as may be seen: False where looking would mean waiting."""
    return may_look(flags) and bool(flags.all())


def places(flags: Any) -> numpy.ndarray:
    """Where an array of flags [N] is set, in order."""
    return numpy.flatnonzero(flags)


def as_arrays(record: Record) -> Record:
    """A dataclass with NumPy copies of its tensors.

    Copies and no views: sending a tensor to another process moves it into shared memory and frees what a view shows.
    """
    return each_tensor(record, lambda tensor: tensor.numpy().copy())
