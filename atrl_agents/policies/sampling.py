"""One token from each row of logits, with noise that depends on the episode and nothing else.

    token, log_prob = sample(logits, temperature=1.0, noise=streams.uniform(seed, group, member, position))

The noise is a uniform number per row, made by a counter-based hash, and the token is the inverse of
the cumulative distribution at that number. So a sampled episode does not change with the slot it ran
in, the block size, the number of workers, or a resume; no generator state has to be saved.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sample(logits: Tensor, *, temperature: float, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """Draw one token a row and its log-probability under the distribution it was drawn from.

    Args:
        logits: `[n, V]`, any float dtype; computed in float32.
        temperature: > 0; the distribution is `softmax(logits / temperature)`.
        noise: `[n]` in [0, 1), or None for the most likely token (greedy).

    Returns:
        token `[n]` int64 and log_prob `[n]` float32 (of the tempered distribution, greedy or not).
    """
    log_probs = torch.log_softmax(logits.float() / temperature, dim=-1)
    if noise is None:
        token = log_probs.argmax(dim=-1)
    else:
        cumulative = log_probs.exp().cumsum(dim=-1)
        # Scaled by the last entry, which rounding keeps from being 1, the threshold stays below it;
        # and '<=' skips tokens of probability zero. So the index is always a possible token.
        threshold = noise.to(cumulative.dtype).unsqueeze(-1) * cumulative[:, -1:]
        token = (cumulative <= threshold).sum(dim=-1).clamp_(max=logits.shape[-1] - 1)
    return token, log_probs.gather(-1, token.unsqueeze(-1)).squeeze(-1)
