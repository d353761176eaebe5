"""Advantages: how much better a response was than it had to be, as pure functions of tensors.

    advantage = group_relative(reward, samples_per_prompt=8)       # [N] -> [N]
    advantage, target = gae(reward, value, mask)                   # [N], [N, T], [N, T] -> [N, T], [N, T]

Rewards come as `[N]` with the samples of a group next to each other, `N = prompts * samples_per_prompt`.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributed import ReduceOp, all_reduce

from atrl_envs import keys

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
        `[N]` float32 (float64 of float64). A group whose rewards are all equal gets exactly 0.
    """
    _check(reward, samples_per_prompt, valid)
    reward = _floating(reward)
    if valid is not None:  # one that is no number spoils no other
        reward = reward.masked_fill(~valid, 0.0)
    grouped = reward.view(-1, samples_per_prompt)
    mask = torch.ones_like(grouped) if valid is None else valid.view(-1, samples_per_prompt).to(grouped.dtype)
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
    _check(reward, samples_per_prompt, valid)
    count: int | Tensor = samples_per_prompt
    if valid is not None:
        count = valid.view(-1, samples_per_prompt).sum(1, keepdim=True)
    centred = group_relative(reward, samples_per_prompt, valid=valid, scale="none").view(
        -1, samples_per_prompt
    )
    others = count - 1 if isinstance(count, int) else (count - 1).clamp(min=1)
    return (centred * count / others).view(-1)


def batch_normalised(values: Tensor, valid: Tensor, *, eps: float = 1e-6, ranks: Any = None) -> Tensor:
    """`(x - mean) / (std + eps)` over the entries of the batch that are valid, 0 elsewhere, in the shape given.

    Of rewards `[N]` or advantages `[N, T]`; REINFORCE++ (arXiv 2501.03262), and what PPO does to its
    advantages. The deviation has the number of valid entries in the denominator. Equal entries get exactly 0.
    ranks: a torch.distributed process group over which the batch is spread.
    """
    if values.shape != valid.shape:
        raise ValueError(
            f"values and valid must have one shape, got {tuple(values.shape)} and {tuple(valid.shape)}"
        )
    values = _floating(values).masked_fill(~valid, 0.0)

    def over_ranks(*numbers: Tensor, take: Any = ReduceOp.SUM) -> Tensor:
        together = torch.stack([number.double() for number in numbers])
        if ranks is not None:
            all_reduce(together, op=take, group=ranks)
        return together

    count, total = over_ranks(valid.sum(), values.sum())
    centred = (values - (total / count.clamp(min=1)).to(values.dtype)).masked_fill(~valid, 0.0)
    (squares,) = over_ranks(centred.square().sum())
    largest = [torch.where(valid, numbers, -torch.inf).amax() for numbers in (values, -values)]
    high, low = over_ranks(
        *largest, take=ReduceOp.MAX
    )  # low is minus the smallest, so equal entries add to 0
    deviation = (squares / count.clamp(min=1)).sqrt().to(values.dtype)
    return torch.where(high + low > 0, centred / (deviation + eps), 0.0)


def gae(
    reward: Tensor,
    value: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    truncated: Tensor | None = None,
    after: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over response tokens (arXiv 1506.02438, eq. 16), without a loop over them.

    delta_t = r_t + gamma V_{t+1} - V_t and A_t = delta_t + gamma lam A_{t+1}, with the reward at the last token. The
    recursion is solved by doubling: after step k every A holds the 2^k terms that follow it.

    Args:
        reward: `[N]`.
        value: `[N, T]`, V before each token.
        mask: `[N, T]` bool, True on response tokens; a row may have none, and gaps.
        truncated: `[N]` bool: the response was cut off and would have gone on, so what follows it is worth
            `after`. None: every response ended.
        after: `[N]`, V after the last token of truncated responses.

    Returns:
        Advantages and value targets (advantage + value), `[N, T]`, no gradient; 0 where the mask is False.
    """
    delta, value, place = _deltas(reward, value, mask, gamma, truncated, after)
    decay, step = gamma * lam, 1
    while step < delta.shape[1]:
        following = torch.nn.functional.pad(delta[:, step:], (0, step))
        delta = delta + decay**step * following
        step *= 2
    return _in_place(delta, value, mask, place)


def gae_by_loop(
    reward: Tensor,
    value: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    truncated: Tensor | None = None,
    after: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`gae` as its recursion is written, token by token from the end; the same arguments and results."""
    delta, value, place = _deltas(reward, value, mask, gamma, truncated, after)
    following = torch.zeros_like(delta[:, 0]) if delta.shape[1] else delta.sum(1)
    columns = []
    for column in reversed(range(delta.shape[1])):
        following = delta[:, column] + gamma * lam * following
        columns.append(following)
    advantage = torch.stack(columns[::-1], 1) if columns else delta
    return _in_place(advantage, value, mask, place)


def _deltas(
    reward: Tensor,
    value: Tensor,
    mask: Tensor,
    gamma: float,
    truncated: Tensor | None,
    after: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """delta and V, `[N, T]` with the response tokens moved to the front, and where each came from."""
    if value.ndim != 2 or value.shape != mask.shape or reward.shape != value.shape[:1]:
        raise ValueError(
            f"gae needs reward [N], value [N, T] and mask [N, T], got {tuple(reward.shape)}, {tuple(value.shape)} and "
            f"{tuple(mask.shape)}"
        )
    if (truncated is None) != (after is None):
        raise ValueError("gae needs both truncated and after, or neither")
    for name, given in ((keys.TRUNCATED, truncated), ("after", after)):
        if given is not None and given.shape != reward.shape:
            raise ValueError(
                f"gae needs {name} [N] as reward {tuple(reward.shape)}, got {tuple(given.shape)}"
            )
    place = (~mask).to(torch.int8).argsort(dim=1, stable=True)
    value = _floating(value.detach()).masked_fill(~mask, 0.0).gather(1, place)
    length = mask.sum(1, keepdim=True)
    column = torch.arange(mask.shape[1], device=mask.device)
    last = column == length - 1
    end = reward.to(value.dtype)
    if truncated is not None and after is not None:
        end = end + gamma * torch.where(truncated, after.detach().to(value.dtype), 0.0)
    following = torch.nn.functional.pad(value[:, 1:], (0, min(1, value.shape[1])))
    delta = torch.where(last, end.unsqueeze(1), gamma * following) - value
    return delta.masked_fill(column >= length, 0.0), value, place


def _in_place(advantage: Tensor, value: Tensor, mask: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Back where the tokens were."""
    target = torch.zeros_like(advantage).scatter(1, place, advantage + value).masked_fill(~mask, 0.0)
    return torch.zeros_like(advantage).scatter(1, place, advantage).masked_fill(~mask, 0.0), target


def _floating(values: Tensor) -> Tensor:
    """In float32, or as precise as it came."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _check(reward: Tensor, samples_per_prompt: int, valid: Tensor | None) -> None:
    if valid is not None and valid.shape != reward.shape:
        raise ValueError(
            f"valid must have the shape of reward {tuple(reward.shape)}, got {tuple(valid.shape)}"
        )
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
