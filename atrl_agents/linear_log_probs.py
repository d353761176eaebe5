"""Log-probabilities of chosen tokens straight from hidden states, without ever holding all logits.

    log_prob, entropy, likeliest = linear_log_probs(hidden, weight, target, temperature=1.0)     # [M] each

The vocabulary is gone through in chunks: a chunk's logits `[M, chunk]` are made, used and thrown away. Where the
projection is trained they are made again in the backward pass; where it is frozen (LoRA) the forward pass gathers what
the gradient needs, `[M, H]`. Beside that and the gradients, memory is a few numbers a token and one chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = 1 << 23  # of a chunk's float32 logits: 8 MiB


_BANNED = -1e30  # a logit whose probability is 0


class _LinearLogProbs(torch.autograd.Function):
    """z = hidden @ weight.T + bias, over the temperature; log p(target), and the entropy of p."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        temperature: float,
        chunk: int,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = hidden.shape[0]
        most = hidden.new_full((rows,), -torch.inf, dtype=torch.promote_types(hidden.dtype, torch.float32))
        total = torch.zeros_like(most)  # sum of exp(z - most)
        moment = torch.zeros_like(most)  # sum of exp(z - most) z
        chosen = torch.zeros_like(most)
        wants_hidden, *wants_more = ctx.needs_input_grad[:3]
        pull = None  # sum of exp(z - most) of the rows of the weight
        if wants_hidden and not any(wants_more) and not entropy_gradient:
            pull = torch.zeros_like(hidden, dtype=most.dtype)
        for start, logits in _chunks(hidden, weight, bias, temperature, chunk):
            above = torch.maximum(most, logits.amax(1))
            shrink = (most - above).exp()
            here, column = _place(target, start, logits.shape[1])
            chosen = torch.where(here, logits.gather(1, column).squeeze(1), chosen)
            part = (logits - above.unsqueeze(1)).exp_()
            total = total * shrink + part.sum(1)
            moment = moment * shrink + torch.einsum("mc,mc->m", part, logits)
            if pull is not None:
                rows_of_chunk = weight[start : start + logits.shape[1]]
                pull = pull.mul_(shrink.unsqueeze(1)).add_(part.to(weight.dtype) @ rows_of_chunk)
            most = above
        normaliser = most + total.log()
        mean = moment / total
        if pull is not None:  # d log p(a) / d hidden = (weight_a - mean of the weight's rows) / temperature
            ctx.save_for_backward((weight[target] - pull / total.unsqueeze(1)) / temperature)
        else:
            ctx.save_for_backward(hidden, weight, bias, target, normaliser, mean)
        ctx.temperature, ctx.chunk, ctx.dtype = temperature, chunk, hidden.dtype
        likeliest = chosen >= most
        entropy = normaliser - mean
        ctx.mark_non_differentiable(*(likeliest,) if entropy_gradient else (likeliest, entropy))
        ctx.set_materialize_grads(False)  # an entropy that nobody differentiates costs nothing
        return chosen - normaliser, entropy, likeliest

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        of_log_prob, of_entropy, _ = gradients
        nothing = (None,) * 5
        if len(ctx.saved_tensors) == 1:
            (slope,) = ctx.saved_tensors
            return (of_log_prob.unsqueeze(1) * slope).to(ctx.dtype), None, *nothing
        hidden, weight, bias, target, normaliser, mean = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        to_hidden = torch.zeros_like(hidden, dtype=mean.dtype) if wants_hidden else None
        to_weight = torch.empty_like(weight) if wants_weight else None
        to_bias = torch.empty_like(bias) if wants_bias else None
        of_log_prob = torch.zeros_like(mean) if of_log_prob is None else of_log_prob
        for start, logits in _chunks(hidden, weight, bias, ctx.temperature, ctx.chunk):
            end = start + logits.shape[1]
            here, column = _place(target, start, logits.shape[1])
            # d log p(a) / d z_v = [v = a] - p_v;   d H / d z_v = -p_v (z_v - mean z)
            share = of_log_prob.unsqueeze(1)
            if of_entropy is not None:
                share = share + of_entropy.unsqueeze(1) * (logits - mean.unsqueeze(1))
            change = (logits - normaliser.unsqueeze(1)).exp_().mul_(share).neg_()
            del logits, share
            change.scatter_add_(1, column, torch.where(here, of_log_prob, 0.0).unsqueeze(1))
            change = change.div_(ctx.temperature).to(weight.dtype)
            if to_hidden is not None:
                to_hidden += change @ weight[start:end]
            if to_weight is not None:
                torch.mm(change.T, hidden, out=to_weight[start:end])
            if to_bias is not None:
                to_bias[start:end] = change.sum(0)
        return (
            to_hidden.to(hidden.dtype) if to_hidden is not None else None,
            to_weight,
            to_bias,
            *nothing[1:],
        )


