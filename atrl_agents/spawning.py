"""Whether this process can start workers that find what it has registered, asked before any long work.

    check(config)      # ConfigError where a spawned process could not import the main module, or the task in it

A spawned worker starts a new interpreter and imports the main module's file again; a script read from
standard input or typed into a session has none.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .complaints import ConfigError
from .config import TrainConfig


def check(config: TrainConfig) -> None:
    """Raise ConfigError if the rollout workers of this config could not start or not find their task."""
    if not config.workers:
        return
    main = sys.modules.get("__main__")
    name = getattr(main, "__file__", None)
    if name is not None and getattr(main, "__spec__", None) is None and not Path(name).is_file():
        raise ConfigError(
            f"got an asynchronous run from a script that is no file ({name}); rollout workers import it again; "
            "save the script to a file, or use mode='sync'"
        )
    if name is None and _task_module(config) == "__main__":
        raise ConfigError(
            f"got an asynchronous run of {config.env.name}, whose task is defined in an interactive session; rollout "
            "workers cannot import it; put the task into a module of its own and import that, or use mode='sync'"
        )


def _task_module(config: TrainConfig) -> str:
    import atrl_envs

    task = type(atrl_envs.get_spec(config.env.id).build_task(**config.env.kwargs))
    return task.__module__
