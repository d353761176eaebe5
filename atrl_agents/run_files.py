"""The two growing files of a run, metrics.csv and samples.jsonl: every line is whole or not there.

metrics = MetricsFile(folder / METRICS)
metrics.open(keep_until=None)                  # a step number instead: keep the rows up to it
metrics.write({"step": 1, "loss": 0.5})        # a new name adds a column at the end
rows = read_metrics(folder / METRICS)          # [{"step": 1.0, "loss": 0.5}]
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import IO, Any

from atrl_envs import keys

from .config_file import write_whole

METRICS = "metrics.csv"
SAMPLES = "samples.jsonl"

COLUMNS = (
    "step",
    "seconds",
    "success_rate",
    "accuracy",
    "eval_seconds",
    "grad_norm",
    "loss",
    "staleness_mean",
    "staleness_max",
    "tokens_per_second",
    "completions_per_second",
    "trainer_wait_fraction",
    "worker_wait_fraction",
    "ratio_mean",
    "clip_fraction",
    "kl",
    "entropy",
    "response_length",
    "truncated_fraction",
    "learning_rate",
    "episodes",
    "tokens_trained",
    "tokens_dropped",
    "undecided",
    "invalid_gold",
    "unscored",
    keys.VERSION,
)
"""The first columns of metrics.csv; a metric of another name adds a column at the end."""


class MetricsFile:
    """A CSV whose header only grows: `write({"step": 1, "loss": 0.5})` appends a flushed row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = list(COLUMNS)
        self.seconds = 0.0  # of the last row
        self._last_step = -1.0
        self._file: IO[str] | None = None

    def open(self, keep_until: int | None) -> None:
        """Start anew, or keep the rows up to step `keep_until` and append to them."""
        found = [] if keep_until is None else read_metrics(self.path)
        if keep_until is not None:
            _keep_damaged(self.path, readable=len(found))
        rows = [row for row in found if row["step"] <= (keep_until or 0)]
        names = dict.fromkeys(name for row in found for name in row)  # a row names only the cells it fills
        self.columns += [name for name in names if name not in self.columns]
        self.seconds = rows[-1].get("seconds", 0.0) if rows else 0.0
        self._last_step = rows[-1]["step"] if rows else -1.0
        self._rewrite(rows)

    def write(self, row: Mapping[str, float]) -> None:
        """Append a row; a second one for the same step is merged into the first."""
        assert self._file is not None, "open the file first"
        self.seconds = row.get("seconds", self.seconds)
        fresh = [name for name in row if name not in self.columns]
        self.columns += fresh
        if row["step"] == self._last_step:
            rows = read_metrics(self.path)
            self._rewrite([*rows[:-1], {**row, **rows[-1], **{k: row[k] for k in row if k != "seconds"}}])
            return
        if fresh:
            self._rewrite(read_metrics(self.path))
        self._last_step = row["step"]
        self._file.write(self._line([_cell(row.get(name)) for name in self.columns]))
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rewrite(self, rows: list[dict[str, float]]) -> None:
        self.close()
        lines = [self.columns, *([_cell(row.get(name)) for name in self.columns] for row in rows)]
        write_whole(self.path, "".join(map(self._line, lines)))
        self._file = self.path.open("a", encoding="utf-8")

    @staticmethod
    def _line(cells: Sequence[str]) -> str:
        return ",".join(cells) + "\n"


class SamplesFile:
    """JSON lines, one completion each, flushed as they are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def open(self, keep_until: int | None) -> None:
        """Start anew, or keep the samples up to step `keep_until` and append to them."""
        kept = (
            []
            if keep_until is None
            else [s for s in read_samples(self.path) if s.get("step", 0) <= keep_until]
        )
        write_whole(self.path, "".join(json_line(sample) + "\n" for sample in kept))
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, sample: Mapping[str, Any]) -> None:
        assert self._file is not None, "open the file first"
        self._file.write(json_line(sample) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The whole rows of a metrics.csv; an empty cell is no entry; a torn or damaged line is left out."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    table = [line.split(",") for line in text[: text.rfind("\n") + 1].splitlines()]
    header = table[0] if table else []
    rows = []
    for cells in table[1:]:
        try:
            row = {name: float(cell) for name, cell in zip(header, cells, strict=True) if cell}
        except ValueError:
            continue
        if "step" in row:
            rows.append(row)
    return rows


def _keep_damaged(path: Path, readable: int) -> None:
    """Copy a file with rows that cannot be read before it is written anew without them."""
    if path.is_file() and path.read_bytes().count(b"\n") > readable + 1:
        shutil.copyfile(path, path.with_name(f"{path.name}.damaged"))


def read_samples(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a samples.jsonl; a torn or damaged line is left out."""
    if not path.is_file():
        return []
    samples = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            sample = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(sample, dict) and isinstance(sample.get("step", 0), int | float):
            samples.append(sample)
    return samples


def json_line(value: Any, indent: int | None = None) -> str:
    """Strict JSON: a number that is not finite becomes null, and what JSON cannot hold becomes text."""
    return json.dumps(plain(value), indent=indent, allow_nan=False, ensure_ascii=False)


def plain(value: Any) -> Any:
    """What JSON can hold: names for enum members, lists for tensors, null for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, Enum):  # a Verdict is an int too, but people read its name
        return value.name
    if hasattr(value, "tolist"):  # a tensor or an array, its scalars too
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str | None) else str(value)


def _cell(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    return str(int(value)) if float(value).is_integer() else f"{float(value):.6g}"
