"""Language-model policies, losses and the training loop; names are loaded when they are first used.

from atrl_agents import GRPOConfig, train

summary = train(GRPOConfig(steps=100, seed=1))
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import advantages as advantages
    from . import surrogates as surrogates
    from .config import EnvConfig as EnvConfig
    from .config import GRPOConfig as GRPOConfig
    from .config import M2POConfig as M2POConfig
    from .config import PPOConfig as PPOConfig
    from .losses import GRPOLoss as GRPOLoss
    from .losses import M2POLoss as M2POLoss
    from .losses import PPOLoss as PPOLoss
    from .policies.transformers_policy import TransformersPolicy as TransformersPolicy
    from .policies.vllm_policy import VLLMPolicy as VLLMPolicy
    from .train import train as train
    from .value_model import ValueModel as ValueModel

_HOMES = {
    "EnvConfig": "config",
    "GRPOConfig": "config",
    "GRPOLoss": "losses",
    "M2POConfig": "config",
    "M2POLoss": "losses",
    "PPOConfig": "config",
    "PPOLoss": "losses",
    "TransformersPolicy": "policies.transformers_policy",
    "VLLMPolicy": "policies.vllm_policy",
    "ValueModel": "value_model",
    "advantages": "",
    "surrogates": "",
    "train": "train",
}
__all__ = [
    "EnvConfig",
    "GRPOConfig",
    "GRPOLoss",
    "M2POConfig",
    "M2POLoss",
    "PPOConfig",
    "PPOLoss",
    "TransformersPolicy",
    "VLLMPolicy",
    "ValueModel",
    "advantages",
    "surrogates",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if not home:
        return importlib.import_module(f".{name}", __name__)
    return getattr(importlib.import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """`train` names a function here, also after the import system has bound the submodule of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "train" and isinstance(value, ModuleType):
            value = value.train
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
