"""How an env hands out problems and reads actions: sizes and places, checked before any work.

    EnvOptions(max_new_tokens=6, num_envs=64, group_size=8)

See `atrl_envs.make` for the meaning of each. Importing this loads no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

SPLITS = ("train", "test")


@dataclass(frozen=True)
class EnvOptions:
    """Options of one env; ValueError for sizes that do not fit each other."""

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
        for name in ("max_new_tokens", "num_envs", "group_size", "block_size", "num_workers"):
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
