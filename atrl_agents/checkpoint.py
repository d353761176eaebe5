"""Save and load a run: a transformers folder, and beside the weights what training needs to go on.

    save(folder / "checkpoint", model, vocab, state)      # replaced as a whole, or not at all
    model, vocab, state = load(folder / "checkpoint")

The folder is written under another name and renamed, so a kill at any moment leaves the old checkpoint
or the new one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from atrl_envs.vocab import Vocab

from . import lora, models
from .complaints import ConfigError
from .config import DType
from .config_check import SPARE
from .model_check import ADAPTER_CONFIG

STATE = "trainer_state.pt"
_FILES = "files"  # in the state: the names of the files beside it
_NEW, _OLD = ".new", SPARE


def save(folder: Path, model: Any, vocab: Vocab, state: dict[str, Any]) -> None:
    """Write model, tokenizer and trainer state.

    Args:
        folder: becomes a folder that `AutoModelForCausalLM.from_pretrained` loads; of a model with an adapter, the
            adapter alone is written, with the path or name of its base.
        state: of tensors, numbers, strings and containers of them (read back with weights_only).

    Raises:
        OSError: it could not be written; what was saved before is still there.
    """
    new, old = folder.with_name(folder.name + _NEW), folder.with_name(folder.name + _OLD)
    try:
        _write(new, model, vocab, state)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)  # half a checkpoint is of no use and takes room
        if not isinstance(error, Exception):
            raise
        # Each library has its own word for a full disk.
        raise OSError(f"the checkpoint was not saved in {folder}: {_one_line(error)}") from error
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.rename(folder, old)
    os.rename(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def _write(new: Path, model: Any, vocab: Vocab, state: dict[str, Any]) -> None:
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    with models.without_progress_bars():
        model.save_pretrained(new)
    vocab.tokenizer.save_pretrained(new)
    files = sorted(path.name for path in new.iterdir())
    torch.save({**state, _FILES: files}, new / STATE)
    for path in new.iterdir():
        _flush(path)


def load(folder: Path, dtype: DType = "float32") -> tuple[Any, Vocab, dict[str, Any]]:
    """Model, vocabulary and trainer state of a checkpoint.

    Raises:
        ConfigError: there is no checkpoint, it is a model without trainer state, a file of it is damaged, or the base
            model of an adapter is gone.
    """
    recover(folder)
    if not (folder / STATE).is_file():
        raise ConfigError(
            f"got --resume with {folder.parent}; {folder / STATE} does not exist; "
            "give --out the folder of a run that has saved one, or leave --resume out to start anew"
        )
    try:
        state = torch.load(folder / STATE, weights_only=True)
        for name in state.pop(_FILES, []):  # without one of them, a tokenizer may load and know no word
            if not (folder / name).is_file():
                raise FileNotFoundError(f"{name} is missing")
        if (folder / ADAPTER_CONFIG).is_file():
            lora.base_of(folder)  # no file here is damaged where the base is gone
        model, vocab = models.load(str(folder), dtype=dtype)
        return model, vocab, state
    except lora.NoBase:
        raise
    except Exception as error:  # of many kinds, whatever file is torn
        raise damaged(folder, error) from error


def damaged(folder: Path, error: Exception) -> ConfigError:
    """The complaint about a checkpoint that cannot be used."""
    return ConfigError(
        f"got --resume with {folder.parent}; its {folder.name} cannot be read, a file in it is damaged or of another "
        f"version ({_one_line(error)}); put back a copy of {folder}, or start anew with --overwrite"
    )


def recover(folder: Path) -> None:
    """Finish a save that was killed between its two renames."""
    old = folder.with_name(folder.name + _OLD)
    if not folder.exists() and old.exists():
        os.rename(old, folder)


def _one_line(error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said[:300]}"


def _flush(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
