"""What we run inside vLLM's worker process: it takes weights from our mailbox by path, and leaves with its owner.

    llm = LLM(model=folder, worker_extension_cls="atrl_agents.policies.vllm_worker.EngineSide")
    llm.collective_rpc("atrl_take_weights", args=(str(mailbox.path), 2))

vLLM mixes the class into its worker; every method's name begins with `atrl_`, so that it hides none of vLLM's.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from pathlib import Path
from typing import Any

import torch

from atrl_collectors.fingerprints import fingerprint
from atrl_collectors.weights import WeightMailbox, WeightUpdate

from ..canary import CANARY

_PREFIX = "base_model.model."  # of every name in an adapter file as PEFT writes it


class EngineSide:
    """Methods for `collective_rpc`; `self` is vLLM's worker."""

    model_runner: Any

    def atrl_watch(self, owner: int) -> int:
        """End this process, and the engine core above it, once process `owner` is gone; returns this process's id.

        vLLM's own processes outlive an owner that was killed, with all of their memory.
        """
        threading.Thread(target=_leave_with, args=(owner, os.getppid()), daemon=True).start()
        return os.getpid()

    def atrl_take_weights(self, path: str, newer_than: int) -> dict[str, Any] | None:
        """Load the newest publication of the mailbox at `path` into the model, if newer: all of its parameters.

        Returns what was read (see `_receipt`), or None where there is nothing newer.

        Raises:
            RuntimeError: parameters of the model were not among what was published.
        """
        update = self._atrl_poll(path, newer_than)
        if update is None:
            return None
        weights = [(name, tensor) for name, tensor in update.tensors.items() if name != CANARY]
        missing = _reload(self.model_runner, weights)
        return _receipt(update) | {"missing": missing}

    def atrl_write_adapter(
        self, path: str, newer_than: int, folder: str, r: int, alpha: float
    ) -> dict[str, Any] | None:
        """Write the newest publication, if newer, as an adapter that vLLM loads by name; returns as above.

        The fingerprint is recomputed over what the file holds, read back.
        """
        update = self._atrl_poll(path, newer_than)
        if update is None:
            return None
        tensors = {name: tensor for name, tensor in update.tensors.items() if name != CANARY}
        again = _write_adapter(Path(folder) / f"version-{update.version}", tensors, r, alpha)
        held = fingerprint({**again, CANARY: update.tensors[CANARY]} if CANARY in update.tensors else again)
        return _receipt(update) | {"fingerprint": held, "missing": []}

    def _atrl_poll(self, path: str, newer_than: int) -> WeightUpdate | None:
        kept: dict[str, WeightMailbox] = self.__dict__.setdefault("_atrl_mailboxes", {})
        if path not in kept:
            kept[path] = WeightMailbox.open(path)
        return kept[path].poll(newer_than)


def _receipt(update: WeightUpdate) -> dict[str, Any]:
    """What was read: version, fingerprint (recomputed over the bytes read), names, and the published canary."""
    canary = update.tensors.get(CANARY)
    return {
        "number": update.version,
        "fingerprint": update.fingerprint,
        "names": [name for name in update.tensors if name != CANARY],
        "canary": None if canary is None else canary.tolist(),
    }


def _reload(runner: Any, weights: list[tuple[str, torch.Tensor]]) -> list[str]:
    """Put weights into vLLM's model; returns the names of parameters that got none.

    On a CPU vLLM packs each matrix for its kernels and drops the plain one, so the layers are restored, loaded and
    packed again (its layerwise reload). A head tied to the embeddings is packed too, but no tensor of its own arrives
    and the reload leaves the old packing in place: it is packed again here.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    model, config = runner.get_model(), runner.vllm_config.model_config
    tied = bool(getattr(config.hf_config.get_text_config(), "tie_word_embeddings", False))
    # The loader keeps references to what it is given until the layer is complete; the mailbox's copy stays valid.
    initialize_layerwise_reload(model)
    try:
        loaded = set(model.load_weights(iter(weights)) or ())
    finally:
        finalize_layerwise_reload(model, config)
    heads = {name for name, module in model.named_modules() if isinstance(module, ParallelLMHead)}
    if tied:
        for name in heads:
            head = model.get_submodule(name)
            head.quant_method.process_weights_after_loading(head)
    return sorted(
        name
        for name, _ in model.named_parameters()
        if name not in loaded and not (tied and name.rpartition(".")[0] in heads)
    )


def _write_adapter(
    folder: Path, tensors: dict[str, torch.Tensor], r: int, alpha: float
) -> dict[str, torch.Tensor]:
    """An adapter folder in PEFT's format; returns its tensors as read back, under the names that were published."""
    from safetensors.torch import load_file, save_file

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "adapter_model.safetensors"
    named = {_PREFIX + name.replace(".default.", "."): name for name in tensors}
    save_file({theirs: tensors[ours].contiguous() for theirs, ours in named.items()}, file)
    targets = sorted({name.split(".lora_")[0].rpartition(".")[2] for name in tensors})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": r,
        "lora_alpha": alpha,
        "target_modules": targets,
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    again = load_file(file)
    return {ours: again[theirs] for theirs, ours in named.items()}


def _leave_with(owner: int, core: int) -> None:
    try:
        handle = os.pidfd_open(owner)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll()  # readable once the process has ended, reaped or not
    except ProcessLookupError:
        pass
    if os.getppid() == core:
        os.kill(core, signal.SIGKILL)
    os._exit(1)
