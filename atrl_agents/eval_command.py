"""`atrl eval`: held-out accuracy of a run or of any checkpoint, on the run's task or on another one.

atrl eval runs/mine                                       # greedy, on the task that it was trained on
atrl eval runs/mine/checkpoint --env.id atrl/Subtraction-v0 --samples-per-prompt 8
atrl eval runs/mine --engine vllm                         # the same by vLLM
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from . import config_file
from .arguments import parse
from .complaints import ConfigError
from .config import DType, Engine, EnvConfig, VLLMConfig
from .config_check import CHECKPOINT, SPARE, check_env, with_typed_parameters
from .config_engine import VLLM, check_installed
from .config_file import CONFIG
from .model_check import ADAPTER_CONFIG


@dataclass(frozen=True)
class EvalConfig:
    """Measure a checkpoint on held-out problems: greedy accuracy, and pass@k where k samples are taken."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or a folder in transformers' format."""
    env: EnvConfig = field(default_factory=EnvConfig)
    engine: Engine = "transformers"
    """What answers: transformers with our slot cache, or vLLM in a process of its own."""
    dtype: DType = "float32"
    """Of the model's weights, in either engine; a run's own unless given."""
    vllm: VLLMConfig = field(default_factory=VLLMConfig)
    problems: int = 1000
    """Held-out problems, or all where there are fewer."""
    samples_per_prompt: int = 1
    """Samples for pass@k; 1 measures greedy accuracy alone."""
    temperature: float = 1.0
    """Of the samples; the greedy answer does not depend on it."""
    seed: int = 0
    """Decides the samples, and the problems where not all are taken."""
    out: Path | None = None
    """A file to write the result to, as JSON."""


def main(words: Sequence[str]) -> int:
    """Parse, check, measure, print."""
    config = parse(EvalConfig, words, "atrl eval")
    run = run_of(config.path)
    other_task = any(word.partition("=")[0].replace("_", "-") == "--env.id" for word in words)
    if run is None and not other_task:
        raise ConfigError(f"got {config.path} without a task; it is no run, so name one; add --env.id ID")
    if run is not None:
        # the run's own dtype and env, and over them what was typed
        saved = config_file.read(run / CONFIG)
        kept = {
            name: saved[name] for name in (("dtype",) if other_task else ("dtype", "env")) if name in saved
        }
        config = parse(
            EvalConfig, [*config_file.flags(kept, EvalConfig, str(run / CONFIG)), *words], "atrl eval"
        )
    _check(config)
    from .evaluate import evaluate_checkpoint

    result = evaluate_checkpoint(
        checkpoint_of(config.path),
        with_typed_parameters(config.env),
        problems=config.problems,
        samples_per_prompt=config.samples_per_prompt,
        temperature=config.temperature,
        seed=config.seed,
        engine=config.engine,
        dtype=config.dtype,
        vllm=config.vllm,
    )
    print(
        "\n".join(
            [f"{config.path} on {config.env.name}, by {config.engine} in {config.dtype}", *table(result)]
        )
    )
    if config.out is not None:
        from .run_files import json_line

        config_file.write_whole(config.out, json_line(result, indent=2) + "\n")
        print(f"written to {config.out}", file=sys.stderr)
    return 0


def run_of(path: Path) -> Path | None:
    """The run folder that `path` is, or is the checkpoint of; None for a model from elsewhere."""
    for folder in (path, path.resolve().parent):
        try:
            if "algorithm" in json.loads((folder / CONFIG).read_text(encoding="utf-8")):
                return folder
        except (OSError, ValueError):
            continue
    return None


def checkpoint_of(path: Path) -> Path:
    """The transformers folder in a run, or `path` itself."""
    # The spare stands alone while a checkpoint is being replaced, and after a kill in that moment.
    names = (CHECKPOINT, f"{CHECKPOINT}{SPARE}")
    return next((path / name for name in names if (path / name).is_dir()), path)


def table(result: Mapping[str, Any], indent: str = "  ") -> list[str]:
    """One aligned line an entry, inner tables below their name."""
    result = {name: value for name, value in result.items() if value != {}}
    width = max((len(name) for name, value in result.items() if not isinstance(value, Mapping)), default=0)
    lines = []
    for name, value in result.items():
        label = name.replace("_", " ")
        if isinstance(value, Mapping) and any(isinstance(inner, Mapping | list) for inner in value.values()):
            lines += [f"{indent}{label}", *table(value, indent + "  ")]
        else:
            lines.append(f"{indent}{label:<{width}}  {_text(value)}")
    return lines


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _check(config: EvalConfig) -> None:
    model = checkpoint_of(config.path)
    is_adapter = (model / ADAPTER_CONFIG).is_file()
    if not (is_adapter or (model / CONFIG).is_file()) or run_of(model) == model:
        raise ConfigError(
            f"got {config.path}; there is no checkpoint in it; give a run folder or a transformers folder"
        )
    for name in ("problems", "samples_per_prompt"):
        if (value := getattr(config, name)) < 1:
            raise ConfigError(
                f"got --{name.replace('_', '-')} {value}; it must be at least 1; give a positive number"
            )
    if not config.temperature > 0:
        raise ConfigError(
            f"got --temperature {config.temperature}; it must be above 0; greedy accuracy ignores it"
        )
    if config.out is not None and not config.out.resolve().parent.is_dir():
        raise ConfigError(f"got --out {config.out}; its folder does not exist; make it first")
    if config.engine == VLLM:
        check_installed()
    check_env(config.env)
