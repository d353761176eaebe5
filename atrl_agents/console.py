"""What a person sees of a run: a live panel on a terminal, one plain line per interval elsewhere.

    console = make_console(config, folder)
    console.step(5, {"success_rate": 0.41, "grad_norm": 0.9})       # leads with the success rate

Both show the same things in the same order: success rate, gradient norm, staleness, tokens per second,
who waits for whom, held-out accuracy when there is one, and one sample completion per interval.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from atrl_envs import keys

from .config import TrainConfig

Metrics = Mapping[str, float]
_PHASE_SECONDS = 10.0  # between plain lines about the same phase, the text before its colon


class Console(Protocol):
    """Where a Reporter shows things."""

    def start(self, info: Mapping[str, Any]) -> None: ...
    def step(self, step: int, metrics: Metrics) -> None: ...
    def sample(self, step: int, sample: Mapping[str, Any]) -> None: ...
    def phase(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def finish(self, summary: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


class SilentConsole:
    """Show nothing; the run folder has it all."""

    def start(self, info: Mapping[str, Any]) -> None: ...
    def step(self, step: int, metrics: Metrics) -> None: ...
    def sample(self, step: int, sample: Mapping[str, Any]) -> None: ...
    def phase(self, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def finish(self, summary: Mapping[str, Any]) -> None: ...
    def close(self) -> None: ...


def make_console(config: TrainConfig, folder: Path, file: IO[str] | None = None) -> Console:
    """A live panel when `file` (standard output) is a terminal that can redraw, plain lines otherwise."""
    from rich.console import Console as Terminal

    terminal = Terminal(file=file)
    if terminal.is_terminal and not terminal.is_dumb_terminal:
        from .console_live import LiveConsole

        return LiveConsole(config, folder, terminal)
    return PlainConsole(config, folder, file)


class PlainConsole:
    """One line per interval, for logs and pipes."""

    def __init__(self, config: TrainConfig, folder: Path, file: IO[str] | None = None) -> None:
        self.config = config
        self.folder = folder
        self._file = file
        self._sample: Mapping[str, Any] | None = None
        self._shown = -1  # the step whose line was printed last
        self._topic, self._said = "", 0.0  # of the last phase: what, and when

    def start(self, info: Mapping[str, Any]) -> None:
        for line in heading(self.config, self.folder, info):
            self.note(line)

    def step(self, step: int, metrics: Metrics) -> None:
        if not is_due(self.config, step, metrics):
            return
        self.note(
            f"step {step:>{len(str(self.config.steps))}}/{self.config.steps}  "
            + "  ".join(f"{name} {text}" for name, text in readings(metrics))
        )
        self._shown = step
        if self._sample is not None:
            self.sample(step, self._sample)

    def sample(self, step: int, sample: Mapping[str, Any]) -> None:
        if step != self._shown:  # it waits for its line
            self._sample = sample
            return
        self.note(f"    {sample_line(sample)}")
        self._sample, self._shown = None, -1

    def phase(self, text: str) -> None:
        topic, now = text.partition(":")[0], time.monotonic()
        if text and (topic != self._topic or now - self._said > _PHASE_SECONDS):
            self._said = now
            self.note(text)
        self._topic = topic

    def note(self, text: str) -> None:
        file = self._file or sys.stdout
        try:
            print(text, file=file, flush=True)
        except UnicodeEncodeError:  # a terminal that is not UTF-8
            encoding = getattr(file, "encoding", None) or "ascii"
            print(text.encode(encoding, "backslashreplace").decode(encoding), file=file, flush=True)

    def finish(self, summary: Mapping[str, Any]) -> None:
        for line in ending(summary, self.folder):
            self.note(line)

    def close(self) -> None: ...


def is_due(config: TrainConfig, step: int, metrics: Metrics) -> bool:
    """Whether this step's line is shown: every `log_every` steps, the last step, and evaluations."""
    return step % config.log_every == 0 or step == config.steps or "accuracy" in metrics


