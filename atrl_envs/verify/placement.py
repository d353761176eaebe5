"""Constants beside the data: on the device of the tokens, and fake where they are fake.

    spelling = beside(spelling, tokens)          # a record (dataclass) of tensors
    length = alike(answers["length"], tokens)    # one tensor

A verifier is made on the CPU and may be called with tokens from anywhere; `to(device)` saves the copies.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

Record = TypeVar("Record")


def alike(tensor: Tensor, tokens: Tensor) -> Tensor:
    """A tensor on the device of the tokens; fake where they are fake."""
    if isinstance(tokens, FakeTensor) and not isinstance(tensor, FakeTensor):
        tensor = tokens.fake_mode.from_tensor(tensor)
    return tensor.to(tokens.device)


def beside(record: Record, tokens: Tensor) -> Record:
    """A dataclass with its tensors `alike` the tokens; itself where nothing has to move."""
    first = next(iter(_tensors(record).values()))
    if first.device == tokens.device and not isinstance(tokens, FakeTensor):
        return record
    return each_tensor(record, lambda tensor: alike(tensor, tokens))


def each_tensor(record: Record, change: Callable[[Any], Any]) -> Record:
    """A dataclass with `change` applied to its tensors."""
    return dataclasses.replace(record, **{k: change(v) for k, v in _tensors(record).items()})  # type: ignore[type-var]


def _tensors(record: object) -> dict[str, Tensor]:
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}  # type: ignore[arg-type]
    return {name: value for name, value in fields.items() if isinstance(value, Tensor)}
