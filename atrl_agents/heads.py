"""Logits only where they are needed: `with logits_at(model, index): logits = model(...).logits[0]`.

The vocabulary projection is the widest layer of a language model, and decoding needs it at one
position a row, training at the response's positions. The hidden states are gathered just before the
projection, by a hook on the model's own output layer, so whatever a model does around it (scaling,
soft caps, tied embeddings, adapters) stays as the model defines it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def logits_at(model: Any, index: Tensor) -> Iterator[None]:
    """Within the block, `model(ids [n, q]).logits` is `[1, len(index), V]`.

    Args:
        model: a transformers causal LM (or a peft wrapper of one).
        index: `[m]` int64 into the flattened positions, `row * q + column`.
    """
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(
            f"{type(model).__name__} has no output embeddings (get_output_embeddings() is None). "
            "Give a causal language model, one that AutoModelForCausalLM loads."
        )

    def gather(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden = args[0]
        return (hidden.flatten(0, 1).index_select(0, index).unsqueeze(0), *args[1:])

    handle = head.register_forward_pre_hook(gather)
    try:
        yield
    finally:
        handle.remove()
