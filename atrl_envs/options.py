"""How an env hands out problems and reads actions: sizes and places, checked before any work.

    EnvOptions(max_new_tokens=6, num_envs=64, group_size=8)

See `atrl_envs.make` for the meaning of each. Importing this loads no torch.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

SPLITS = ("train", "test")
_SIZES = ("max_new_tokens", "num_envs", "group_size", "block_size", "num_workers")


def whole(name: str, value: Any) -> int:
    """`value` as an int; TypeError, naming the option, for anything that is no whole number."""
    try:
        if isinstance(value, bool):  # an int to Python, not to a person
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be int, got {value!r} ({type(value).__name__})") from None


@dataclass(frozen=True)
class EnvOptions:
    """Options of one env; TypeError for what is no whole number, ValueError for sizes that do not fit each other."""

    max_new_tokens: int
    num_envs: int = 1
    group_size: int = 1
    block_size: int = 1
    split: str = "train"
    seed: int = 0
    worker: int = 0
    num_workers: int = 1
    start_group: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        for name in (*_SIZES, "seed", "worker", "start_group"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if not isinstance(self.shuffle, bool):
            raise TypeError(f"shuffle must be bool, got {self.shuffle!r} ({type(self.shuffle).__name__})")
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.num_envs % self.group_size:
            below = self.num_envs // self.group_size * self.group_size
            near = " and ".join(str(size) for size in (below, below + self.group_size) if size)
            raise ValueError(
                f"num_envs={self.num_envs} is not a multiple of group_size={self.group_size}; nearest: {near}"
            )
        if not 0 <= self.worker < self.num_workers:
            raise ValueError(f"worker must lie in [0, num_workers={self.num_workers}), got {self.worker}")
        if self.start_group < 0:
            raise ValueError(f"start_group must not be negative, got {self.start_group}")
        if self.split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {self.split!r}")
