"""A real model: our pipeline against TRL's GRPOTrainer, the same model, adapter, task and batch, for equal wall time.

    python benchmarks/realmodel.py --model FOLDER --trl-python PYTHON_WITH_TRL     # results/realmodel.json, a table

Both train a LoRA adapter (r 8, alpha 16) with GRPO on sums asked in words, at one learning rate, with two threads in
all. We make `--updates` updates; TRL then trains for as many seconds as that took. Neither clock counts loading and
evaluation. Held-out accuracy is greedy; each side draws its own problems of the same held-out ones. Memory is the most
that all processes of a side held at one time, what they share counted once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import tyro

from atrl_agents.intervals import wilson

MODES = {
    "atrl sync": ("--mode", "sync", "--threads.trainer", "2"),
    "atrl async": ("--mode", "async", "--threads.trainer", "1", "--threads.worker", "1"),
}


@dataclass(frozen=True)
class Options:
    """What is measured."""

    model: str
    """A folder in transformers' format."""
    trl_python: str = sys.executable
    """An interpreter that has trl and peft."""
    modes: tuple[str, ...] = ("atrl sync", "atrl async")
    peer: tuple[str, ...] = ()
    """Further words for benchmarks/trl_peer.py, as in `--generation-rows 64`."""
    repetitions: int = 1
    updates: int = 40
    prompts: int = 16
    samples: int = 8
    learning_rate: float = 3e-4
    problems: int = 500
    """Held-out problems of each evaluation."""
    import_: str = "benchmarks.question_sums"
    env_id: str = "QuestionSums-v0"


def main(options: Options) -> None:
    harness.use_checkout()
    seen: dict[str, list[dict[str, Any]]] = {}
    for seed in range(options.repetitions):
        with tempfile.TemporaryDirectory() as folder:
            seconds = 0.0
            for mode in options.modes:
                row = ours(options, mode, seed, Path(folder) / mode.replace(" ", "-"))
                seconds = max(seconds, row["seconds"])
                seen.setdefault(mode, []).append(row)
            seen.setdefault("trl", []).append(trl(options, seed, seconds, Path(folder) / "trl.json"))
        rows = [summary(side, of_side) for side, of_side in seen.items()]
        harness.write(
            "realmodel", {"model": Path(options.model).name, "updates": options.updates, "rows": rows}
        )
        print(harness.table(rows), flush=True)


def ours(options: Options, mode: str, seed: int, run: Path) -> dict[str, Any]:
    """One run of `atrl train`."""
    words = [
        *("train", "grpo", "--import", options.import_, "--env.id", options.env_id, "--model", options.model),
        *("--lora.r", "8", "--lora.alpha", "16", "--warmup-steps", "0", "--steps", str(options.updates)),
        *("--prompts-per-batch", str(options.prompts), "--samples-per-prompt", str(options.samples)),
        *("--optim.learning-rate", str(options.learning_rate), "--optim.schedule", "constant"),
        *(
            "--optim.ramp-steps",
            "1",
            "--optim.betas",
            "0.9",
            "0.999",
            "--save-every",
            "0",
            "--eval-every",
            "0",
        ),
        *("--eval-problems", str(options.problems), "--seed", str(seed), "--out", str(run), *MODES[mode]),
    ]
    peak = harness.peak_memory([sys.executable, "-m", "atrl_agents.cli", *words], timeout=7200)
    found = json.loads((run / "summary.json").read_text())
    return {
        "seconds": found["train_seconds"],
        "updates": found["steps"],
        "completions_per_second": found["completions_per_second"],
        "peak_gb": peak / 1e9,
        "before": found["accuracy_before"],
        "after": found["accuracy_after"],
        "problems": found["eval_problems"],
    }


def trl(options: Options, seed: int, seconds: float, out: Path) -> dict[str, Any]:
    """One run of the peer, for so many seconds."""
    words = [
        *("--model-folder", options.model, "--imports", options.import_, "--env-id", options.env_id),
        *("--lora-r", "8", "--lora-alpha", "16", "--lr", str(options.learning_rate), "--seed", str(seed)),
        *("--prompts-per-batch", str(options.prompts), "--samples-per-prompt", str(options.samples)),
        *("--updates", "10000", "--seconds", str(seconds), "--eval-every", "10000", "--threads", "2"),
        *("--eval-problems", str(options.problems), "--out", str(out), *options.peer),
    ]
    peak = harness.peak_memory([options.trl_python, str(harness.HERE / "trl_peer.py"), *words], timeout=7200)
    found = json.loads(out.read_text())
    accuracy = [row["accuracy"] for row in found["evaluations"]]
    return {
        "seconds": found["train_seconds"],
        "updates": len(found["updates"]),
        "completions_per_second": sum(row["completions"] for row in found["updates"])
        / found["train_seconds"],
        "peak_gb": peak / 1e9,
        "before": accuracy[0],
        "after": accuracy[-1],
        "problems": options.problems,
    }


def summary(side: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of a side: spreads over the repetitions, and Wilson's interval of all their problems together."""
    problems = sum(run["problems"] for run in runs)
    low, high = wilson(round(sum(run["after"] * run["problems"] for run in runs)), problems)
    spreads = {
        name: harness.spread([float(run[name]) for run in runs]) for name in runs[0] if name != "problems"
    }
    return {"side": side, **spreads, "after_interval": f"{low:.3f} to {high:.3f}"}


if __name__ == "__main__":
    main(tyro.cli(Options))
