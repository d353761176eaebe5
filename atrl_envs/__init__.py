"""Verifiable tasks as vectorised token-level environments whose rewards are tensor programs.

    env = atrl_envs.make("atrl/Addition-v0", num_envs=64, group_size=8)     # a TorchRL EnvBase
    one = gymnasium.make("atrl_envs:atrl/Addition-v0")                      # a gymnasium.Env
    atrl_envs.list_envs()

Importing this package registers the tasks that come with it and nothing heavy: torch is loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from atrl_envs.registry import EnvMaker, TaskSpec, UnknownEnvError, get_spec, list_envs, make, register
from atrl_envs.task import Problem, Task

if TYPE_CHECKING:
    from atrl_envs.bank import ProblemBank
    from atrl_envs.checks import TaskReport, check_task
    from atrl_envs.env import VerifiableEnv
    from atrl_envs.verify import MathVerifier, Verdict, verify_texts
    from atrl_envs.vocab import SpellingError, Vocab

_LAZY = {
    "ProblemBank": "atrl_envs.bank",
    "TaskReport": "atrl_envs.checks",
    "check_task": "atrl_envs.checks",
    "VerifiableEnv": "atrl_envs.env",
    "MathVerifier": "atrl_envs.verify",
    "Verdict": "atrl_envs.verify",
    "verify_texts": "atrl_envs.verify",
    "SpellingError": "atrl_envs.vocab",
    "Vocab": "atrl_envs.vocab",
}

__all__ = [
    "EnvMaker",
    "MathVerifier",
    "Problem",
    "ProblemBank",
    "SpellingError",
    "Task",
    "TaskReport",
    "TaskSpec",
    "UnknownEnvError",
    "Verdict",
    "VerifiableEnv",
    "Vocab",
    "check_task",
    "get_spec",
    "list_envs",
    "make",
    "register",
    "verify_texts",
]

register("atrl/Addition-v0", "atrl_envs.tasks.addition:Addition")
register("atrl/Subtraction-v0", "atrl_envs.tasks.subtraction:Subtraction")
register("atrl/Multiplication-v0", "atrl_envs.tasks.multiplication:Multiplication")
register("atrl/SumSteps-v0", "atrl_envs.tasks.sum_steps:SumSteps", max_new_tokens=192)
register("atrl/File-v0", "atrl_envs.tasks.file:File", max_new_tokens=64)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'atrl_envs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
