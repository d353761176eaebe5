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


def squeeze(letters: Tensor, steps: int) -> tuple[Tensor, Tensor | None, Tensor]:
    """Rows [B, W] to at most `steps` bytes, where each byte went [B, W], and what did not fit [B]."""
    rows, width = letters.shape
    if width <= steps:
        return letters, None, torch.zeros(rows, dtype=torch.bool, device=letters.device)
    before = torch.nn.functional.pad(letters, (4, 0))
    shifts = [before[:, 4 - shift : 4 - shift + width] for shift in range(5)]
    spare = torch.stack([shift - 48 < 10 for shift in shifts]).all(0)
    spare = spare | ((letters == 32) & (shifts[1] == 32) & (shifts[2] == 32))
    keep = ~spare
    home = keep.cumsum(1) - 1
    last = ((keep & (letters != END)) * (home + 1)).amax(1)
    short = torch.full((rows, steps + 1), END, dtype=torch.uint8, device=letters.device)
    short.scatter_(1, torch.where(keep, home.clamp(max=steps), steps), letters)
    return short[:, :steps], home.clamp(max=steps - 1), last > steps
