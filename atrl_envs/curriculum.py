"""Which difficulty is asked how often, from measured success: a hook of the environment.

    env = atrl_envs.make("atrl/Carries-v0", curriculum=Curriculum())
    env.curriculum.success                   # [D]: the measured success rate of each difficulty

Any object with `begin`, `weights` and `update` will do. Each environment measures for itself; its slots then depend on
what was answered before, so episodes are a function of the seed only as long as the answers are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Curriculum:
    """Weight floor + 4 p (1 - p): half-known difficulties most, known and hopeless ones seldom.

    p is the success rate over about the last `memory` episodes of a difficulty, and 1/2 before there are any.
    floor: least weight, so that no difficulty is forgotten.
    """

    def __init__(self, floor: float = 0.1, memory: float = 500.0) -> None:
        if not floor > 0 or not memory >= 1:
            raise ValueError(
                f"Curriculum wants floor > 0 and memory >= 1 episode, got floor={floor}, memory={memory}"
            )
        self.floor, self.memory = floor, memory
        self._right = self._asked = torch.zeros(0)

    def begin(self, levels: int, device: torch.device) -> None:
        """Measure `levels` difficulties from here on."""
        self._right = torch.zeros(levels, device=device)
        self._asked = torch.zeros(levels, device=device)

    @property
    def success(self) -> Tensor:
        """[D] float32 in (0, 1): successes and one more, over episodes and two more (Laplace)."""
        return (self._right + 1) / (self._asked + 2)

    def weights(self) -> Tensor:
        """[D] float32 > 0, relative: the share of all groups that a difficulty gets."""
        rate = self.success
        return self.floor + 4 * rate * (1 - rate)

    def update(self, difficulty: Tensor, correct: Tensor, counts: Tensor) -> None:
        """Episodes that ended: difficulty [n] int64, correct [n] bool, counts [n] bool: whether the row counts."""
        one = counts.to(torch.float32)
        asked = torch.zeros_like(self._asked).index_add_(0, difficulty, one)
        right = torch.zeros_like(asked).index_add_(0, difficulty, one * correct)
        kept = (1 - 1 / self.memory) ** asked
        self._asked, self._right = self._asked * kept + asked, self._right * kept + right

    def state_dict(self) -> dict[str, Any]:
        return {"right": self._right.clone(), "asked": self._asked.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._right, self._asked = (
            state[name].to(self._right.device, torch.float32).clone() for name in ("right", "asked")
        )
