"""Shorten long runs of digits and blanks, so that the automaton walks few steps down a long answer.

    short, home, crowded = squeeze(letters, steps=96)        # [B, 96]; labels.gather(1, home) undoes it

The rules never tell the fifth digit of a run from the fourth, nor the third blank from the second (a test
holds them to it), so a digit behind four digits and a blank behind two are left out of the walk, and take
the label of the last byte that was read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from atrl_envs.verify.automaton import END
from atrl_envs.verify.masks import below, equals


def squeeze(letters: Tensor, steps: int) -> tuple[Tensor, Tensor | None, Tensor]:
    """Rows [B, W] to at most `steps` bytes, where each byte went [B, W], and what did not fit [B]."""
    rows, width = letters.shape
    if width <= steps:
        return letters, None, torch.zeros(rows, dtype=torch.bool, device=letters.device)
    keep = ~spare(letters)
    home = keep.cumsum(1) - 1
    last = ((keep & ~equals(letters, END)) * (home + 1)).amax(1)
    short = _placed(letters, home, keep, steps)
    return short, home.clamp(max=steps - 1), last > steps


def squeeze_before(letters: Tensor, last: Tensor, before: int, behind: int) -> tuple[Tensor, Tensor]:
    """The `before` bytes up to and with byte `last` [B] and the `behind` bytes behind it: [B, before + behind].

    Where each byte of `letters` went, [B, W]: below 0 for those before what is kept.
    """
    keep = ~(spare(letters) | equals(letters, END))
    kept = keep.cumsum(1)
    home = kept - kept.gather(1, last.clamp(min=0).long().unsqueeze(1)) + (before - 1)
    steps = before + behind
    return _placed(letters, home, keep, steps), home.clamp(max=steps - 1)


def _placed(letters: Tensor, home: Tensor, keep: Tensor, steps: int) -> Tensor:
    """Bytes that are kept, each in column `home` if there is one: [B, steps], END elsewhere."""
    short = torch.full((letters.shape[0], steps + 2), END, dtype=torch.uint8, device=letters.device)
    short.scatter_(1, (home + 1).clamp(0, steps + 1) * keep, letters)
    return short[:, 1:-1].contiguous()


def spare(letters: Tensor) -> Tensor:
    """Digits behind four digits and blanks behind two, [B, W] bool."""
    width = letters.shape[1]
    digits = torch.nn.functional.pad(below(letters - 48, 10), (4, 0))
    blanks = torch.nn.functional.pad(equals(letters, 32), (2, 0))
    long = digits[:, :width]
    for shift in range(1, 5):
        long = long & digits[:, shift : shift + width]
    return long | (blanks[:, :width] & blanks[:, 1 : width + 1] & blanks[:, 2:])
