"""LoRA: a low-rank adapter is trained, and the model itself stays as it is (arXiv 2106.09685).

    add(model, LoRAConfig(r=8), seed=0)     # the model keeps its class; its own weights are frozen
    trainable(model)                        # {"model.layers.0.self_attn.q_proj.lora_A.default.weight": ...}
    with disabled(model):                   # what the model was before
        ...

The adapter is peft's, put in by transformers' own `add_adapter`, so whatever works on the model goes on working.
What is trained is what travels to workers and into checkpoints; the base is loaded where it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .complaints import ConfigError, near
from .config import LoRAConfig
from .model_check import ADAPTER_CONFIG

NAME = "default"
WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."  # peft's, before every name in a file


class NoBase(ConfigError):
    """The model that an adapter belongs to is not there."""


def add(model: Any, config: LoRAConfig, seed: int) -> None:
    """Give the model a fresh adapter, which changes nothing yet, and freeze everything else.

    Args:
        model: a transformers causal LM without one; `name_or_path` is what the adapter's file will call its base.
        config: with r > 0.
        seed: of the random half of the adapter.

    Raises:
        ConfigError: a target is no linear layer of the model.
    """
    from peft import LoraConfig

    layers = linear_layers(model)
    for target in config.targets:
        if target not in layers:
            raise ConfigError(
                f"got --lora.targets {target}; {type(model).__name__} has no linear layer of that name inside its "
                f"transformer; did you mean {near(target, layers)}?"
            )
    alpha = config.scale_alpha
    settings = LoraConfig(
        r=config.r,
        lora_alpha=int(alpha) if alpha == int(alpha) else alpha,  # type: ignore[arg-type]  # others expect whole numbers
        target_modules=sorted(config.targets or layers),
        lora_dropout=config.dropout,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _put_in(model, settings)


def load(model: Any, folder: Path) -> None:
    """Give the model, which is its base, the adapter in a folder.

    Raises:
        ConfigError: the folder holds an adapter of another kind, or one for another model.
    """
    from peft import LoraConfig
    from safetensors.torch import load_file

    settings = LoraConfig.from_pretrained(str(folder))
    settings.inference_mode = False
    with torch.random.fork_rng(devices=[]):
        _put_in(model, settings)
    saved = load_file(folder / WEIGHTS)
    parameters = {_saved_name(name): parameter for name, parameter in trainable(model).items()}
    different = [
        name
        for name in saved.keys() | parameters.keys()
        if name not in saved or name not in parameters or saved[name].shape != parameters[name].shape
    ]
    if different:
        raise ConfigError(
            f"got the adapter {folder}; {sorted(different)[0]} does not fit {type(model).__name__} from "
            f"{model.name_or_path}; it is of another model, or no plain LoRA adapter; put the right base in its place"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(saved[name])


def linear_layers(model: Any) -> list[str]:
    """Last names of the linear layers inside the transformer, as in `q_proj`; the output projection is none of them."""
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    found = (
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    )
    return sorted(dict.fromkeys(found))


def is_adapted(model: Any) -> bool:
    """Whether the model has an adapter."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name: all of a model, or those of its adapter."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def base_weights(model: Any) -> dict[str, nn.Parameter]:
    """The parameters of a model that are no adapter's, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if f".{NAME}." not in name}


@contextmanager
def disabled(model: Any) -> Iterator[None]:
    """The model computes what its base computes, inside. Build no graph across the border."""
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


def base_of(folder: Path) -> str:
    """What the adapter in a folder says it belongs to: a path or a name on the Hub.

    Raises:
        NoBase: it says nothing, or a path where nothing is.
    """
    name = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8")).get("base_model_name_or_path")
    mend = f'put it back, or write where it is now as "base_model_name_or_path" in {folder / ADAPTER_CONFIG}'
    if not name:
        raise NoBase(f"got the adapter {folder}; it does not say which model it belongs to; {mend}")
    if Path(name).is_absolute() and not Path(name).is_dir():
        raise NoBase(f"got the adapter {folder}; its base model {name} is not there any more; {mend}")
    return str(name)


def _put_in(model: Any, settings: Any) -> None:
    model.add_adapter(settings, adapter_name=NAME)
    for parameter in trainable(model).values():
        parameter.data = parameter.data.float()  # steps are small: bfloat16 would round them away
    model.eval()  # peft's dropout comes in training mode


def _saved_name(name: str) -> str:
    return _PREFIX + name.replace(f".{NAME}.", ".")
