"""Logits only where they are needed: `with logits_at(model, index): logits = model(...).logits[0]`.

    with hidden_at(model, index) as hidden:
        model(...)
    hidden()            # [m, H], what the projection would have been given


The vocabulary projection is the widest layer of a language model, and decoding needs it at one
position a row, training at the response's positions. The hidden states are gathered just before the
projection, by a hook on the model's own output layer, so whatever a model does around it (scaling,
soft caps, tied embeddings, adapters) stays as the model defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

# Settings of models that do something to the logits after the projection.
_AFTERWARDS = (
    "final_logit_softcapping",
    "output_logit_soft_cap",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
)
_PLAIN: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()  # models whose logits are those of the projection


@contextmanager
def logits_at(model: Any, index: Tensor) -> Iterator[None]:
    """Within the block, `model(ids [n, q]).logits` is `[1, len(index), V]`.

    Args:
        model: a transformers causal LM (or a peft wrapper of one).
        index: `[m]` int64 into the flattened positions, `row * q + column`.
    """
    head = _head(model)

    def gather(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden = args[0]
        return (hidden.flatten(0, 1).index_select(0, index).unsqueeze(0), *args[1:])

    handle = head.register_forward_pre_hook(gather)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def hidden_at(model: Any, index: Tensor) -> Iterator[Callable[[], Tensor]]:
    """Within the block, the model's projection is given no row; afterwards `hidden()` is what it would have been given
    at `index` `[m]`, `[m, H]`, with gradient. Only for models with a `plain_head`.
    """
    seen: list[Tensor] = []

    def take(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden = args[0]
        seen.append(hidden.flatten(0, 1).index_select(0, index))
        return (hidden[:1, :0], *args[1:])

    handle = _head(model).register_forward_pre_hook(take)
    try:
        yield lambda: seen[-1]
    finally:
        handle.remove()


def plain_head(model: Any) -> nn.Linear | None:
    """The model's projection, where the logits are what it gives and nothing else; None where they are not.

    Some models scale or cap their logits afterwards. Those whose settings say so are known; whether another one does is
    tried out once, on two tokens.
    """
    head, config = _head(model), model.config.get_text_config()
    changed = [getattr(config, name, None) for name in _AFTERWARDS]
    if type(head) is not nn.Linear or any(value not in (None, 1, 1.0) for value in changed):
        return None
    if model not in _PLAIN:
        seen: list[Tensor] = []
        handle = head.register_forward_hook(lambda _, __, logits: seen.append(logits))
        try:
            device = head.weight.device
            # Asked for in a training pass, the trial must not take of the noise that adapters drop out by.
            with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
                ids = torch.tensor([[1, 2]], device=device)  # 0 is often the padding, which is nothing
                logits = model(input_ids=ids, use_cache=False).logits
        finally:
            handle.remove()
        _PLAIN[model] = seen[-1].shape == logits.shape and torch.equal(seen[-1].float(), logits.float())
    return head if _PLAIN[model] else None


def _head(model: Any) -> nn.Module:
    head: nn.Module | None = model.get_output_embeddings()
    if head is None:
        raise ValueError(
            f"{type(model).__name__} has no output embeddings (get_output_embeddings() is None). "
            "Give a causal language model, one that AutoModelForCausalLM loads."
        )

    return head
