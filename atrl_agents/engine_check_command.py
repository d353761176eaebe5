"""`atrl check --engine vllm --model FOLDER`: do engine and trainer agree on every token's log-probability?

atrl check --engine vllm --model FOLDER --env.id atrl/Addition-v0
atrl check --engine transformers --model runs/mine/checkpoint --dtype float32
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .arguments import parse
from .complaints import ConfigError, bad_input
from .config import Engine, EnvConfig, VLLMConfig
from .config_check import CHECKPOINT, check_env, with_typed_parameters
from .config_engine import VLLM, check_installed
from .config_file import CONFIG

DType = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class EngineCheckConfig:
    """Sample with an engine, compute the same tokens' log-probabilities as the trainer does, and compare."""

    model: Path
    """A folder in transformers' format."""
    engine: Engine = "transformers"
    """What samples: transformers (the slot cache against whole forwards), or vllm."""
    env: EnvConfig = field(default_factory=EnvConfig)
    vllm: VLLMConfig = field(default_factory=VLLMConfig)
    dtype: tuple[DType, ...] = ("float32", "bfloat16")
    """Of engine and trainer, one after the other."""
    problems: int = 32
    """Responses to compare."""
    temperature: float = 1.0
    """Of the distribution that is sampled."""
    seed: int = 0
    """Decides the samples."""


def main(words: Sequence[str]) -> int:
    """Print the report; exit code 1 where engine and trainer differ by more than numerics."""
    config = parse(EngineCheckConfig, words, "atrl check --engine")
    if not (config.model / CONFIG).is_file():
        inside = config.model / CHECKPOINT
        hint = f"did you mean {inside}?" if (inside / CONFIG).is_file() else "give a transformers folder"
        raise ConfigError(f"got --model {config.model}; it holds no {CONFIG}; {hint}")
    if config.problems < 1:
        raise ConfigError(f"got --problems {config.problems}; it must be at least 1; give a positive number")
    if not config.temperature > 0:
        raise ConfigError(
            f"got --temperature {config.temperature}; it must be above 0; give a positive number"
        )
    if config.engine == VLLM:
        check_installed()
    check_env(config.env)
    env = with_typed_parameters(config.env)
    from .engine_check import check

    with bad_input():
        report = check(config, env)
    print("\n".join(report.lines))
    return 0 if report.passed else 1