def readings(metrics: Metrics) -> list[tuple[str, str]]:
    """What is shown of a step, in its fixed order, as (name, text); a metric that is not there is left out."""
    shown: list[tuple[str, str]] = []

    def show(name: str, text: Callable[[float], str], *keys: str) -> None:
        found = [metrics[key] for key in keys if metrics.get(key) is not None]
        if found:
            shown.append((name, " / ".join(text(value) for value in found)))

    show("success", percent, "success_rate")
    show("grad", lambda value: f"{value:.3g}", "grad_norm")
    show("staleness", lambda value: f"{value:.3g}", "staleness_mean", "staleness_max")
    show("tokens/s", lambda value: f"{value:,.0f}", "tokens_per_second")
    show(
        "waits trainer/worker",
        lambda value: f"{100 * value:.0f}%",
        "trainer_wait_fraction",
        "worker_wait_fraction",
    )
    show("held-out", percent, "accuracy")
    show("seconds", lambda value: f"{value:.0f}", "seconds")
    return shown


def heading(config: TrainConfig, folder: Path, info: Mapping[str, Any]) -> list[str]:
    """Two or three lines that say what runs, and where its files go."""
    task = " ".join([config.env.name, *(f"{name}={value}" for name, value in config.env.kwargs.items())])
    stale = f"at most {config.staleness_limit} updates stale, {config.workers} worker(s)"
    batch = f"{config.prompts_per_batch} prompts x {config.samples_per_prompt} samples"
    lines = [
        f"{config.algorithm} on {task}, model {config.model}, {config.mode}"
        + (f" ({stale})" if config.mode == "async" else "")
        + f", {config.steps} steps of {batch}, seed {config.seed}",
        f"files in {folder}{'/' if not str(folder).endswith('/') else ''}",
    ]
    if info:
        lines.append(", ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in info.items()))
    return lines


def ending(summary: Mapping[str, Any], folder: Path) -> list[str]:
    """The result as lines: held-out accuracy before and after, speed, staleness, where the files are."""
    before, after = (_accuracy(summary, when) for when in ("before", "after"))
    lines = ["", f"held-out accuracy  {before} -> {after}"]
    lines.append(
        f"trained            {_text(summary.get('steps'))} steps in {_text(summary.get('train_seconds'))} s"
    )
    lines.append(
        f"speed              {_text(summary.get('completions_per_second'))} completions/s, "
        f"{_text(summary.get('tokens_per_second'))} tokens/s"
    )
    lines.append(
        f"staleness          mean {_text(summary.get('staleness_mean'))}, max {_text(summary.get('staleness_max'))}"
    )
    names = ["curve.png", "summary.json", "metrics.csv", "samples.jsonl", "checkpoint"]
    there = ", ".join(name for name in names if (folder / name).exists())
    lines.append(f"files              {folder}/" + (f"  ({there})" if there else ""))
    return lines


def sample_line(sample: Mapping[str, Any], width: int = 100) -> str:
    """A completion on one line: prompt | completion | verdict (the answer where it is not met)."""
    verdict = str(sample.get(keys.VERDICT, "?"))
    wanted = (
        "" if verdict == "CORRECT" or "answer" not in sample else f" (answer {_short(sample['answer'], 30)})"
    )
    asked, given = (_short(sample.get(name, ""), width) for name in ("prompt", "completion"))
    return f"{asked} | {given} | {verdict}{wanted}"


def percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}%"


def clock(seconds: float) -> str:
    """`75` as `1:15`."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def elapsed_since(start: float) -> str:
    return clock(time.monotonic() - start)


def _accuracy(summary: Mapping[str, Any], when: str) -> str:
    value = summary.get(f"accuracy_{when}")
    interval = summary.get(f"accuracy_{when}_interval")
    if value is None:
        return "not measured"
    if not interval:
        return percent(value)
    return f"{percent(value)} [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def _text(value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _short(text: Any, width: int) -> str:
    """On one line, at most `width` characters: the start and the end, for the answer stands at the end."""
    line = repr(str(text))[1:-1].replace("\\\\", "\\")
    return line if len(line) <= width else f"{line[: width // 3]} ... {line[-(2 * width // 3 - 5) :]}"