def linear_log_probs(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    chunk: int | None = None,
    entropy_gradient: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """`log softmax((hidden @ weight.T + bias) / temperature)` at the targets, and the entropy of each row's softmax.

    Args:
        hidden: `[M, H]`, the input of the vocabulary projection.
        weight: `[V, H]`, of `torch.nn.Linear`; bias `[V]`.
        target: `[M]` int64.
        chunk: columns of the vocabulary at a time; None: as many as 8 MiB of logits hold.
        entropy_gradient: False: the entropy is only looked at, which is cheaper where the projection is frozen.

    Returns:
        log_prob and entropy `[M]` float32 (float64 of float64), in nats; likeliest `[M]` bool: no other
        token has a larger logit.
    """
    if hidden.ndim != 2 or weight.ndim != 2 or hidden.shape[1] != weight.shape[1]:
        raise ValueError(
            f"hidden must be [M, H] and weight [V, H], got {tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
    if target.shape != hidden.shape[:1]:
        raise ValueError(
            f"target must be [M], one for each row of hidden {tuple(hidden.shape)}, got {tuple(target.shape)}"
        )
    if (
        target.device.type == "cpu" and type(target) is Tensor and target.numel()
    ):  # elsewhere looking means waiting
        low, high = int(target.min()), int(target.max())
        if low < 0 or high >= weight.shape[0]:
            raise ValueError(f"targets must lie in [0, {weight.shape[0]}), got {low} to {high}")
    device = hidden.device.type
    if torch.is_autocast_enabled(
        device
    ):  # as for torch.nn.Linear; inside, forward and backward see the same types
        kind = torch.get_autocast_dtype(device)
        hidden, weight, bias = hidden.to(kind), weight.to(kind), None if bias is None else bias.to(kind)
    if chunk is None:
        chunk = max(1, CHUNK_BYTES // 4 // max(1, hidden.shape[0]))
    with torch.autocast(device, enabled=False):
        found: tuple[Tensor, Tensor, Tensor] = _LinearLogProbs.apply(
            hidden, weight, bias, target, temperature, chunk, entropy_gradient
        )
    return found


def _chunks(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, chunk: int) -> Any:
    """(first column, logits `[M, chunk]`, at least float32, over the temperature) of each chunk."""
    for start in range(0, weight.shape[0], chunk):
        part = weight[start : start + chunk]
        logits = hidden @ part.T if bias is None else torch.addmm(bias[start : start + chunk], hidden, part.T)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if bias is not None:  # -inf bans a token, and 0 times it is no number
            logits = logits.clamp(min=_BANNED)
        yield start, logits if temperature == 1.0 else logits / temperature


def _place(target: Tensor, start: int, size: int) -> tuple[Tensor, Tensor]:
    """Which targets lie in a chunk `[M]`, and in which of its columns `[M, 1]` (0 for the others)."""
    here = (target >= start) & (target < start + size)
    return here, torch.where(here, target - start, 0).unsqueeze(1)
