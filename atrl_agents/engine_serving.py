"""A model that stands still, served by vLLM: for evaluation, with what a run's publications are checked by.

with served(model, vocab, VLLMConfig(), max_model_len=64, max_rows=32, greedy=True) as policy:
    tensordict = policy(env.reset())
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from atrl_collectors.weights import WeightMailbox
from atrl_envs.vocab import Vocab

from . import lora
from .canary import CANARY, COUNT, with_canary
from .config import VLLMConfig, available_cores
from .config_engine import check_head
from .engine_recipe import engine_folder
from .policies.vllm_engine import EngineOptions
from .policies.vllm_policy import VLLMPolicy


@contextmanager
def served(
    model: Any, vocab: Vocab, vllm: VLLMConfig, *, max_model_len: int, max_rows: int, **settings: Any
) -> Iterator[VLLMPolicy]:
    """A policy whose engine has the model's weights, or its base with its adapter, and ends with the context.

    Args:
        model: a transformers causal LM; the base of an adapter is loaded anew from where `name_or_path` says.
        vocab: its vocabulary.
        vllm: of the engine.
        max_model_len: longest sequence in tokens, unless `vllm` says.
        max_rows: sequences computed at a time.
        settings: further ones of VLLMPolicy.

    Raises:
        ConfigError: the engine does not serve such a model.
        WrongWeights: it computes something else with the weights.
    """
    if not torch.cuda.is_available():
        shape = model.config.get_text_config()
        check_head(
            getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads,
            f"the model {model.name_or_path}",
            "take another model",
        )
    adapter = model.peft_config[lora.NAME] if lora.is_adapted(model) else None
    weights = with_canary(model, lora.trainable(model), vocab.size)
    with tempfile.TemporaryDirectory(prefix="atrl-engine-") as scratch:
        mailbox = WeightMailbox.create(Path(scratch) / "weights", weights)
        mailbox.publish(weights, 0)
        policy = VLLMPolicy(
            EngineOptions(
                str(engine_folder(model, Path(scratch) / "model")),
                dtype=str(model.dtype).removeprefix("torch."),
                # The canary must fit, and one token after it.
                max_model_len=vllm.max_model_len or max(max_model_len, COUNT + 2),
                max_rows=max_rows,
                memory_gb=vllm.memory_gb,
                enforce_eager=vllm.enforce_eager,
                threads=available_cores(),
                dummy=adapter is None,
                r=0 if adapter is None else adapter.r,
            ),
            vocab,
            mailbox=mailbox,
            alpha=1.0 if adapter is None else adapter.lora_alpha,
            names=[name for name in weights if name != CANARY],
            max_replacements=vllm.max_replacements,
            **settings,
        )
        try:
            yield policy
        finally:
            policy.close()
