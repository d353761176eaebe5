"""Log-probabilities of responses under a causal LM, with gradient, computed only where needed.

    out = response_log_probs(model, tokens, prompt_length, length, group=group, temperature=1.0)
    out.log_prob      # [N, S], aligned with tokens; 0 outside the response
    out.entropy       # [N, S], detached unless its gradient is asked for

Prompts of a group are computed once (see packing.py), padding columns are cut, and the vocabulary
projection sees response positions only, in chunks where the logits would be large (see linear_log_probs.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .heads import hidden_at, logits_at, plain_head
from .linear_log_probs import linear_log_probs
from .packing import Packing, rows_sharing_prompts

WHOLE_BYTES = 1 << 26  # float32 logits up to 64 MiB are made in one piece


@dataclass(frozen=True)
class ResponseLogProbs:
    """What a forward says of given responses, `[N, S]`.

    Attributes:
        log_prob: float32, with gradient; 0 outside the response.
        entropy: float32, in nats; 0 outside the response.
        likeliest: bool: no other token was more probable; True outside the response.
    """

    log_prob: Tensor
    entropy: Tensor
    likeliest: Tensor


def response_log_probs(
    model: Any,
    tokens: Tensor,
    prompt_length: Tensor,
    length: Tensor,
    *,
    group: Tensor | None = None,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> ResponseLogProbs:
    """Log-probability of every response token given what precedes it.

    Args:
        model: a transformers causal LM.
        tokens: `[N, S]` int64, prompt then response, right-padded.
        prompt_length, length: `[N]` int64, `length > prompt_length >= 1`.
        group: `[N]`; contiguous samples with the same number have equal prompts and may share their
            computation. None computes each sample by itself.
        temperature: of the distribution the tokens were sampled from.
        entropy_gradient: whether the entropy is differentiated, too.
    """
    if group is None:
        row = torch.arange(tokens.shape[0], device=tokens.device)
    else:
        linear, attention = forward_costs(model)
        row = rows_sharing_prompts(group, prompt_length, length, linear_cost=linear, attention_cost=attention)
    plan = Packing.of(tokens, prompt_length, length, row)
    arguments = {"input_ids": plan.ids, "position_ids": plan.position, "use_cache": False}
    if plan.mask is not None:
        arguments["attention_mask"] = plan.mask
    head = plain_head(model)
    if head is not None and plan.target.shape[0] * head.out_features * 4 > WHOLE_BYTES:
        with hidden_at(model, plan.source) as hidden:
            model(**arguments)
        chosen, entropy, likeliest = linear_log_probs(
            hidden(),
            head.weight,
            plan.target,
            bias=head.bias,
            temperature=temperature,
            entropy_gradient=entropy_gradient,
        )
    else:
        with logits_at(model, plan.source):
            logits = model(**arguments).logits[0]
        log_probs = torch.log_softmax(logits.float() / temperature, dim=-1)
        chosen = log_probs.gather(-1, plan.target.unsqueeze(-1)).squeeze(-1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = -(log_probs.exp() * log_probs).sum(-1)
        likeliest = chosen >= log_probs.amax(-1)
    if not entropy_gradient:
        entropy = entropy.detach()
    index = (plan.sample, plan.column)
    shape = tokens.shape
    return ResponseLogProbs(
        log_prob=chosen.new_zeros(shape).index_put(index, chosen),
        entropy=entropy.new_zeros(shape).index_put(index, entropy),
        likeliest=likeliest.new_ones(shape).index_put(index, likeliest),
    )


def forward_costs(model: Any) -> tuple[float, float]:
    """Rough floating-point operations of a forward: per token, and per (query, key) pair."""
    config = model.config.get_text_config()
    layers, width = config.num_hidden_layers, config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * width
    return 2.0 * layers * (4 * width * width + 3 * width * inner), 4.0 * layers * width
