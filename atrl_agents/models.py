"""The language model of a run: `tiny`, made from a config, or a folder in transformers' format.

model, vocab = load("tiny", tiny=TinyConfig(), seed=0)
model, vocab = load("runs/one/checkpoint")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from atrl_envs.vocab import Vocab

from .complaints import ConfigError
from .config import TinyConfig

TINY = "tiny"


def load(
    name: str, *, tiny: TinyConfig | None = None, seed: int = 0, max_positions: int = 2048
) -> tuple[Any, Vocab]:
    """A causal LM in float32, in eval mode, and the vocabulary it speaks.

    Args:
        name: `tiny`, or a folder that holds a transformers model and its tokenizer.
        tiny: sizes of the tiny model.
        seed: of the tiny model's random weights.
        max_positions: longest sequence of the tiny model.

    Raises:
        FileNotFoundError: `name` is neither `tiny` nor a folder with a model in it.
    """
    if name == TINY:
        vocab = Vocab.characters()
        return tiny_model(vocab, tiny or TinyConfig(), seed, max_positions), vocab
    folder = Path(name)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"--model {name}: got neither '{TINY}' nor a transformers folder (no {folder / 'config.json'}). "
            f"Give --model {TINY}, or the checkpoint folder of a run, as in runs/NAME/checkpoint."
        )
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model.eval(), Vocab.from_tokenizer(AutoTokenizer.from_pretrained(folder))


def check_length(model: Any, sequence_length: int, max_new_tokens: int) -> None:
    """Refuse sequences longer than the model's positions.

    Raises:
        ConfigError: longest prompt and response together exceed `max_position_embeddings`.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
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
