"""Write a model in the Hub's layout: weights, tokenizer, and a card that says how it was made.

    export(Path("runs/mine/checkpoint"), Path("my-model"), run=Path("runs/mine"), merge=True)

What was written is loaded again by plain transformers before it gets its name, and must say the same.
"""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from . import lora, models
from .complaints import ConfigError
from .config_file import CONFIG
from .model_card import card

TOLERANCE = 1e-3  # nats: merging adds in another order, nothing more
_TOKENS = 32  # that are compared
_README = "README.md"
SUMMARY = "summary.json"


def export(model_folder: Path, out: Path, *, run: Path | None = None, merge: bool = False) -> float:
    """Write the model (or the adapter, unless it is to be merged) to a new folder.

    Args:
        model_folder: a transformers folder, an adapter's folder, or a GGUF file.
        out: becomes the folder; it must not exist.
        run: the run folder that the card tells about; None: it tells what the model was made from.
        merge: add the adapter to its base and write the whole.

    Returns:
        The largest difference, in nats, between log-probabilities of a few tokens before and after.

    Raises:
        ConfigError: `out` exists, or the model written is not the one that was read; nothing is left then.
    """
    if out.exists():
        raise ConfigError(f"got --out {out}; it exists already; give another --out, or move it away")
    with models.without_progress_bars():
        model, vocab = models.load(str(model_folder))
        adapted = lora.is_adapted(model)
        base = model.name_or_path if adapted else None
        expected = _log_probs(model)
        written = merged(model) if merge and adapted else model
        draft = out.with_name(f".{out.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            written.save_pretrained(draft)
            vocab.tokenizer.save_pretrained(draft)
            (draft / _README).write_text(
                card(
                    name=out.name,
                    settings=_read(run, CONFIG),
                    summary=_read(run, SUMMARY),
                    base=base if base is not None else str(model_folder) if run is None else None,
                    adapter=adapted and not merge,
                ),
                encoding="utf-8",
            )
            difference = _difference(draft, expected)
            draft.rename(out)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return difference


def merged(model: Any) -> Any:
    """A copy of a model with its adapter's product added to the weights, and without the adapter."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    whole = copy.deepcopy(model)
    for name, module in list(whole.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge()
            parent, _, last = name.rpartition(".")
            setattr(whole.get_submodule(parent), last, module.get_base_layer())
    del whole.peft_config
    whole._hf_peft_config_loaded = False
    return whole.requires_grad_(True)


def _difference(folder: Path, expected: torch.Tensor) -> float:
    """Largest difference in nats of what plain transformers loads from the folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(folder)
    loaded = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    difference = float((_log_probs(loaded) - expected).abs().max())
    if not difference <= TOLERANCE:
        raise ConfigError(
            f"got a model that says something else when it is loaded again (log-probabilities differ by "
            f"{difference:.3g} nats, more than {TOLERANCE:g}); nothing was written; report this with the versions of "
            "transformers and peft"
        )
    return difference


@torch.no_grad()
def _log_probs(model: Any) -> torch.Tensor:
    """Log-probabilities `[T, V]` after each of a few tokens, which are the same for every call."""
    size = model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(1, _TOKENS + 1) * 7919 % size
    logits: torch.Tensor = model(input_ids=ids.unsqueeze(0), use_cache=False).logits[0]
    return logits.float().log_softmax(-1)


def _read(run: Path | None, name: str) -> dict[str, Any]:
    if run is None or not (run / name).is_file():
        return {}
    found = json.loads((run / name).read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}
