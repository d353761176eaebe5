"""Settings in a file: the config of a run as JSON, and any JSON or TOML file as flags.

    save(config, folder)                       # DIR/config.json
    config = load(folder / "config.json")      # the same config again
    flags(read("fast.toml"), GRPOConfig, "fast.toml")     # ["--steps", "100", "--env.set", "limit=1000"]

Unknown keys are errors that name the file and the nearest keys. `resume` and `overwrite` are acts and not
settings: they are never saved.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .complaints import ConfigError, near
from .config import ALGORITHMS, TrainConfig

CONFIG = "config.json"
_ACTS = ("resume", "overwrite")
_FLAG_NAMES = {"env.kwargs": "env.set", "env.imports": "import"}


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """The config as JSON can hold it, with the algorithm's name first."""
    plain = {name: value for name, value in dataclasses.asdict(config).items() if name not in _ACTS}
    return {"algorithm": config.algorithm, **json.loads(json.dumps(plain, default=str))}


def save(config: TrainConfig, folder: Path) -> Path:
    """Write `folder/config.json` (whole or not at all)."""
    path = folder / CONFIG
    write_whole(path, json.dumps(to_dict(config), indent=2) + "\n")
    return path


def write_whole(path: Path, text: str) -> None:
    """Replace the file at `path` in one step, so that a reader sees the old text or the new."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    except BaseException:  # a full disk, say: half a draft is of no use and takes room
        draft.unlink(missing_ok=True)
        raise


def load(path: Path | str) -> TrainConfig:
    """The config that `save` wrote. Errors: ConfigError for a missing file or an unknown key."""
    data = read(path)
    return _build(algorithm(data, str(path)), data, str(path), "")


def read(path: Path | str) -> dict[str, Any]:
    """The keys of a .toml or .json file. Errors: ConfigError when there is none or it is no such file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            f"got @{path}; it cannot be read ({error.strerror}); give a .toml or .json file"
        ) from None
    except ValueError as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigError(f"got @{path}; it is not {kind}: {error}; mend that line") from None
    if not isinstance(data, dict):
        raise ConfigError(f"got @{path}; it holds no keys; write settings as key and value")
    return data


def algorithm(data: Mapping[str, Any], source: str) -> type[TrainConfig]:
    """The config class that the key `algorithm` names; the first one where there is no such key."""
    name = data.get("algorithm", next(iter(ALGORITHMS)))
    if name not in ALGORITHMS:
        raise ConfigError(
            f"got algorithm = {name!r} in {source}; it is unknown; use one of {', '.join(ALGORITHMS)}"
        )
    return ALGORITHMS[name]


def flags(data: Mapping[str, Any], kind: type, source: str, prefix: str = "") -> list[str]:
    """The file's keys as command line words, in the file's order; tyro checks the values."""
    words: list[str] = []
    for key, value in _known(data, kind, source, prefix):
        name = _FLAG_NAMES.get(prefix + key, prefix + key).replace("_", "-")
        inner = _dataclass_of(kind, key)
        if inner is not None:
            words += flags(_table(value, source, name), inner, source, f"{prefix}{key}.")
        elif name == "import":
            words += [word for item in _as_list(value) for word in ("--import", str(item))]
        elif isinstance(value, dict):
            words += [f"--{name}", *(f"{k}={_word(v)}" for k, v in value.items())] if value else []
        elif isinstance(value, bool):
            words.append(f"--{name}" if value else f"--{_negated(name)}")
        else:
            words += [f"--{name}", *map(_word, _as_list(value))]
    return words


def _known(data: Mapping[str, Any], kind: type, source: str, prefix: str) -> Iterable[tuple[str, Any]]:
    """The file's items under their field names. Errors: ConfigError for a key that is none."""
    fields = {field.name for field in dataclasses.fields(kind)}
    aliases = {"set": "kwargs", "import": "imports"} if "kwargs" in fields else {}
    for key, value in data.items():
        if key == "algorithm" and not prefix:
            continue
        name = aliases.get(key, key).replace("-", "_")
        if name not in fields:
            raise ConfigError(
                f"got key '{prefix}{key}' in {source}; there is no such setting; "
                f"did you mean {', '.join(prefix + n for n in near(name, fields).split(', '))}?"
            )
        yield name, value


def _dataclass_of(kind: type, name: str) -> type | None:
    hint = typing.get_type_hints(kind)[name]
    return hint if dataclasses.is_dataclass(hint) and isinstance(hint, type) else None


def _table(value: Any, source: str, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"got {name} = {value!r} in {source}; it is a table of settings; write [{name}]")
    return value


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _word(value: Any) -> str:
    if isinstance(value, bool | None):
        return str(value)
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def _negated(name: str) -> str:
    head, dot, last = name.rpartition(".")
    return f"{head}{dot}no-{last}"


def _build(kind: type, data: Mapping[str, Any], source: str, prefix: str) -> Any:
    """The dataclass `kind` from plain JSON values, its inner dataclasses too."""
    values: dict[str, Any] = {}
    hints = typing.get_type_hints(kind)
    for name, value in _known(data, kind, source, prefix):
        inner = _dataclass_of(kind, name)
        if inner is not None:
            value = _build(inner, _table(value, source, prefix + name), source, f"{prefix}{name}.")
        elif isinstance(value, list) and typing.get_origin(hints[name]) is tuple:
            value = tuple(value)
        elif isinstance(value, str) and _accepts(hints[name], Path):
            value = Path(value)
        values[name] = value
    return kind(**values)


def _accepts(hint: Any, kind: type) -> bool:
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return kind in parts
