"""Verifiable tasks as vectorised token-level environments whose rewards are tensor programs.

    env = atrl_envs.make("atrl/Addition-v0", num_envs=64, group_size=8)     # a TorchRL EnvBase
    one = gymnasium.make("atrl_envs:atrl/Addition-v0")                      # a gymnasium.Env
    atrl_envs.list_envs()

Importing this package registers the tasks that come with it and nothing heavy: torch is loaded on first use.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from atrl_envs import discovery
from atrl_envs.registry import EnvMaker, TaskSpec, UnknownEnvError, get_spec, list_envs, make, register
from atrl_envs.task import Problem, Task

if TYPE_CHECKING:
    from atrl_envs.bank import ProblemBank
    from atrl_envs.checks import TaskReport, check_task
    from atrl_envs.env import VerifiableEnv
    from atrl_envs.verify import ExactVerifier, MathVerifier, PatternVerifier, Verdict, verify_texts
    from atrl_envs.vocab import SpellingError, Vocab

_LAZY = {
    "ProblemBank": "atrl_envs.bank",
    "TaskReport": "atrl_envs.checks",
    "check_task": "atrl_envs.checks",
    "VerifiableEnv": "atrl_envs.env",
    "ExactVerifier": "atrl_envs.verify",
    "MathVerifier": "atrl_envs.verify",
    "PatternVerifier": "atrl_envs.verify",
    "Verdict": "atrl_envs.verify",
    "verify_texts": "atrl_envs.verify",
    "SpellingError": "atrl_envs.vocab",
    "Vocab": "atrl_envs.vocab",
}

__all__ = [
    "EnvMaker",
    "ExactVerifier",
    "MathVerifier",
    "PatternVerifier",
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
register("atrl/Carries-v0", "atrl_envs.tasks.carries:Carries")
register("atrl/Decimals-v0", "atrl_envs.tasks.decimals:Decimals")
register("atrl/Fractions-v0", "atrl_envs.tasks.fraction_arithmetic:Fractions")
register("atrl/Brackets-v0", "atrl_envs.tasks.brackets:Brackets")
register("atrl/LinearEquation-v0", "atrl_envs.tasks.linear_equation:LinearEquation")
register("atrl/GcdLcm-v0", "atrl_envs.tasks.gcd_lcm:GcdLcm")
register("atrl/Modular-v0", "atrl_envs.tasks.modular:Modular")
register("atrl/BaseConversion-v0", "atrl_envs.tasks.base_conversion:BaseConversion")
register("atrl/Comparison-v0", "atrl_envs.tasks.comparison:Comparison", max_new_tokens=4)
register("atrl/Sorting-v0", "atrl_envs.tasks.sorting:Sorting")
register("atrl/Statistics-v0", "atrl_envs.tasks.list_statistics:Statistics")
register("atrl/Countdown-v0", "atrl_envs.tasks.countdown:Countdown", max_new_tokens=32)
register("atrl/WordProblems-v0", "atrl_envs.tasks.word_problems:WordProblems")
register("atrl/GSM8K-v0", "atrl_envs.tasks.gsm8k:GSM8K", max_new_tokens=512)
register("atrl/MATH-v0", "atrl_envs.tasks.math:MATH", max_new_tokens=1024)
discovery.announce()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "__version__":
        return importlib.metadata.version("atrl")
    raise AttributeError(f"module 'atrl_envs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
