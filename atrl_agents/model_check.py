"""What `--model` may name, told apart without loading it: tiny, a folder, a GGUF file, a model on the Hub.

kind_of("tiny")                              # "tiny"
kind_of("runs/one/checkpoint")               # "folder"; "adapter" where it is the checkpoint of a LoRA run
kind_of("Qwen/Qwen2.5-0.5B-Instruct")        # "hub"
check_model(config)                          # ConfigError with one clear message, or nothing
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import typing
from pathlib import Path
from typing import Any, Literal

from .complaints import ConfigError
from .config import LoRAConfig, TrainConfig
from .config_file import CONFIG

TINY = "tiny"
CHECKPOINT = "checkpoint"
ADAPTER_CONFIG = "adapter_config.json"
Kind = Literal["tiny", "gguf", "folder", "adapter", "hub", "none"]
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_LISTED = 8  # models of the cache in a message


def kind_of(name: str) -> Kind:
    """What a model's name stands for; `none` for a path where nothing is. Nothing is opened."""
    path = Path(name)
    if name == TINY:
        return "tiny"
    if path.is_dir():
        return "adapter" if (path / ADAPTER_CONFIG).is_file() else "folder"
    if path.suffix.lower() == ".gguf":
        return "gguf"
    return "hub" if _HUB_NAME.fullmatch(name) and not path.exists() else "none"


def check_model(config: TrainConfig) -> None:
    """Refuse a model that cannot be loaded, and settings of LoRA that do not go with it."""
    kind = kind_of(config.model)
    {
        "tiny": lambda name: None,
        "gguf": _check_gguf,
        "folder": _check_folder,
        "adapter": _check_adapter,
        "hub": check_hub,
        "none": lambda name: _fail(name, "there is nothing of that name", _alternatives()),
    }[kind](config.model)
    _check_lora(config, kind)


def check_hub(name: str) -> None:
    """Whether a model is in the Hub's cache, or the Hub gives it.

    Errors: ConfigError that names what there is instead.
    """
    from huggingface_hub import constants, hf_hub_download

    if name in cached_models():
        return
    if "/" not in name:  # more likely misspelled than one of the Hub's few names without an owner
        _fail(name, f"it is neither '{TINY}' nor a folder nor in the Hub's cache", _alternatives())
    if constants.HF_HUB_OFFLINE:
        _fail(name, "it is no folder, not in the Hub's cache, and HF_HUB_OFFLINE is set", _alternatives())
    try:
        hf_hub_download(name, CONFIG)
    except Exception as error:  # of many kinds: no network, no such model, no access
        said = str(error).strip().partition("\n")[0][:200]
        _fail(
            name,
            f"it is no folder, not in the Hub's cache, and the Hub did not give it ({type(error).__name__}: {said})",
            _alternatives(),
        )


def cached_models() -> list[str]:
    """Names of the models in the Hub's cache on this machine."""
    from huggingface_hub import constants

    cache = Path(os.path.expanduser(constants.HF_HUB_CACHE))
    folders = {path.parents[2].name for path in cache.glob(f"models--*/snapshots/*/{CONFIG}")}
    return sorted(folder.removeprefix("models--").replace("--", "/") for folder in folders)


def _alternatives() -> str:
    cached = cached_models()
    more = f" and {len(cached) - _LISTED} more" if len(cached) > _LISTED else ""
    there = (
        f"one of the Hub's cache: {', '.join(cached[:_LISTED])}{more}"
        if cached
        else "(the Hub's cache is empty)"
    )
    return (
        f"give '{TINY}', a folder written by transformers' save_pretrained, the path of a GGUF file, or {there}"
        if cached
        else f"give '{TINY}', a folder written by transformers' save_pretrained, or the path of a GGUF file {there}"
    )


def _check_gguf(name: str) -> None:
    try:
        with open(name, "rb") as file:
            good = file.read(4) == b"GGUF"
    except OSError as error:
        _fail(name, f"that file cannot be read ({error.strerror})", _alternatives())
    if not good:
        _fail(name, "the file does not begin as a GGUF file does", _alternatives())
    if importlib.util.find_spec("gguf") is None:
        _fail(name, "the package gguf is not installed", "pip install gguf")


def _check_folder(name: str) -> None:
    folder = Path(name)
    do = f"give '{TINY}' or a folder written by transformers' save_pretrained"
    if not (folder / CONFIG).is_file():
        _fail(name, f"its folder holds no {CONFIG}", do)
    try:
        saved = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        _fail(name, f"its {CONFIG} cannot be read ({error})", do)
    if isinstance(saved, dict) and "model_type" in saved:
        return
    if not (isinstance(saved, dict) and "algorithm" in saved):
        _fail(name, f"its {CONFIG} names no model_type, so it is no transformers model", do)
    if (folder / CHECKPOINT / CONFIG).is_file() or (folder / CHECKPOINT / ADAPTER_CONFIG).is_file():
        _fail(name, "it is a run", f"did you mean {folder / CHECKPOINT}?")
    _fail(name, f"it is a run that saved no {CHECKPOINT}/", do)


def _check_adapter(name: str) -> None:
    run = Path(name).parent if Path(name).name == CHECKPOINT else Path(name)
    _fail(
        name,
        "it is an adapter, and a run begins with a whole model",
        f"make one by `atrl export {run} --merge --out DIR` and give --model DIR, or go on with its run by --resume",
    )


def _check_lora(config: TrainConfig, kind: Kind) -> None:
    lora, flag = config.lora, f"--lora.r {config.lora.r}"
    if not lora.r:
        if lora != LoRAConfig():
            raise ConfigError(
                "got settings of --lora without a rank; no adapter is made then; add --lora.r 8, or leave them out"
            )
        return
    if kind == "tiny":
        raise ConfigError(
            f"got {flag} with --model {TINY}; an adapter refines a pretrained model, and '{TINY}' begins with random "
            "weights; leave --lora.r out, or give --model a pretrained one"
        )
    if kind == "gguf":
        raise ConfigError(
            f"got {flag} with --model {config.model}; an adapter's file must name a base that others can load; make a "
            f"folder of it by `atrl export {config.model} --out DIR` and give --model DIR"
        )
    if importlib.util.find_spec("peft") is None:
        raise ConfigError(f"got {flag}; the package peft is not installed; pip install peft")
    if config.loss.kl_weight and config.warmup_steps:
        raise ConfigError(
            f"got {flag} with --loss.kl-weight {config.loss.kl_weight} and a warm start; the divergence is taken from "
            "the model without its adapter, and a warm start would train the adapter first; add --warmup-steps 0, or "
            "leave --loss.kl-weight out"
        )


def _fail(got: Any, wrong: str, do: str) -> typing.NoReturn:
    raise ConfigError(f"got --model {got}; {wrong}; {do}")
