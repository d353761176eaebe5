"""What the laboratory found, as one table and one figure.

print(report(rows, Path("runs/staleness")))       # writes table.md and staleness.png there
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .intervals import mean_interval

TABLE, FIGURE = "table.md", "staleness.png"
_COLLAPSED = 0.5  # a run has collapsed when it ends below this share of the best success that it had reached


def summarise(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each algorithm and staleness: means over seeds, 95 % intervals, how many collapsed."""
    found = []
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        for staleness in sorted({row["staleness"] for row in rows}):
            runs = [r for r in rows if r["algorithm"] == algorithm and r["staleness"] == staleness]
            if not runs:
                continue
            success = [run["success"] for run in runs]
            found.append(
                {
                    "algorithm": algorithm,
                    "staleness": staleness,
                    "runs": len(runs),
                    "success": statistics.fmean(success),
                    "interval": t_interval(success),
                    "accuracy": statistics.fmean(run["accuracy_after"] for run in runs),
                    "grad_norm": statistics.fmean(run["grad_norm"] for run in runs),
                    "grad_norm_variance": statistics.fmean(run["grad_norm_variance"] for run in runs),
                    "m2": statistics.fmean(run["m2"] for run in runs),
                    "masked": statistics.fmean(run["masked"] for run in runs),
                    "collapsed": sum(map(collapsed, runs)),
                }
            )
    return found


def collapsed(run: dict[str, Any]) -> bool:
    """It diverged, or ended below half of the best success that a sixteenth of it had."""
    curve = run["success_curve"]
    return bool(run["diverged"] or (curve and curve[-1] < _COLLAPSED * max(curve)))


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of a mean by Student's t; (0, 1) for fewer than two values."""
    if len(values) < 2:
        return 0.0, 1.0
    # two-sided 95 % points for 1 to 9 degrees of freedom; beyond, the normal's is close
    points = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
    degrees = len(values) - 1
    low, high = mean_interval(list(values), z=points[degrees - 1] if degrees <= len(points) else 1.96)
    return low, high


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| algorithm | staleness | runs | success (95 % interval) | held out, greedy | gradient norm | its variance "
        "| M2 | masked | collapsed |",
        "| --- " * 10 + "|",
    ]
    for row in summarise(rows):
        low, high = row["interval"]
        lines.append(
            f"| {row['algorithm']} | {row['staleness']} | {row['runs']} | {row['success']:.1%} "
            f"({low:.1%} to {high:.1%}) | {row['accuracy']:.1%} | {row['grad_norm']:.3g} | "
            f"{row['grad_norm_variance']:.2g} | {row['m2']:.2g} | {row['masked']:.1%} | {row['collapsed']} |"
        )
    return "\n".join(lines)


def matrix(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: success by algorithm and staleness, with half the width of its 95 % interval."""
    found = {(row["algorithm"], row["staleness"]): row for row in summarise(rows)}
    columns = sorted({staleness for _, staleness in found})
    lines = ["| algorithm, at staleness | " + " | ".join(map(str, columns)) + " |"]
    lines.append("| --- " * (len(columns) + 1) + "|")
    for algorithm in dict.fromkeys(algorithm for algorithm, _ in found):
        cells = []
        for staleness in columns:
            row = found.get((algorithm, staleness))
            half = 0.0 if row is None else (row["interval"][1] - row["interval"][0]) / 2
            cells.append("" if row is None else f"{100 * row['success']:.0f} ± {100 * half:.0f} %")
        lines.append(f"| {algorithm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def probe_table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: gradient norms of several objectives on the same batches, and how much smaller than PPO's clip."""
    names = list(next((row["probe"] for row in rows if row.get("probe")), {}))
    if not names:
        return ""
    lines = ["| staleness | " + " | ".join(f"norm, {name}" for name in names) + " | cut by m2po ratio |"]
    lines.append("| --- " * (len(names) + 2) + "|")
    for staleness in sorted({row["staleness"] for row in rows}):
        runs = [row["probe"] for row in rows if row["staleness"] == staleness and row.get("probe")]
        runs = [run for run in runs if run.get("clip")]
        if not runs:
            continue
        norm = {name: statistics.fmean(run[name] for run in runs) for name in names}
        cuts = [1 - run["m2po ratio"] / run["clip"] for run in runs]
        low, high = t_interval(cuts)
        shown = " | ".join(f"{norm[name]:.3g}" for name in names)
        lines.append(f"| {staleness} | {shown} | {statistics.fmean(cuts):.1%} ({low:.1%} to {high:.1%}) |")
    return "\n".join(lines)


def report(rows: Sequence[dict[str, Any]], out: Path) -> str:
    """Write table and figure into `out`, and return the text."""
    text = "\n\n".join(filter(None, (table(rows), matrix(rows), probe_table(rows))))
    (out / TABLE).write_text(text + "\n", encoding="utf-8")
    draw(rows, out / FIGURE)
    return f"{text}\n\n{out / TABLE}\n{out / FIGURE}"


def draw(rows: Sequence[dict[str, Any]], target: Path) -> Path:
    """Success, gradient norm and masked share over staleness, a line an algorithm."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = summarise(rows)
    staleness = sorted({row["staleness"] for row in found})
    place = {value: index for index, value in enumerate(staleness)}
    figure = Figure(figsize=(10, 3.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 3)
    for index, algorithm in enumerate(dict.fromkeys(row["algorithm"] for row in found)):
        mine = [row for row in found if row["algorithm"] == algorithm]
        x = [place[row["staleness"]] + 0.05 * (index - 3) for row in mine]
        style = {"color": f"C{index % 10}", "linewidth": 1.2, "marker": "o", "markersize": 3}
        y = [row["success"] for row in mine]
        bars = [[max(0.0, v - row["interval"][0]) for v, row in zip(y, mine, strict=True)],
                [max(0.0, row["interval"][1] - v) for v, row in zip(y, mine, strict=True)]]  # fmt: skip
        panels[0].errorbar(x, y, yerr=bars, label=algorithm, elinewidth=0.6, **style)
        panels[1].plot(x, [max(row["grad_norm"], 1e-6) for row in mine], **style)
        panels[2].plot(x, [row["masked"] for row in mine], **style)
    titles = ("success of the last 20 updates", "gradient norm", "masked share of tokens")
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title, loc="left", fontsize=10)
        panel.set_xticks(range(len(staleness)), [str(value) for value in staleness], fontsize=8)
        panel.set_xlabel("staleness, updates", fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    panels[0].set_ylim(0, 1.02)
    norms = [row["grad_norm"] for row in found if row["grad_norm"] > 0]
    if norms and max(norms) > 30 * min(norms) and math.isfinite(max(norms)):
        panels[1].set_yscale("log")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(target)
    return target
