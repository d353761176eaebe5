"""Advantages: how much better a response was than it had to be, as pure functions of tensors.

    advantage = group_relative(reward, samples_per_prompt=8)       # [N] -> [N]

Rewards come as `[N]` with the samples of a group next to each other, `N = prompts * samples_per_prompt`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Scale = Literal["population", "sample", "none"]


def group_relative(
    reward: Tensor,
    samples_per_prompt: int,
    *,
    valid: Tensor | None = None,
    scale: Scale = "population",
    eps: float = 1e-6,
) -> Tensor:
    """Reward relative to its group: `(R_i - mean R) / (std R + eps)` (GRPO, arXiv 2402.03300, section 4.1.2).

    Args:
        reward: `[N]`, groups contiguous.
        samples_per_prompt: G, at least 2.
        valid: `[N]` bool; samples that are False (a gold that cannot be judged, say) enter neither mean nor
            deviation and get 0. None means all.
        scale: `population` divides by the deviation with G in the denominator, `sample` with G - 1, `none`
            does not divide (Dr.GRPO, arXiv 2503.20783).
        eps: added to the deviation.

    Returns:
        `[N]` float32. A group whose rewards are all equal gets exactly 0.
    """
    _check(reward, samples_per_prompt)
    grouped = reward.float().view(-1, samples_per_prompt)
    mask = torch.ones_like(grouped) if valid is None else valid.view(-1, samples_per_prompt).float()
    count = mask.sum(1, keepdim=True)
    mean = (grouped * mask).sum(1, keepdim=True) / count.clamp(min=1)
    centred = (grouped - mean) * mask
    # Rounding leaves a residue in the mean of equal rewards; a group without contrast must give exactly 0.
    largest = grouped.masked_fill(mask == 0, -torch.inf).amax(1, keepdim=True)
    smallest = grouped.masked_fill(mask == 0, torch.inf).amin(1, keepdim=True)
    centred = centred * (largest > smallest)
    if scale == "none":
        return centred.view(-1)
    denominator = count if scale == "population" else count - 1
    deviation = (centred.square().sum(1, keepdim=True) / denominator.clamp(min=1)).sqrt()
    return (centred / (deviation + eps)).view(-1)


def leave_one_out(reward: Tensor, samples_per_prompt: int, *, valid: Tensor | None = None) -> Tensor:
    """Reward minus the mean of the others of its group (RLOO, arXiv 2402.14740, section 3.3).

    Arguments as for `group_relative`; a sample without a valid other gets 0. Returns `[N]` float32.
    """
    _check(reward, samples_per_prompt)
    count = (
        torch.full_like(reward, samples_per_prompt).view(-1, samples_per_prompt)[:, :1]
        if valid is None
        else valid.view(-1, samples_per_prompt).sum(1, keepdim=True)
    )
    centred = group_relative(reward, samples_per_prompt, valid=valid, scale="none").view(
        -1, samples_per_prompt
    )
    return (centred * count / (count - 1).clamp(min=1)).view(-1)


def _check(reward: Tensor, samples_per_prompt: int) -> None:
    if reward.ndim != 1:
        raise ValueError(
            f"reward must be [N], got shape {tuple(reward.shape)}; squeeze the trailing dimension first."
        )
    if samples_per_prompt < 2:
        raise ValueError(
            f"A group-relative advantage needs samples_per_prompt >= 2, got {samples_per_prompt}: "
            "a response is compared with the others of its prompt."
        )
    if reward.shape[0] % samples_per_prompt:
        raise ValueError(
            f"{reward.shape[0]} rewards do not make whole groups of samples_per_prompt={samples_per_prompt}."
        )
