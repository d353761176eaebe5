"""What a rollout worker builds for itself, as picklable recipes: its environment and its policy.

env_fn = EnvRecipe(config, vocab, start_group=0)          # env_fn(worker=1, num_workers=2) -> VerifiableEnv
policy_fn = PolicyRecipe.of(config, model, vocab, max_new_tokens=6, mailbox=mailbox)     # policy_fn()
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atrl_collectors.fingerprints import fingerprint
from atrl_envs.vocab import Vocab

from . import lora, models
from .complaints import ConfigError
from .config import TrainConfig
from .evaluate import make_env
from .policies.transformers_policy import Mailbox, TransformersPolicy


@dataclass(frozen=True)
class EnvRecipe:
    """Builds the training environment of one worker."""

    config: TrainConfig
    vocab: Vocab
    start_group: int = 0

    def __call__(self, worker: int = 0, num_workers: int = 1) -> Any:
        return make_env(
            self.config.env,
            self.vocab,
            split="train",
            seed=self.config.seed,
            group_size=self.config.samples_per_prompt,
            num_envs=self.config.envs_per_worker,
            worker=worker,
            num_workers=num_workers,
            start_group=self.start_group,
            rewards=self.config.env.rewards or None,
            allow_outscoring=self.config.env.allow_outscoring,
            curriculum=self.config.env.curriculum,
        )


@dataclass(frozen=True)
class PolicyRecipe:
    """Builds the sampling policy of one worker; its weights come from the mailbox."""

    config: TrainConfig
    vocab: Vocab
    model_config: Any
    max_new_tokens: int
    mailbox: Mailbox
    base: str = ""
    """Of an adapter: where the worker finds the model, for the mailbox brings the adapter alone."""
    base_fingerprint: int = 0
    """Of an adapter: that of the trainer's model without it."""

    @classmethod
    def of(
        cls, config: TrainConfig, model: Any, vocab: Vocab, max_new_tokens: int, mailbox: Mailbox
    ) -> PolicyRecipe:
        """For the trainer's model."""
        known = fingerprint(lora.base_weights(model)) if config.lora.r else 0
        return cls(config, vocab, model.config, max_new_tokens, mailbox, model.name_or_path, known)

    def __call__(self) -> TransformersPolicy:
        model = models.for_rollouts(self.config, self.model_config, self.base)
        if self.config.lora.r and (found := fingerprint(lora.base_weights(model))) != self.base_fingerprint:
            raise ConfigError(
                f"got another model from {self.base} (fingerprint {found}) than the trainer ({self.base_fingerprint}); "
                "its files have changed since the run began; put them back, and go on with --resume"
            )
        return sampling_policy(model, self.vocab, self.config, self.max_new_tokens, self.mailbox)


def sampling_policy(
    model: Any, vocab: Vocab, config: TrainConfig, max_new_tokens: int, mailbox: Mailbox | None = None
) -> TransformersPolicy:
    """The policy that rolls out, with the run's settings."""
    return TransformersPolicy(
        model,
        vocab,
        block_size=config.env.block_size,
        temperature=config.temperature,
        seed=config.seed,
        max_new_tokens=max_new_tokens,
        in_flight=config.cache_rule,
        mailbox=mailbox,
    )
