"""Parameters of a task from words: `limit=1000` becomes 1000 because the task declares `limit: int`.

    typed_parameters("atrl/Addition-v0", {"digits": "3"})      # {"digits": 3}

Values that are no strings (from Python, or from a saved config) pass unchanged and are checked likewise.
"""

from __future__ import annotations

import contextlib
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .complaints import ConfigError

# Options of `atrl_envs.make` that concern the problems and have no flag of their own.
_PROBLEM_OPTIONS: dict[str, Any] = {
    "style": str,
    "max_prompt_length": int,
    "bank_size": int,
    "test_fraction": float,
}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def typed_parameters(
    id: str, given: Mapping[str, Any], *, id_flag: str = "--env.id", set_flag: str = "--env.set"
) -> dict[str, Any]:
    """`given` in the types that the task of `id` declares, checked by the task itself.

    Complaints name `id_flag` and `set_flag`: what was typed (an id without a flag has an empty one).

    Errors: ConfigError for an unknown id, an unknown parameter (it lists the valid ones), or a bad value.
    """
    from atrl_envs.registry import UnknownEnvError, get_spec

    try:
        spec = get_spec(id)
    except UnknownEnvError as error:
        raise ConfigError(f"got {f'{id_flag} {id}'.strip()}; {error}") from None
    hints = {**_hints(spec.task_class()), **_PROBLEM_OPTIONS}
    typed = {name: _convert(name, value, hints.get(name, Any), set_flag) for name, value in given.items()}
    try:
        spec.build_task(**{name: value for name, value in typed.items() if name not in _PROBLEM_OPTIONS})
    except (TypeError, ValueError, OSError) as error:
        words = " ".join(f"{name}={value}" for name, value in given.items())
        raise ConfigError(f"got {set_flag} {words} for {id}; {error}") from error
    return typed


def _hints(task: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(task)
    except NameError:  # an annotation that only a type checker can see
        return {}


def _convert(name: str, value: Any, hint: Any, set_flag: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_value(value, hint)
    except ValueError:
        wanted = getattr(hint, "__name__", str(hint))
        raise ConfigError(
            f"got {set_flag} {name}={value}; '{value}' is no {wanted}; give {name} a value of that type"
        ) from None


def parse_value(text: str, hint: Any) -> Any:
    """`text` as a value of the annotated type. Errors: ValueError when it is none."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is str:
        return text
    if hint is bool:
        if text.lower() not in _TRUTH:
            raise ValueError(text)
        return _TRUTH[text.lower()]
    if hint in (int, float, Path):
        return hint(text)
    if origin is typing.Literal:
        return next(
            (choice for choice in arguments if str(choice) == text), text
        )  # the task says what it wants
    if origin in (typing.Union, types.UnionType):
        return _first_that_fits(text, arguments)
    if origin in (tuple, list):
        inner = arguments[0] if arguments else Any
        parts = json.loads(text) if text.startswith("[") else [part for part in text.split(",") if part]
        return origin(parse_value(part, inner) if isinstance(part, str) else part for part in parts)
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def _first_that_fits(text: str, hints: tuple[Any, ...]) -> Any:
    if type(None) in hints and text.lower() in ("none", "null"):
        return None
    # str takes anything, so it comes last
    for hint in sorted((hint for hint in hints if hint is not type(None)), key=lambda hint: hint is str):
        with contextlib.suppress(ValueError):
            return parse_value(text, hint)
    raise ValueError(text)
