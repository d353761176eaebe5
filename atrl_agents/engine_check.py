"""Where a sampler's and the trainer's log-probabilities part, and why: numerics, support, tokenisation, EOS, padding.

report = check(EngineCheckConfig(model=folder, engine="vllm"), env_config)
print("\n".join(report.lines)); report.passed
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from atrl_envs import keys
from atrl_envs.vocab import Vocab

from . import models
from .canary import TOLERANCE
from .config import EnvConfig, available_cores
from .config_engine import VLLM
from .engine_check_command import EngineCheckConfig
from .evaluate import collect, make_env
from .log_probs import response_log_probs
from .policies.transformers_policy import TransformersPolicy

_SHARES = (1e-4, 1e-2)
LIMITS = {**TOLERANCE, "float32": 1e-4}  # of sampled tokens, which are likelier than the canary
# Settings of generation_config.json that would make an engine sample from another distribution than is trained.
_SNEAKY = (
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "temperature",
)


@dataclass(frozen=True)
class EngineReport:
    """What `check` found: lines to print, and whether only numerics differ."""

    lines: list[str]
    passed: bool


@dataclass(frozen=True)
class Differences:
    """Log-probability of the sampler minus the trainer's, a token an entry: all of them, and of EOS tokens alone."""

    every: Tensor
    eos: Tensor

    @classmethod
    def between(cls, sampled: Tensor, trained: Tensor, mask: Tensor, is_eos: Tensor) -> Differences:
        """All `[N, S]`; the mask says which are response tokens."""
        difference = sampled.float() - trained.float()
        return cls(difference[mask], difference[mask & is_eos])


def check(config: EngineCheckConfig, env_config: EnvConfig) -> EngineReport:
    """Sample `config.problems` responses in each dtype and compare every token."""
    model, vocab = models.load(str(config.model))
    env = make_env(
        env_config,
        vocab,
        split="test",
        seed=config.seed,
        shuffle=False,
        group_size=1,
        num_envs=config.problems,
    )
    models.check_length(model, env.sequence_length, env.max_new_tokens)
    lines = [
        f"{config.engine} against transformers, {config.model} on {env_config.name}, temperature {config.temperature}"
    ]
    passed = True
    for part in (_tokenisation(config.model, env, vocab, config.problems), _vocabulary(model, vocab)):
        lines += part
    lines += _generation_settings(config.model, vocab)
    start = env.state_dict()
    for dtype in config.dtype:
        env.load_state_dict(start)
        model = model.to(getattr(torch, dtype))
        policy = _policy(config, model, vocab, env, dtype)
        try:
            episodes = collect(env, policy, groups=min(config.problems, len(env.bank)))
        finally:
            if config.engine == VLLM:
                policy.close()
        found, fine = _compare(config, model, vocab, episodes, dtype)
        lines += found
        passed &= fine
        model, _ = models.load(str(config.model))  # rounded weights are not the next dtype's
    lines.append(
        "only numerics differ" if passed else "MORE THAN NUMERICS DIFFERS: see the lines marked with !"
    )
    return EngineReport(lines, passed)


def _policy(config: EngineCheckConfig, model: Any, vocab: Vocab, env: Any, dtype: str) -> Any:
    settings: dict[str, Any] = {
        "block_size": env.block_size,
        "temperature": config.temperature,
        "seed": config.seed,
        "max_new_tokens": env.max_new_tokens,
    }
    if config.engine != VLLM:
        return TransformersPolicy(model, vocab, **settings)
    from .config_engine import check_head
    from .policies.vllm_engine import EngineOptions
    from .policies.vllm_policy import VLLMPolicy

    shape = model.config.get_text_config()
    if not torch.cuda.is_available():
        size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
        check_head(size, f"--model {config.model}", "give another --model")
    options = EngineOptions(
        str(config.model),
        dtype=dtype,
        max_model_len=config.vllm.max_model_len or env.sequence_length,
        memory_gb=config.vllm.memory_gb,
        enforce_eager=config.vllm.enforce_eager,
        threads=available_cores(),
    )
    return VLLMPolicy(options, vocab, **settings)


