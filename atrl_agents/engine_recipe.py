"""What a run with `--engine vllm` hands to whoever samples: a folder for the engine, and a recipe of the policy.

folder = engine_folder(model, run_folder / FOLDER)
policy_fn = EngineRecipe.of(config, model, vocab, env, folder, mailbox)      # policy_fn() -> VLLMPolicy
mailbox.publish(published(config, model, vocab), version)
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from atrl_envs.vocab import Vocab

from . import lora
from .canary import CANARY, COUNT, with_canary
from .complaints import ConfigError
from .config import TrainConfig, available_cores
from .config_engine import VLLM, check_head
from .policies.vllm_engine import EngineOptions
from .policies.vllm_policy import VLLMPolicy

FOLDER = ".engine"  # in the run folder, while the run goes on


def published(config: TrainConfig, model: Any, vocab: Vocab) -> dict[str, Tensor]:
    """What a publication carries: the parameters that are trained and, for an engine, the canary."""
    weights: dict[str, Tensor] = {**lora.trainable(model)}
    return with_canary(model, weights, vocab.size) if config.engine == VLLM else weights


def check_served(config: TrainConfig, model: Any) -> None:
    """ConfigError for a model that the engine does not serve."""
    if config.engine != VLLM or torch.cuda.is_available():
        return
    shape = model.config.get_text_config()
    size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    check_head(size, f"--model {config.model}", "give another --model")


def engine_folder(model: Any, own: Path) -> Path:
    """A transformers folder for the engine: `own`, or that of an adapter's base.

    Whole weights all come by the mailbox, so a config is enough. An adapter needs the base model that it was put on.
    """
    if lora.is_adapted(model):
        return Path(model.name_or_path)
    described = copy.deepcopy(model.config)
    described.architectures = [type(model).__name__]
    described.save_pretrained(own)
    return own


@dataclass(frozen=True)
class EngineRecipe:
    """Builds the vLLM policy of one worker, in the worker; its weights come from the mailbox."""

    config: TrainConfig
    vocab: Vocab
    folder: str
    dtype: str
    max_model_len: int
    max_new_tokens: int
    names: tuple[str, ...]
    mailbox: Any

    @classmethod
    def of(
        cls, config: TrainConfig, model: Any, vocab: Vocab, env: Any, folder: Path, mailbox: Any
    ) -> EngineRecipe:
        """For a run's model and env. ConfigError where sequences are longer than --vllm.max-model-len."""
        asked = config.vllm.max_model_len
        if asked is not None and asked < env.sequence_length:
            raise ConfigError(
                f"got --vllm.max-model-len {asked}; sequences of the task have up to {env.sequence_length} tokens; "
                "leave it out, or give a smaller --env.max-new-tokens"
            )
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        return cls(
            config,
            vocab,
            str(folder),
            str(next(model.parameters()).dtype).removeprefix("torch."),
            # The canary must fit, and one token after it.
            min(asked or max(env.sequence_length, COUNT + 2), positions or 1 << 30),
            env.max_new_tokens,
            tuple(name for name in published(config, model, vocab) if name != CANARY),
            mailbox,
        )

    def __call__(self) -> VLLMPolicy:
        config = self.config
        rank = config.lora.r
        options = EngineOptions(
            self.folder,
            dtype=self.dtype,
            max_model_len=self.max_model_len,
            max_rows=max(1, min(256, config.envs_per_worker)),
            memory_gb=config.vllm.memory_gb,
            enforce_eager=config.vllm.enforce_eager,
            threads=config.worker_threads if config.workers else available_cores(),
            dummy=not rank,
            r=rank,
            sleep=config.vllm.sleep,
        )
        policy = VLLMPolicy(
            options,
            self.vocab,
            block_size=config.env.block_size,
            temperature=config.temperature,
            seed=config.seed,
            max_new_tokens=self.max_new_tokens,
            mailbox=self.mailbox,
            alpha=config.lora.scale_alpha,
            names=self.names,
            max_replacements=config.vllm.max_replacements,
        )
        policy.take_new_weights()  # starts the engine: a worker is ready when it can answer
        return policy
