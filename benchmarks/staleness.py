"""What stale data does to each algorithm: the laboratory's table and figure, as results of the project.

    python benchmarks/staleness.py                       # results/staleness.json, figures/staleness.png, two tables
    python benchmarks/staleness.py --lab.seeds 2 --lab.staleness 0 8

Everything is `atrl lab staleness` (see atrl_agents/lab.py); runs that its folder holds already are not repeated.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import Any

import harness
import tyro

from atrl_agents import lab_report
from atrl_agents.lab import LabConfig, run_all


@dataclass(frozen=True)
class Options:
    """What is measured."""

    lab: LabConfig = field(default_factory=LabConfig)


def main(options: Options) -> None:
    harness.use_checkout()
    rows = run_all(options.lab)
    print(lab_report.report(rows, options.lab.out))
    settings: dict[str, Any] = {"steps": options.lab.steps, "seeds": options.lab.seeds}
    harness.write("staleness", {"settings": settings, "table": lab_report.summarise(rows), "runs": rows})
    shutil.copy(options.lab.out / lab_report.FIGURE, harness.FIGURES / "staleness.png")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
