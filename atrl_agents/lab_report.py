"""What the laboratory found, as one table and one figure.

print(report(rows, Path("runs/staleness")))       # writes table.md and staleness.png there
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
                    "half_width": half_width(success),
                    "shown": spread(success),
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


# Student's t, two-sided 95 %, for 1 to 29 degrees of freedom; beyond, the normal's 1.96 is within 4 %.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip


def half_width(values: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean by Student's t; infinite for fewer than two values."""
    degrees = len(values) - 1
    if degrees < 1:
        return math.inf
    point = _T[degrees - 1] if degrees <= len(_T) else 1.96
    return point * statistics.stdev(values) / math.sqrt(len(values))


def spread(values: Sequence[float]) -> str:
    """A mean of shares with its interval, for a table: 67 ± 5 %."""
    half = half_width(values)
    known = f" ± {100 * half:.0f}" if math.isfinite(half) else ""
    return f"{100 * statistics.fmean(values):.0f}{known} %"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| algorithm | staleness | runs | success | held out, greedy | gradient norm | its variance | M2 "
        "| clipped or masked | collapsed |",
        "| --- " * 10 + "|",
    ]
    for row in summarise(rows):
        lines.append(
            f"| {row['algorithm']} | {row['staleness']} | {row['runs']} | {row['shown']} | {row['accuracy']:.1%} | "
            f"{row['grad_norm']:.3g} | {row['grad_norm_variance']:.2g} | {row['m2']:.2g} | {row['masked']:.1%} | "
            f"{row['collapsed']} |"
        )
    return "\n".join(lines)


def matrix(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: success by algorithm and staleness, with half the width of its 95 % interval over seeds."""
    found = {(row["algorithm"], row["staleness"]): row["shown"] for row in summarise(rows)}
    columns = sorted({staleness for _, staleness in found})
    lines = ["| algorithm, at staleness | " + " | ".join(map(str, columns)) + " |"]
    lines.append("| --- " * (len(columns) + 1) + "|")
    for algorithm in dict.fromkeys(algorithm for algorithm, _ in found):
        cells = [found.get((algorithm, staleness), "") for staleness in columns]
        lines.append(f"| {algorithm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def probe_table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: gradient norms of several objectives on the same batches, and how much smaller than PPO's clip.

    A seed's runs at one staleness are averaged first: they begin with one model, so only seeds are independent.
    """
    names = list(next((row["probe"] for row in rows if row.get("probe")), {}))
    if not names:
        return ""
    lines = ["| staleness | " + " | ".join(f"norm, {name}" for name in names) + " | cut by m2po ratio |"]
    lines.append("| --- " * (len(names) + 2) + "|")
    for staleness in sorted({row["staleness"] for row in rows}):
        runs = [row for row in rows if row["staleness"] == staleness and row.get("probe", {}).get("clip")]
        if not runs:
            continue
        norms = {name: statistics.fmean(run["probe"][name] for run in runs) for name in names}
        cuts: dict[int, list[float]] = {}
        for run in runs:
            cuts.setdefault(run["seed"], []).append(1 - run["probe"]["m2po ratio"] / run["probe"]["clip"])
        shown = " | ".join(f"{norms[name]:.3g}" for name in names)
        lines.append(
            f"| {staleness} | {shown} | {spread([statistics.fmean(cut) for cut in cuts.values()])} |"
        )
    return "\n".join(lines)


def report(rows: Sequence[dict[str, Any]], out: Path) -> str:
    """Write table and figure into `out`, and return the text."""
    text = "\n\n".join(filter(None, (table(rows), matrix(rows), probe_table(rows))))
    (out / TABLE).write_text(text + "\n", encoding="utf-8")
    draw(rows, out / FIGURE)
    return f"{text}\n\n{out / TABLE}\n{out / FIGURE}"


def draw(rows: Sequence[dict[str, Any]], target: Path) -> Path:
    """Success, gradient norm and touched share over staleness, a line an algorithm."""
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
        bars = [min(row["half_width"], 1.0) for row in mine]
        panels[0].errorbar(x, y, yerr=bars, label=algorithm, elinewidth=0.6, **style)
        panels[1].plot(x, [max(row["grad_norm"], 1e-6) for row in mine], **style)
        panels[2].plot(x, [row["masked"] for row in mine], **style)
    titles = ("success of the last 20 updates", "gradient norm", "clipped or masked share of tokens")
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
