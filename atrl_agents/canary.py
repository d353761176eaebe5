"""A canary: what fixed tokens are worth under the weights that were published, to be recomputed by who serves them.

    weights = with_canary(model, weights, vocab.size)      # the trainer: one small forward a publication
    mailbox.publish(weights, version)
    fault = differs(published, seen, "float32")            # the engine: None, or how far they are apart

A fingerprint says that the right bytes arrived; a canary says that the engine computes with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from atrl_envs import streams

CANARY = "canary.log_prob"  # the name of the extra tensor in the mailbox
COUNT = 16  # log-probabilities in it, of COUNT + 1 tokens
# Largest difference of a token's log-probability. float32: two orders of summing the same products differ by about
# 1e-5 at logits of size 10, and canary tokens are unlikely ones, whose errors are larger: vLLM and transformers were
# 1e-4 apart with SmolLM2-135M and an adapter that 130 updates had moved. bfloat16 keeps 8 bits, so a logit of size 16
# is rounded by up to 1/16 in each of two engines, and what the layers before it rounded adds to that: with SmolLM2-135M
# they were up to 0.22 apart over 192 sampled tokens (mean 0.05), so half a nat. Smaller faults are left to the
# fingerprint.
TOLERANCE = {"float32": 5e-4, "bfloat16": 0.5, "float16": 0.05}


def canary_tokens(vocabulary: int, count: int = COUNT) -> list[int]:
    """`count` + 1 token ids below `vocabulary`: the same in every process."""
    return [streams.mix(0xCA9A, position) % vocabulary for position in range(count + 1)]


@torch.no_grad()
def canary_log_probs(model: Any, vocabulary: int, count: int = COUNT) -> Tensor:
    """`[count]` float32: log-probability of every canary token after the first, given those before it."""
    ids = torch.tensor([canary_tokens(vocabulary, count)], device=next(model.parameters()).device)
    log_probs = model(input_ids=ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
    return log_probs.gather(-1, ids[0, 1:, None]).squeeze(-1).cpu()


def with_canary(model: Any, weights: Mapping[str, Tensor], vocabulary: int) -> dict[str, Tensor]:
    """The weights and, as one more tensor, what the model that holds them says of the canary."""
    return {**weights, CANARY: canary_log_probs(model, vocabulary)}


def differs(published: Tensor, seen: Tensor, dtype: str) -> float | None:
    """None where `seen` [n] is `published` [n] within the tolerance of `dtype`, else the largest difference."""
    apart = float((published.float() - seen.float()).abs().max())
    return None if apart <= TOLERANCE[dtype] else apart
