"""Learning curves of one run or several, as a picture: success over steps and over seconds, staleness below.

draw([Path("runs/a")], Path("runs/a/curve.png"))
draw([Path("runs/sync"), Path("runs/async")], Path("compare.png"))       # one colour a run
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from .complaints import ConfigError
from .run_files import METRICS, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#1f6fb4", "#d9541e", "#2c8f52", "#8a4fb0", "#b0882b", "#4b4b4b", "#c2407a", "#2a9d9d")
_INK = "#333333"


@dataclass(frozen=True)
class Curves:
    """The rows of one run that can be drawn."""

    name: str
    rows: list[dict[str, float]] = field(repr=False)
    first: float | None = None  # held-out accuracy before the first step

    def of(self, column: str, over: str) -> tuple[list[float], list[float]]:
        """The points (x, y) of a column, where both are known."""
        known = [row for row in self.rows if column in row and over in row]
        return [row[over] for row in known], [row[column] for row in known]

    def held_out(self, over: str) -> tuple[list[float], list[float]]:
        """Held-out accuracy, from the evaluation before training on."""
        x, y = self.of("accuracy", over)
        return (x, y) if self.first is None or (x and x[0] <= 0) else ([0.0, *x], [self.first, *y])


def read(folder: Path, name: str | None = None) -> Curves:
    """The curves of a run folder. Errors: FileNotFoundError where there is no metrics.csv."""
    path = folder / METRICS
    if not path.is_file():
        raise FileNotFoundError(f"got {folder}; there is no {METRICS} in it; give the folder of a run")
    return Curves(name or folder.resolve().name, read_metrics(path), _accuracy_before(folder))


def draw(folders: Sequence[Path], target: Path) -> Path:
    """Draw the runs into the PNG file `target` and return its path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    runs = [read(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]
    figure = Figure(figsize=(10, 5.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)  # no display, and no state shared with a caller's own pyplot
    over_steps, over_seconds, staleness_steps, staleness_seconds = figure.subplots(
        2, 2, sharex="col", height_ratios=(2.6, 1)
    ).flat
    for run, colour in zip(runs, _colours(len(runs)), strict=True):
        for axes, over in ((over_steps, "step"), (over_seconds, "seconds")):
            _draw_success(axes, run, over, colour, alone=len(runs) == 1)
        for axes, over in ((staleness_steps, "step"), (staleness_seconds, "seconds")):
            _draw_staleness(axes, run, over, colour)
    _label(over_steps, over_seconds, staleness_steps, staleness_seconds)
    over_steps.set_title(
        runs[0].name if len(runs) == 1 else "over updates", loc="left", fontsize=11, color=_INK
    )
    if len(runs) > 1:
        over_seconds.set_title("over time", loc="left", fontsize=11, color=_INK)
    title = None if len(runs) == 1 else "dots: held-out, thin: in training"
    over_seconds.legend(loc="lower right", frameon=False, fontsize=9, title=title, title_fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    return target


def rolling(of: Callable[[Sequence[float]], float], values: Sequence[float], window: int) -> list[float]:
    """`of` each value and up to `window - 1` before it."""
    return [of(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]


@dataclass(frozen=True)
class PlotConfig:
    """Draw learning curves of one run, or of several in one picture."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN ...")]
    """Run folders."""
    out: Path | None = None
    """The PNG file. None: curve.png in the run folder, or compare.png here for several."""


def main(words: Sequence[str]) -> int:
    """Draw what `atrl plot RUN [RUN ...]` asks for and print the file's name."""
    config = tyro.cli(PlotConfig, args=list(words), prog="atrl plot")
    if not config.runs:
        raise ConfigError(
            "got 'atrl plot' without a run; there is nothing to draw; give one run folder or more"
        )
    for folder in config.runs:
        if not (folder / METRICS).is_file():
            raise ConfigError(f"got {folder}; there is no {METRICS} in it; give the folder of a run")
    target = config.out or (config.runs[0] / "curve.png" if len(config.runs) == 1 else Path("compare.png"))
    if target.suffix != ".png":
        raise ConfigError(f"got --out {target}; only PNG is written; give a name that ends in .png")
    print(draw(config.runs, target))
    return 0


def _draw_success(axes: Axes, run: Curves, over: str, colour: str, alone: bool) -> None:
    x, y = run.of("success_rate", over)
    if alone:
        axes.plot(x, y, color=colour, linewidth=0.7, alpha=0.25)
    axes.plot(
        x,
        rolling(fmean, y, max(1, len(y) // 30)),
        color=colour,
        linewidth=1.8 if alone else 1.2,
        alpha=0.9 if alone else 0.45,
        label="success rate in training" if alone else None,
    )
    x, y = run.held_out(over)
    held = _COLOURS[1] if alone else colour
    axes.plot(
        x,
        y,
        color=held,
        linewidth=1.4 if alone else 1.8,
        marker="o",
        markersize=4.5,
        label="held-out accuracy (greedy)" if alone else run.name,
    )
    if alone and x:
        axes.annotate(
            f"{100 * y[-1]:.1f} %",
            (x[-1], y[-1]),
            (0, 7),
            textcoords="offset points",
            ha="right",
            fontsize=9,
            color=held,
            annotation_clip=False,
        )


def _draw_staleness(axes: Axes, run: Curves, over: str, colour: str) -> None:
    x, y = run.of("staleness_max", over)
    top = rolling(max, y, max(1, len(y) // 15))
    axes.fill_between(x, top, color=colour, alpha=0.13, linewidth=0, step="post")
    x, y = run.of("staleness_mean", over)
    axes.plot(x, y, color=colour, linewidth=1.5)


def _label(over_steps: Axes, over_seconds: Axes, staleness_steps: Axes, staleness_seconds: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    over_steps.set_ylabel("correct")
    staleness_steps.set_ylabel("staleness\nmean and max")
    staleness_steps.set_xlabel("update")
    staleness_seconds.set_xlabel("seconds of training")
    for axes in (over_steps, over_seconds):
        axes.set_ylim(0, 1.06)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    for axes in (staleness_steps, staleness_seconds):
        axes.set_ylim(-0.15, max(1.0, axes.dataLim.y1) * 1.15)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    for axes in (over_steps, over_seconds, staleness_steps, staleness_seconds):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.set_xlim(left=0)
        axes.tick_params(labelsize=9, colors=_INK)


def _names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names, or their whole paths where two would be the same."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _colours(count: int) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(count)]


def _accuracy_before(folder: Path) -> float | None:
    try:
        summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    value = summary.get("accuracy_before")
    return float(value) if isinstance(value, int | float) else None
