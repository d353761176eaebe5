"""Which attempt a freed slot gets next: the stream of groups, a function of (seed, split) and a cursor.

    stream = GroupStream(size=1000, group_size=8, seed=0, split="train", device=torch.device("cpu"))
    slots = stream.assign(mask)              # mask [B] bool: the freed slots; problem, group, member [B]

Groups 0, 1, 2, ... are numbered over the whole run. Worker w of W takes groups w, w + W, ..., so workers together
hand out exactly what one alone would. Group g asks the problem at place g of an endless sequence of shuffled
epochs. Members 0 .. group_size - 1 of a group go to freed slots in slot order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from atrl_envs.streams import mix, permuted_index, uniform

_SPLIT_NUMBER = {"train": 0, "test": 1}
_WINDOW = 4096  # groups looked up at once: the shuffle is some hundred small operations, whatever its size


@dataclass(frozen=True)
class Slots:
    """problem, group, member [B] int64 for the masked slots (-1 where nothing could be had; elsewhere arbitrary).

    nothing: all slots were asked for and none could be served.
    """

    problem: Tensor
    group: Tensor
    member: Tensor
    nothing: bool


class Levels:
    """The problems of a bank by difficulty, drawn level first: by the weights that `weights()` gives at that moment.

    difficulty: [M] int64, from 0. Levels without problems are never drawn.
    """

    def __init__(self, difficulty: Tensor, weights: Callable[[], Tensor]) -> None:
        self.weights = weights
        self.order = difficulty.argsort(stable=True)
        self.count = torch.bincount(difficulty)
        self.start = self.count.cumsum(0) - self.count

    def draw(self, first: Tensor, second: Tensor) -> Tensor:
        """Problems [B] from two uniform numbers each: one for the level, one for the problem within it."""
        weights = self.weights().to(torch.float64) * (self.count > 0)
        upto = weights.cumsum(0)
        level = torch.searchsorted(upto, first.to(torch.float64) * upto[-1], right=True)
        level = level.clamp(max=self.count.shape[0] - 1)
        within = (second.to(torch.float64) * self.count[level]).long()
        return self.order[self.start[level] + within]


class GroupStream:
    """The endless stream of (problem, group, member) that one worker hands out.

    size: number of problems M. levels: draw problems by difficulty instead of in shuffled epochs. On an accelerator
    the cursor stays on the device: the host keeps an upper bound of it and waits for the true value only where an
    admission limit might bind.
    """

    def __init__(
        self,
        *,
        size: int,
        group_size: int,
        seed: int,
        split: str,
        device: torch.device,
        worker: int = 0,
        num_workers: int = 1,
        start_group: int = 0,
        shuffle: bool = True,
        levels: Levels | None = None,
    ) -> None:
        self.levels = levels
        self.size, self.group_size, self.split, self.shuffle = size, group_size, split, shuffle
        self.first, self.stride = start_group + worker, num_workers
        self.seed, self.device = seed, device
        self.on_host = device.type == "cpu"  # then looking at a tensor costs nothing
        self.seek(0)

    def seek(self, place: int) -> None:
        """Continue at `place`, the number of attempts that this worker has handed out."""
        self._place = torch.tensor(place, dtype=torch.int64, device=self.device)
        self._highest = place  # the host's upper bound of the place; exact on the CPU
        self._window: Tensor | None = None
        self._used = 0  # upper bound of the attempts taken from the window
        self._begun = torch.full(
            (2,), -1, dtype=torch.int64, device=self.device
        )  # the last group, its problem

    def reseed(self, seed: int) -> None:
        """Start over with another seed."""
        self.seed = seed
        self.seek(0)

    @property
    def place(self) -> int:
        """Attempts handed out so far; waits for the device."""
        return int(self._place)

    def assign(self, mask: Tensor, admitted: int | None = None) -> Slots:
        """Serve the slots in `mask` [B] bool; group g only if g < admitted. A group once begun may finish."""
        count = mask.sum()
        asked = int(count) if self.on_host else mask.shape[0]
        place = (self._place + mask.cumsum(0) - 1).clamp(min=0)
        index = place.div(self.group_size, rounding_mode="floor")
        member = place - index * self.group_size
        group = self.first + index * self.stride
        problem = self._problem(index, asked) if self.levels is None else self._weighed(group, mask)
        if not self._may_bind(asked, admitted):
            self._place, self._highest = self._place + count, self._highest + asked
            return Slots(problem, group, member, nothing=False)
        before = self._highest  # exact by now
        begun = -(-before // self.group_size) * self.group_size
        limit = max(self._limit(admitted), begun)
        served = min(int(count), limit - before)
        self._place, self._highest = torch.full_like(self._place, before + served), before + served
        self._used -= asked - served
        idle = place >= limit
        problem, group, member = (entry.masked_fill(idle, -1) for entry in (problem, group, member))
        return Slots(problem, group, member, nothing=served == 0 and int(count) == mask.shape[0])

    def _may_bind(self, asked: int, admitted: int | None) -> bool:
        if admitted is None or self._highest + asked <= self._limit(admitted):
            return False
        self._highest = self.place
        return self._highest + asked > self._limit(admitted)

    def _limit(self, admitted: int | None) -> int:
        """Number of attempts in this worker's groups g < admitted."""
        groups = -((self.first - int(admitted or 0)) // self.stride)
        return max(0, groups) * self.group_size

    def _weighed(self, group: Tensor, mask: Tensor) -> Tensor:
        """Problems [B] drawn by the weights of this moment; a group that has begun keeps its problem."""
        assert self.levels is not None
        draw = [uniform(self.seed, _SPLIT_NUMBER[self.split], group, which) for which in (1, 2)]
        problem = torch.where(group == self._begun[0], self._begun[1], self.levels.draw(*draw))
        # Slots are served in order, so the last one that is served has the newest group.
        place = torch.where(mask, torch.arange(mask.shape[0], device=self.device), -1).amax()
        newest = torch.stack([group, problem])[:, place.clamp(min=0)]
        self._begun = torch.where(place >= 0, newest, self._begun)
        return problem

    def _problem(self, index: Tensor, asked: int) -> Tensor:
        """Problems [B] of this worker's groups `index` [B], from a window computed ahead of the cursor."""
        if self._window is None or self._used + asked > (self._window.shape[0] - 2) * self.group_size:
            width = max(_WINDOW, asked // self.group_size + 4)
            self._window_start = self._place.div(self.group_size, rounding_mode="floor")
            ahead = self._window_start + torch.arange(width, device=self.device)
            self._window = self._shuffled(self.first + ahead * self.stride)
            self._used = 0
        self._used += asked
        return self._window[(index - self._window_start).clamp(0, self._window.shape[0] - 1)]

    def _shuffled(self, group: Tensor) -> Tensor:
        epoch = group.div(self.size, rounding_mode="floor")
        index = group - epoch * self.size
        if not self.shuffle:
            return index
        return permuted_index(mix(self.seed, _SPLIT_NUMBER[self.split], epoch), index, self.size)
