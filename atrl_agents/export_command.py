"""`atrl export`: a run's model as a folder that others load, with a model card.

atrl export runs/mine --out my-model               # of a LoRA run: the adapter
atrl export runs/mine --out my-model --merge       # the adapter's product added to its base: a model by itself
atrl export smollm2.gguf --out smollm2             # a GGUF file as a folder, which an adapter can name as its base
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .arguments import parse
from .complaints import ConfigError
from .config_file import CONFIG
from .eval_command import checkpoint_of, run_of
from .model_check import ADAPTER_CONFIG, kind_of


@dataclass(frozen=True)
class ExportConfig:
    """Write a run's model as a folder for others, and check it by loading it again."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, its checkpoint, a folder in transformers' format, or a GGUF file."""
    out: Path
    """A new folder."""
    merge: bool = False
    """Of a LoRA run: add the adapter to its base and write the whole model, in float32."""


def main(words: Sequence[str]) -> int:
    """Parse, check, write."""
    config = parse(ExportConfig, words, "atrl export")
    model = _check(config)
    from .export import export

    difference = export(model, config.out, run=run_of(config.path), merge=config.merge)
    print(f"written to {config.out}/  (loaded again: log-probabilities differ by {difference:.1g} at most)")
    if (config.out / ADAPTER_CONFIG).is_file():
        print(
            "an adapter: whoever loads it needs its base too; --merge writes a model by itself",
            file=sys.stderr,
        )
    return 0


def _check(config: ExportConfig) -> Path:
    """The model to export."""
    if config.out.exists():
        raise ConfigError(f"got --out {config.out}; it exists already; give another --out, or move it away")
    if not config.out.resolve().parent.is_dir():
        raise ConfigError(f"got --out {config.out}; its folder does not exist; make it first")
    model = checkpoint_of(config.path)
    kind = kind_of(str(model))
    known = kind in ("gguf", "adapter") or (model / CONFIG).is_file()
    if not known or not model.exists() or run_of(model) == model:
        raise ConfigError(
            f"got {config.path}; there is no model in it; give a run folder, a transformers folder, or a GGUF file"
        )
    if config.merge and kind != "adapter":
        raise ConfigError(
            f"got --merge with {config.path}; it has no adapter to merge, its model is whole already; leave --merge out"
        )
    return model
