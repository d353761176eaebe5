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

from . import models

STATE = "trainer_state.pt"
_NEW, _OLD = ".new", ".old"


def save(folder: Path, model: Any, vocab: Vocab, state: dict[str, Any]) -> None:
    """Write model, tokenizer and trainer state.

    Args:
        folder: becomes a folder that `AutoModelForCausalLM.from_pretrained` loads.
        state: of tensors, numbers, strings and containers of them (read back with weights_only).
    """
    new, old = folder.with_name(folder.name + _NEW), folder.with_name(folder.name + _OLD)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    _quietly(model.save_pretrained, new)
    vocab.tokenizer.save_pretrained(new)
    torch.save(state, new / STATE)
    for path in new.iterdir():
        _flush(path)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.rename(folder, old)
    os.rename(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def load(folder: Path) -> tuple[Any, Vocab, dict[str, Any]]:
    """Model, vocabulary and trainer state of a checkpoint.

    Raises:
        FileNotFoundError: there is no checkpoint, or it is a model without trainer state.
    """
    recover(folder)
    if not (folder / STATE).is_file():
        raise FileNotFoundError(
            f"No checkpoint to resume from: {folder / STATE} does not exist. "
            "Give --out the folder of a run that has saved one, or leave --resume out to start anew."
        )
    model, vocab = models.load(str(folder))
    return model, vocab, torch.load(folder / STATE, weights_only=True)


def recover(folder: Path) -> None:
    """Finish a save that was killed between its two renames."""
    old = folder.with_name(folder.name + _OLD)
    if not folder.exists() and old.exists():
        os.rename(old, folder)


def _flush(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _quietly(save_pretrained: Any, folder: Path) -> None:
    """Without transformers' progress bar, which would cut through the console."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        save_pretrained(folder)
    finally:
        if shown:
            logging.enable_progress_bar()
