"""What a run leaves behind: one object that writes the run folder, the console and the trackers.

    with Reporter(config, config.folder) as report:
        report.start({"parameters": 400_000})
        report.step(1, {"success_rate": 0.25, "grad_norm": 0.8})
        report.sample(1, {"prompt": "2+2=", "completion": "4", "verdict": "CORRECT", "reward": 1.0})
        report.finish({"accuracy_before": 0.55, "accuracy_after": 0.93})

Every line is flushed as it is written, so a killed run loses at most its last line.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import config_file
from .config import TrainConfig
from .config_check import CHECKPOINT, SPARE
from .console import Console, SilentConsole, make_console
from .run_files import METRICS, SAMPLES, MetricsFile, SamplesFile, json_line, plain

CURVE = "curve.png"
SUMMARY = "summary.json"

SUMMARY_FIELDS = (
    "accuracy_before",
    "accuracy_after",
    "train_seconds",
    "steps",
    "completions_per_second",
    "tokens_per_second",
    "staleness_mean",
    "staleness_max",
)
"""The fields that every summary.json has, null where they are not known."""


class Reporter:
    """Write a run's folder, console and trackers.

    Args:
        config: the resolved config; it is saved as config.json when the run starts.
        folder: the run folder; made when the run starts. With `config.overwrite` our files in it go first.
        console: where people look; None chooses by whether standard output is a terminal.
        loggers: names of trackers; None takes `config.loggers`.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        console: Console | None = None,
        loggers: Sequence[str] | None = None,
    ) -> None:
        self.config = config
        self.folder = Path(folder)
        self.console = console if console is not None else make_console(config, self.folder)
        self._logger_names = tuple(config.loggers if loggers is None else loggers)
        self._trackers: list[Any] = []
        self._metrics = MetricsFile(self.folder / METRICS)
        self._samples = SamplesFile(self.folder / SAMPLES)
        self.unheard = ""  # why nobody sees what is shown any more, as soon as that is so
        self._info: dict[str, Any] = {}
        self._clock: float | None = None  # when the first row came, if the trainer does not time its rows
        self._timed = False

    def start(self, info: Mapping[str, Any], step: int | None = None) -> None:
        """Open the files. `info` (what the config does not say) is shown, and kept in summary.json.

        A resumed run passes the `step` of its checkpoint: later rows are dropped, and new ones appended.
        """
        self._info = dict(info)
        self.folder.mkdir(parents=True, exist_ok=True)
        if step is None and self.config.overwrite:
            _clear(self.folder)
        config_file.save(self.config, self.folder)
        self._metrics.open(step)
        self._samples.open(step)
        self._trackers = [_tracker(name, self.folder, self.config) for name in self._logger_names]
        self._show("start", self._info)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row of metrics.csv; a second call for the same step adds to its row.

        A row without `seconds` has those of the row before, or the time since the first row where no row has any.
        """
        if self._clock is None:
            self._clock = time.monotonic() - self._metrics.seconds
        self._timed = self._timed or "seconds" in metrics
        seconds = self._metrics.seconds if self._timed else time.monotonic() - self._clock
        row: dict[str, float] = {"step": step, "seconds": seconds, **metrics}
        self._metrics.write(row)
        for tracker in self._trackers:
            tracker.log_metrics(
                {name: float(row[name]) for name in row if math.isfinite(row[name])}, step=step
            )
        self._show("step", step, row)

    def sample(self, step: int, sample: Mapping[str, Any]) -> None:
        """One completion: prompt, completion, answer, verdict, reward, group, member, version, staleness."""
        line = plain({"step": step, **sample})
        self._samples.write(line)
        self._show("sample", step, line)

    def phase(self, text: str) -> None:
        """What the run does now or waits for, such as 'evaluating 500 problems'."""
        self._show("phase", text)

    def note(self, text: str) -> None:
        """A line that stays on the console."""
        self._show("note", text)

    def finish(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Write summary.json and curve.png, show the result, and return what was written."""
        whole = {**dict.fromkeys(SUMMARY_FIELDS), **summary, "run": self._info}
        config_file.write_whole(self.folder / SUMMARY, json_line(whole, indent=2) + "\n")
        self._draw()
        self._show("finish", plain(whole))
        return whole

    def close(self) -> None:
        """Close files, trackers and console; safe to call twice and after an error."""
        self._metrics.close()
        self._samples.close()
        for tracker in self._trackers:
            tracker.close()
        self._trackers = []
        self._show("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def _show(self, what: str, *arguments: Any) -> None:
        try:
            getattr(self.console, what)(*arguments)
        except (
            OSError
        ) as error:  # the reader of a pipe or the terminal has gone, or the disk under the log is full
            self.console = SilentConsole()
            self.unheard = f"standard output cannot be written to ({error.strerror})"

    def _draw(self) -> None:
        from .plot import draw

        try:
            draw([self.folder], self.folder / CURVE)
        except Exception as error:  # a figure that fails must not cost the run its result
            self.note(f"{CURVE} was not drawn: {type(error).__name__}: {error}")


def _clear(folder: Path) -> None:
    """Remove what an earlier run wrote, and nothing else."""
    for name in (METRICS, SAMPLES, CURVE, SUMMARY, config_file.CONFIG):
        (folder / name).unlink(missing_ok=True)
    for name in (CHECKPOINT, CHECKPOINT + SPARE):
        shutil.rmtree(folder / name, ignore_errors=True)


def _tracker(name: str, folder: Path, config: TrainConfig) -> Any:
    """One of torchrl's loggers, writing below the run folder where it writes files at all."""
    from torchrl.record.loggers import get_logger

    project = {"project": "atrl"}
    tracker = get_logger(
        name,
        logger_name=str(folder / name),
        experiment_name=folder.name,
        wandb_kwargs=dict(project),
        trackio_kwargs=dict(project),
    )
    if tracker is not None and name in ("wandb", "mlflow", "trackio"):
        tracker.log_hparams(config_file.to_dict(config))
    return tracker
