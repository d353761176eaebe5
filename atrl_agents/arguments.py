"""The words after `atrl train` as a config: the algorithm, files of settings, and flags.

    train_config(["grpo", "@fast.toml", "--steps", "100"])
    with_files(["@run/config.json", "--seed", "1"], GRPOConfig)     # the file's flags, then the typed ones

A file's keys become flags placed before the typed ones, so tyro checks both and the typed ones win.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import tyro

from . import config_file
from .complaints import ConfigError, near
from .config import ALGORITHMS, TrainConfig
from .config_check import CHECKPOINT
from .config_file import CONFIG

_SETS = ("--env.set", "--set")
Kind = TypeVar("Kind")


def train_config(words: Sequence[str]) -> TrainConfig:
    """The config that `atrl train WORDS` asks for; with `--resume`, on top of the one in the run folder.

    Errors: ConfigError for an unknown algorithm, file or key; SystemExit(2) for a flag that tyro refuses.
    """
    words = list(words)
    named = bool(words) and not words[0].startswith(("-", "@"))
    kind = _algorithm(words)
    config = parse(kind, words, "atrl train")
    if config.resume and config.out is not None:
        if not (config.out / CONFIG).is_file():
            if (config.out / CHECKPOINT).is_dir() and not any(word.startswith("@") for word in words):
                raise ConfigError(
                    f"got --resume --out {config.out}; it holds no {CONFIG}, so its settings are not known; put the "
                    "file back, or give the settings as @FILE"
                )
            return config
        # The run's own settings come first; what is typed now, in a file or as a flag, is meant to change them.
        saved = [f"@{config.out / CONFIG}", *words]
        before = config_file.load(config.out / CONFIG)
        kind = kind if named else _algorithm(saved)
        if kind.algorithm != before.algorithm:
            raise ConfigError(
                f"got atrl train {kind.algorithm} --resume with {config.out}, a run of {before.algorithm}; leave the "
                "algorithm out, or begin a new run in another --out"
            )
        config = parse(kind, saved, "atrl train")
        if (config.model, config.tiny) != (before.model, before.tiny):
            raise ConfigError(
                f"got --resume with another --model or --tiny than {config.folder} began with ({before.model}); a run "
                "goes on with the model in its checkpoint; leave them out, or begin a new run in another --out"
            )
        parts, parts_before = (
            (getattr(c.loss, "critic", None), c.loss.kl_weight > 0) for c in (config, before)
        )
        if parts != parts_before:
            raise ConfigError(
                "got --resume with another --loss.critic, or a --loss.kl-weight that was 0 before or is 0 now; the "
                f"checkpoint in {config.folder} has the critic and the reference model that it began with; leave them "
                "as they were, or begin a new run in another --out"
            )
    return config


def parse(kind: type[Kind], words: Sequence[str], program: str) -> Kind:
    """Words into a dataclass: files become flags, task parameters are gathered, tyro does the rest."""
    flags = _gathered(with_files(words, kind))
    return tyro.cli(kind, args=flags, prog=program, description=kind.__doc__)


def with_files(words: Sequence[str], kind: type) -> list[str]:
    """The flags of every `@file` first, in the order given, then all other words."""
    files = [word[1:] for word in words if word.startswith("@")]
    typed = [word for word in words if not word.startswith("@")]
    return [word for path in files for word in config_file.flags(config_file.read(path), kind, path)] + typed


def _algorithm(words: list[str]) -> type[TrainConfig]:
    """Take the first word where it is an algorithm; else ask the files, and then take the default."""
    if words and not words[0].startswith(("-", "@")):
        name = words.pop(0)
        if name not in ALGORITHMS:
            raise ConfigError(
                f"got 'atrl train {name}'; there is no algorithm of that name; use {near(name, ALGORITHMS)}, or flags"
            )
        return ALGORITHMS[name]
    named: dict[str, Any] = {}
    source = ""
    for word in words:
        if word.startswith("@") and "algorithm" in (data := config_file.read(word[1:])):
            named, source = data, word[1:]
    return config_file.algorithm(named, source)


def _gathered(words: Sequence[str]) -> list[str]:
    """All task parameters, in files and by hand, after one flag, for tyro keeps the last flag only; later ones win."""
    rest: list[str] = []
    pairs: dict[str, str] = {}
    given = previous = ""
    inside = False
    for word in words:
        name, equals, value = word.partition("=")
        if name in _SETS:
            given, inside = name, not equals
            if equals:
                pairs[value.partition("=")[0]] = value
        elif inside and not word.startswith("-") and (equals or previous in _SETS):
            pairs[name] = word
        else:
            inside = False
            rest.append(word)
        previous = word
    return rest + ([given, *pairs.values()] if given else [])
