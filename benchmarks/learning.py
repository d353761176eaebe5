"""Does it learn? The default run on several seeds, in both modes: accuracy before and after, and how long it took.

    python benchmarks/learning.py                 # results/learning.json, figures/learning.png, a table
    python benchmarks/learning.py --seeds 0 --modes async

Runs are interleaved: seed 0 sync, seed 0 async, seed 1 sync, ...
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


@dataclass(frozen=True)
class Options:
    seeds: tuple[int, ...] = (0, 1, 2)
    modes: tuple[str, ...] = ("sync", "async")
    train: str = ""
    """Further words for `atrl train`."""


def main(options: Options) -> None:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folders = []
        for seed in options.seeds:
            for mode in options.modes:
                folder = Path(scratch) / f"{mode}-{seed}"
                words = ["--mode", mode, "--seed", str(seed), "--out", str(folder), *options.train.split()]
                harness.run([sys.executable, "-m", "atrl_agents.cli", "train", *words])
                rows.append(
                    {"mode": mode, "seed": seed} | chosen(json.loads((folder / "summary.json").read_text()))
                )
                folders.append(folder)
                print(harness.table(rows[-1:]), flush=True)
        harness.FIGURES.mkdir(exist_ok=True)
        harness.run(
            [
                sys.executable,
                "-m",
                "atrl_agents.cli",
                "plot",
                *map(str, folders),
                "--out",
                str(harness.FIGURES / "learning.png"),
            ]
        )
    harness.write("learning", {"rows": rows})
    print("\n" + harness.table(rows))


def chosen(summary: dict[str, Any]) -> dict[str, Any]:
    """What the table shows of a run."""
    low, high = summary["accuracy_after_interval"]
    return {
        "before": summary["accuracy_before"],
        "after": summary["accuracy_after"],
        "interval": f"{low:.3f} to {high:.3f}",
        "updates": summary["steps"],
        "train_seconds": summary["train_seconds"],
        "completions_per_second": summary["completions_per_second"],
        "staleness_mean": summary["staleness_mean"],
    }


if __name__ == "__main__":
    main(tyro.cli(Options))
