"""A run on a terminal: one panel that is redrawn in place, led by the success rate.

console = LiveConsole(config, folder, rich.console.Console())
console.step(5, {"success_rate": 0.41, "grad_norm": 0.9})
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console as Terminal
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from atrl_envs import keys

from .config import TrainConfig
from .console import Metrics, elapsed_since, ending, heading, is_due, readings

_BARS = "▁▂▃▄▅▆▇█"
_REDRAW_SECONDS = 0.2  # drawing takes a core from a two-core run, so not at every step
_STYLES = {"CORRECT": "green", "WRONG": "red", "MISSING": "yellow"}


class LiveConsole:
    """A panel that stays in place; notes scroll above it."""

    def __init__(self, config: TrainConfig, folder: Path, terminal: Terminal) -> None:
        self.config = config
        self.folder = folder
        self._terminal = terminal
        self._phase = "starting"
        self._step = 0
        self._metrics: dict[str, float] = {}
        self._successes: list[float] = []
        self._next_sample: Mapping[str, Any] | None = None
        self._sample: Mapping[str, Any] | None = None
        self._started = self._drawn = time.monotonic()
        self._live = Live(console=terminal, auto_refresh=False, get_renderable=self._panel)  # draws at once

    def start(self, info: Mapping[str, Any]) -> None:
        for line in heading(self.config, self.folder, info):
            self._terminal.print(line, highlight=False, markup=False)
        self._live.start(refresh=True)

    def step(self, step: int, metrics: Metrics) -> None:
        self._step, self._phase = step, "training"
        self._metrics.update(metrics)  # the last held-out accuracy stays until there is a new one
        if (success := metrics.get("success_rate")) is not None and success == success:
            self._successes.append(success)
        due = is_due(self.config, step, metrics)
        if due and self._next_sample is not None:
            self._sample = self._next_sample
        self._draw(now=due)

    def sample(self, step: int, sample: Mapping[str, Any]) -> None:
        self._next_sample = sample
        self._sample = self._sample or sample

    def phase(self, text: str) -> None:
        self._phase = text or "training"
        self._draw(now=True)

    def note(self, text: str) -> None:
        self._terminal.print(text, highlight=False, markup=False)

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._phase = "finished"
        self._draw(now=True)
        self._live.stop()
        for line in ending(summary, self.folder):
            self._terminal.print(line, highlight=False, markup=False)

    def close(self) -> None:
        self._live.stop()

    def _draw(self, now: bool) -> None:
        if self._live.is_started and (now or time.monotonic() - self._drawn > _REDRAW_SECONDS):
            self._drawn = time.monotonic()
            self._live.refresh()

    def _panel(self) -> RenderableType:
        parts: list[RenderableType] = [self._progress()]
        if self._metrics:
            parts.append(self._readings())
        if self._sample is not None:
            parts += [Text(), sample_text(self._sample, self._terminal.width - 4)]
        title = f"[bold]{self.config.algorithm}[/] {self.config.env.name} {self.config.mode}"
        return Panel(Group(*parts), title=title, title_align="left", border_style="cyan")

    def _progress(self) -> RenderableType:
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(no_wrap=True)
        row.add_column(ratio=1)
        row.add_column(justify="right", no_wrap=True)
        row.add_row(
            f"step {self._step}/{self.config.steps}",
            ProgressBar(total=max(1, self.config.steps), completed=self._step),
            f"{self._phase}, {elapsed_since(self._started)}",
        )
        return row

    def _readings(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(no_wrap=True)
        for name, text in readings(self._metrics):
            if name == "success":
                value = Text(text, style="bold green")
                value.append("  " + sparkline(self._successes, 40), style="green")
                grid.add_row(Text(name, style="bold green"), value)
            elif name != "seconds":
                grid.add_row(name, text)
        return grid


def sparkline(values: list[float], width: int) -> str:
    """Fractions as bars from 0 to 1, at most `width` of them, each the mean of its share."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    return "".join(_BARS[min(7, max(0, int(8 * mean)))] for mean in means)


def sample_text(sample: Mapping[str, Any], width: int) -> Text:
    """Prompt, completion and verdict in colours, cut to four lines of the panel."""
    verdict = str(sample.get(keys.VERDICT, "?"))
    text = Text(str(sample.get("prompt", "")), style="dim", overflow="fold")
    text.append(str(sample.get("completion", "")), style="bold")
    room = 3 * max(20, width)
    if len(text) > room:  # the answer stands at the end
        text = Text("... ", style="dim").append_text(text[-room:])
    text.append(f"   {verdict}", style=_STYLES.get(verdict, "magenta"))
    if verdict != "CORRECT" and "answer" in sample:
        text.append(f" (answer {sample['answer']})", style="dim")
    return text
