"""What is wrong with a batch that a loss is given: missing keys, shapes that disagree, numbers that are none.

check_batch(tensordict, {"tokens": "tokens", "advantage": "my_advantage"}, "GRPOLoss")     # or KeyError, ValueError
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from atrl_envs import keys

_PER_ROW = (keys.PROMPT_LENGTH, keys.LENGTH, keys.GROUP)


def check_batch(
    tensordict: TensorDictBase, reads: Mapping[str, NestedKey], optional: Mapping[str, NestedKey], loss: str
) -> None:
    """Look at the entries that a loss reads, by what they are to it and where they stand; `optional` ones may be
    absent.

    KeyError: one is missing. ValueError: it is not of the shape that goes with the tokens; or, on the CPU, where
    looking is free, a log-probability or advantage of a response token is not finite, or a log-probability positive.
    """
    found = {name: tensordict.get(key, None) for name, key in reads.items()}
    missing = [str(reads[name]) for name, value in found.items() if value is None]
    if missing:
        there = ", ".join(sorted(str(key) for key in tensordict.keys(include_nested=True)))
        raise KeyError(f"{loss} needs {', '.join(missing)}, and the batch has {there}")
    more = {name: tensordict.get(key, None) for name, key in optional.items()}
    found |= {name: value for name, value in more.items() if value is not None}
    reads = {**reads, **optional}
    shape = found[keys.TOKENS].shape
    if len(shape) != 2:
        raise ValueError(f"tokens must be [N, S], got {list(shape)}")
    if found[keys.RESPONSE_MASK].dtype != torch.bool:
        raise ValueError(f"{reads[keys.RESPONSE_MASK]!s} must be bool, got {found[keys.RESPONSE_MASK].dtype}")
    for name, value in found.items():
        per_row = value.shape in ((shape[0],), (shape[0], 1))
        if value.shape != shape and not (per_row and name in (*_PER_ROW, keys.ADVANTAGE)):
            wanted = "[N] or [N, 1]" if name in _PER_ROW else "[N, S]"
            raise ValueError(
                f"{reads[name]!s} must be {wanted} with tokens {list(shape)}, got {list(value.shape)}"
            )
    if found[keys.TOKENS].device.type == "cpu":
        _check_numbers(found, reads)


def _check_numbers(found: Mapping[str, Tensor], reads: Mapping[str, NestedKey]) -> None:
    mask = found[keys.RESPONSE_MASK]
    outside, some = ~mask, mask.any(1)
    for name, value in found.items():
        if not value.is_floating_point():
            continue
        per_row = value.shape != mask.shape
        inside = value.detach().reshape(-1)[some] if per_row else value.detach().masked_fill(outside, 0.0)
        if not math.isfinite(float(inside.sum())):
            raise ValueError(f"{reads[name]!s} holds a number that is not finite at a response token")
        if name.endswith(keys.LOG_PROB) and inside.numel() and float(inside.max()) > 1e-4:
            raise ValueError(
                f"{reads[name]!s} holds {float(inside.max()):g}; the logarithm of a probability is at most 0: was a "
                "probability or a ratio given?"
            )