@torch.no_grad()
def _compare(
    config: EngineCheckConfig, model: Any, vocab: Vocab, episodes: TensorDict, dtype: str
) -> tuple[list[str], bool]:
    """The table of one dtype, and whether only numerics differ."""
    tokens, mask, sampled = episodes[keys.TOKENS], episodes[keys.RESPONSE_MASK], episodes[keys.LOG_PROB]
    out = response_log_probs(
        model, tokens, episodes[keys.PROMPT_LENGTH].flatten(), episodes[keys.LENGTH].flatten(),
        temperature=config.temperature,
    )  # fmt: skip
    found = Differences.between(sampled, out.log_prob, mask, tokens == vocab.eos_id)
    lines = [
        f"{dtype}",
        f"  {'':<14}{'count':>8}{'max':>10}{'mean':>10}{'99 %':>10}{'> 1e-4':>9}{'> 1e-2':>9}{'bias':>11}",
    ]
    lines += [_row("all", found.every), _row("EOS", found.eos)]
    limit = LIMITS[dtype]
    large = found.every.abs() > limit
    lines.append(
        f"  numerics: differences up to {limit:g} are the dtype's; {int(large.sum())} of {large.numel()} are larger"
    )
    faults = []
    # A truncated distribution is renormalised: its tokens are likelier than in the whole one, and never less likely.
    if (
        bool(large.any())
        and bool((found.every[large] > 0).all())
        and float((found.every > limit).float().mean()) > 0.05
    ):
        faults.append(
            "truncated support: every large difference is the sampler's surplus, as with top-p, top-k or min-p"
        )
    if (
        found.eos.numel()
        and bool((found.eos.abs() > limit).any())
        and not bool((found.every.abs() > limit).sum() > (found.eos.abs() > limit).sum())
    ):
        faults.append("EOS: only EOS tokens differ; the two sides do not mean the same end of sequence")
    outside = int((tokens[mask] >= vocab.size).sum()) + int((tokens[mask] < 0).sum())
    if outside:
        faults.append(
            f"vocabulary: {outside} sampled ids are outside the tokenizer's {vocab.size}; they have no text"
        )
    padded = int((sampled[~mask] != 0).sum())
    if padded:
        faults.append(f"padding: {padded} positions outside responses carry a log-probability")
    if bool(large.any()) and not faults:
        faults.append(
            "differences are larger than numerics explain and of both signs: weights, temperature or positions"
        )
    return lines + [f"  ! {fault}" for fault in faults], not faults


def _row(name: str, difference: Tensor) -> str:
    if not difference.numel():
        return f"  {name:<14}{0:>8}"
    size = difference.abs()
    shares = "".join(f"{float((size > limit).float().mean()):>9.2%}" for limit in _SHARES)
    return (
        f"  {name:<14}{size.numel():>8}{float(size.max()):>10.2g}{float(size.mean()):>10.2g}"
        f"{float(size.quantile(0.99)):>10.2g}{shares}{float(difference.mean()):>11.1e}"
    )


def _tokenisation(folder: Path, env: Any, vocab: Vocab, problems: int) -> list[str]:
    """Prompts that the tokenizer's own call, which an engine given text would use, reads otherwise than the env."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    bank = env.bank
    count, different = min(problems, len(bank)), 0
    for text in bank.prompt_texts[:count]:
        different += tokenizer(text)["input_ids"] != vocab.encode(text)
    harmless = "harmless: the engine is given tokens, never text" if different else "the same either way"
    return [f"tokenisation: {different} of {count} prompts would be read otherwise as text ({harmless})"]


def _vocabulary(model: Any, vocab: Vocab) -> list[str]:
    width = model.config.get_text_config().vocab_size
    rest = width - vocab.size
    said = (
        f"{rest} ids of the model have no token, and both sides may sample them"
        if rest
        else "none is without a token"
    )
    return [f"vocabulary: the model has {width} ids, the tokenizer {vocab.size}; {said}"]


def _generation_settings(folder: Path, vocab: Vocab) -> list[str]:
    """What generation_config.json would bring in, were it heeded."""
    file = folder / "generation_config.json"
    if not file.is_file():
        return []
    saved = json.loads(file.read_text(encoding="utf-8"))
    lines = []
    if settings := [f"{name}={saved[name]}" for name in _SNEAKY if name in saved]:
        lines.append(f"support: generation_config.json has {', '.join(settings)}; not heeded on either side")
    ends = saved.get("eos_token_id")
    other = sorted(set(ends if isinstance(ends, list) else [ends]) - {vocab.eos_id, None})
    if other:
        lines.append(
            f"EOS: generation_config.json names other ends, {other}; a response ends with {vocab.eos_id} alone"
        )
    if vocab.pad_id == vocab.eos_id:
        lines.append(
            "padding: the tokenizer has no padding token, EOS serves; responses end by their length, not by it"
        )
    return lines
