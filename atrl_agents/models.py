"""The language model of a run: `tiny`, made from a config, or any causal LM that transformers loads.

model, vocab = load("tiny", tiny=TinyConfig(), seed=0)
model, vocab = load("runs/one/checkpoint")               # a folder; of a LoRA run: the base and its adapter
model, vocab = load("HuggingFaceTB/SmolLM2-135M-Instruct", dtype="bfloat16")
model, vocab = load("smollm2.gguf")
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from atrl_envs.vocab import Vocab

from . import lora
from .complaints import ConfigError
from .config import DType, TinyConfig, TrainConfig
from .model_check import TINY, check_hub, kind_of

_OF_LENGTH = ("dynamic", "longrope")  # rotary positions that change with the longest sequence of a batch


def load(
    name: str,
    *,
    tiny: TinyConfig | None = None,
    seed: int = 0,
    max_positions: int = 2048,
    dtype: DType = "float32",
) -> tuple[Any, Vocab]:
    """A causal LM in eval mode, and the vocabulary it speaks.

    Args:
        name: `tiny`, a folder that holds a transformers model or an adapter with its tokenizer, a GGUF file, or a
            model on the Hub.
        tiny: sizes of the tiny model.
        seed: of the tiny model's random weights.
        max_positions: longest sequence of the tiny model.
        dtype: of the weights; those of an adapter are float32.

    Raises:
        ConfigError: there is no such model, the base of an adapter is gone, or it cannot work here.
    """
    if name == TINY:
        vocab = Vocab.characters()
        return tiny_model(vocab, tiny or TinyConfig(), seed, max_positions).to(getattr(torch, dtype)), vocab
    kind = kind_of(name)
    if kind == "none":
        raise ConfigError(
            f"got --model {name}; there is nothing of that name; give '{TINY}', a folder, or a GGUF file"
        )
    if kind == "adapter":
        model = pretrained(lora.base_of(Path(name)), dtype)
        lora.load(model, Path(name))
        return model, _vocab(name, model)
    model = pretrained(name, dtype)
    return model, _vocab(name, model)


def begin(config: TrainConfig) -> tuple[Any, Vocab]:
    """The model that a new run trains, with its adapter where it has one, and the vocabulary."""
    model, vocab = load(config.model, tiny=config.tiny, seed=config.seed, dtype=config.dtype)
    if config.lora.r:
        lora.add(model, config.lora, seed=config.seed)
    return model, vocab


def for_rollouts(config: TrainConfig, model_config: Any, base: str) -> Any:
    """A model for a worker, whose trained weights are still to come: of `model_config`, or an adapter on `base`."""
    from transformers import AutoModelForCausalLM

    if config.lora.r:
        model = pretrained(base, config.dtype)
        lora.add(model, config.lora, seed=config.seed)
    else:
        kind = {"dtype": getattr(torch, config.dtype), "attn_implementation": "sdpa"}
        model = AutoModelForCausalLM.from_config(model_config, **kind).eval()
    return model.requires_grad_(False)


def pretrained(name: str, dtype: DType) -> Any:
    """The causal LM in a folder, a GGUF file or on the Hub, without an adapter, in eval mode.

    Raises:
        ConfigError: it cannot be had, or its attention is not PyTorch's own.
    """
    from transformers import AutoModelForCausalLM

    kind = kind_of(name)
    if kind == "hub":
        check_hub(name)
    source = name if kind == "hub" else str(Path(name).resolve())
    more: dict[str, Any] = {}
    if kind == "gguf":
        source, more = str(Path(source).parent), {"gguf_file": Path(source).name}
    try:
        with without_progress_bars():
            model = AutoModelForCausalLM.from_pretrained(
                source, dtype=getattr(torch, dtype), attn_implementation="sdpa", **more
            )
    except (ValueError, OSError, KeyError) as error:
        said = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"got --model {name}; transformers does not load it as a causal language model with sdpa attention "
            f"({type(error).__name__}: {said}); give another --model"
        ) from error
    return (_unpacked(model) if kind == "gguf" else model).eval()


def compute_layers_twice(model: Any) -> None:
    """Let training passes keep no activations inside layers (see training_pass.py).

    Raises:
        ConfigError: the model's class knows no gradient checkpointing.
    """
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise ConfigError(
            f"got --gradient-checkpointing; {type(model).__name__} does not offer it; leave it out, or give a smaller "
            "--micro-batch-tokens"
        )
    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = _checkpointed


def _checkpointed(function: Any, *arguments: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(function, *arguments, use_reentrant=False)


def _unpacked(model: Any) -> Any:
    """A model from a GGUF file as an ordinary one: transformers refuses to save what it calls quantised."""
    config = copy.deepcopy(model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.device("meta"):
        fresh = type(model)._from_config(config, dtype=model.dtype, attn_implementation="sdpa")
    fresh.to_empty(device=model.device)
    fresh.load_state_dict(model.state_dict(), strict=True)
    # what is in no state_dict, such as the frequencies of rotary positions
    for (_, old), (_, new) in zip(model.named_buffers(), fresh.named_buffers(), strict=True):
        new.copy_(old)
    fresh.tie_weights()
    return fresh


def _vocab(name: str, model: Any) -> Vocab:
    """The vocabulary of the tokenizer beside a model, as wide as the model's output.

    Raises:
        ConfigError: there is none, or it does not fit the model.
    """
    from transformers import AutoTokenizer

    path, more = Path(name), {}
    source = name if kind_of(name) == "hub" else str(path.resolve())
    if kind_of(name) == "gguf":
        source, more = str(path.resolve().parent), {"gguf_file": path.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **more)
        return Vocab.from_tokenizer(
            tokenizer, size=_size(tokenizer, model.get_output_embeddings().weight.shape[0])
        )
    except (ValueError, OSError, TypeError, KeyError) as error:
        said = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"got --model {name}; its tokenizer cannot serve it ({type(error).__name__}: {said}); put a fast "
            "tokenizer with an end-of-sequence token beside the model, by tokenizer.save_pretrained"
        ) from error


def _size(tokenizer: Any, rows: int) -> int:
    """Ids of a vocabulary: an embedding may be wider than its tokenizer, and what it has in excess can be sampled.

    A special token that neither ends nor pads a sequence may be in excess on the other side: transformers adds one to
    the tokenizer of a GGUF file.
    """
    ids = tokenizer.get_vocab()
    special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    unused = special - {tokenizer.eos_token, tokenizer.pad_token}
    if (needed := 1 + max(i for token, i in ids.items() if token not in unused)) > rows:
        raise ValueError(f"it has ids up to {needed - 1}, the model {rows} of them")
    return max(rows, 1 + max(ids.values()))


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Without transformers' progress bars, which would cut through the console."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def check_length(model: Any, sequence_length: int, max_new_tokens: int) -> None:
    """Refuse sequences longer than the model's positions.

    Raises:
        ConfigError: longest prompt and response together exceed `max_position_embeddings`, or the length up to which
            the model's rotary positions are a function of the position alone.
    """
    config = model.config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    original = rope.get("original_max_position_embeddings") or positions
    if rope.get("rope_type") in _OF_LENGTH and original is not None and sequence_length > original:
        raise ConfigError(
            f"got sequences of up to {sequence_length} tokens; the model's {rope['rope_type']} rotary positions beyond "
            f"{original} depend on the longest sequence of a batch, so cached keys would be wrong; give a smaller "
            "--env.max-new-tokens or shorter prompts, or another --model"
        )
    if positions is not None and sequence_length > positions:
        raise ConfigError(
            f"got prompts of up to {sequence_length - max_new_tokens} tokens and responses of up to {max_new_tokens}; "
            f"together they exceed the model's {positions} positions; shorten the prompts, "
            "or give a smaller --env.max-new-tokens, or another --model"
        )


def tiny_model(vocab: Vocab, tiny: TinyConfig, seed: int, max_positions: int) -> Any:
    """A Qwen2-shaped model with random weights that are a function of the seed."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    if tiny.width % tiny.heads:
        raise ValueError(
            f"--tiny.width {tiny.width} does not divide into --tiny.heads {tiny.heads}; "
            "make the width a multiple of the heads."
        )
    config = Qwen2Config(
        vocab_size=vocab.size,
        hidden_size=tiny.width,
        intermediate_size=4 * tiny.width,
        num_hidden_layers=tiny.layers,
        num_attention_heads=tiny.heads,
        num_key_value_heads=tiny.heads,
        max_position_embeddings=max_positions,
        tie_word_embeddings=True,
        pad_token_id=vocab.pad_id,
        eos_token_id=vocab.eos_id,
        bos_token_id=None,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config).eval()
