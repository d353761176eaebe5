"""Which models the slot cache serves exactly: plain attention to all earlier tokens, computed by PyTorch's SDPA.

check_attention(model)        # ValueError that names what the model does differently
"""

from __future__ import annotations

from typing import Any

_FULL = "full_attention"


def check_attention(model: Any) -> None:
    """Refuse models whose attention the slot cache would not serve exactly.

    Raises:
        ValueError: attention other than SDPA; a state beside keys and values; layers that see a window of the tokens,
            or something else than them; scores that are capped.
    """
    name, config = type(model).__name__, model.config.get_text_config()
    implementation = getattr(config, "_attn_implementation", None)
    if getattr(model, "_is_stateful", False):
        raise ValueError(
            f"{name} keeps a state beside keys and values, which the slot cache does not. Choose a model that has "
            "attention in every layer."
        )
    if implementation != "sdpa" or not getattr(model, "_supports_sdpa", False):
        raise ValueError(
            f"{name} uses {implementation!r} attention; the slot cache needs 'sdpa'. "
            'Load the model with attn_implementation="sdpa", or choose one whose class offers it.'
        )
    other = sorted(set(getattr(config, "layer_types", None) or [_FULL]) - {_FULL})
    if not other and _window(config) is not None:
        other = [f"sliding attention (the last {_window(config)} tokens)"]
    if other:
        raise ValueError(
            f"{name} has layers of type {', '.join(other)}; the slot cache serves full attention only. "
            "Choose a model with full attention in every layer."
        )
    if getattr(config, "attn_logit_softcapping", None) is not None:
        raise ValueError(
            f"{name} caps the scores of its attention (attn_logit_softcapping), which 'sdpa' leaves out. "
            "Choose a model without."
        )


def _window(config: Any) -> int | None:
    """Tokens that every layer sees, where that is fewer than the model has positions; None: all of them.

    Some models (Mistral, Phi-3) have no list of layer types: `sliding_window` alone says it.
    """
    window = getattr(config, "sliding_window", None)
    if (
        window is None
        or getattr(config, "layer_types", None)
        or not getattr(config, "use_sliding_window", True)
    ):
        return None
    positions = getattr(config, "max_position_embeddings", None)
    return None if positions is not None and window >= positions else int(window)
