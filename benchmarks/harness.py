"""What every benchmark shares: commands in fresh processes, medians with spread, JSON results, tables for people.

runs = interleaved({"sync": [...], "async": [...]}, repetitions=3)      # A B A B A B, each in its own process
write("collectors", {"rows": rows})                                      # benchmarks/results/collectors.json
print(table(rows, ["mode", "tokens_per_second"]))
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
FIGURES = HERE / "figures"


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    packages = ("torch", "torchrl", "tensordict", "transformers", "trl")
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    return {
        "cpu": model or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
    }


def use_checkout() -> None:
    """Let child processes import the packages beside this folder, whatever is installed."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))


def train(*words: str, timeout: float = 1800.0) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """`atrl train WORDS` in a fresh process: its summary.json and the rows of its metrics.csv."""
    import csv

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run([sys.executable, "-m", "atrl_agents.cli", "train", "--out", str(out), *words], timeout=timeout)
        with open(out / "metrics.csv", newline="") as file:
            return json.loads((out / "summary.json").read_text()), list(csv.DictReader(file))


def run(command: Sequence[str], timeout: float = 1800.0) -> str:
    """Standard output of a command; RuntimeError with its errors when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=HERE.parent)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} failed ({done.returncode}):\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
    return done.stdout


def peak_memory(command: Sequence[str], timeout: float = 1800.0) -> int:
    """Run a command as `run` does: the most memory that it and its children held at one time, in bytes.

    Memory that processes share is counted once (proportional set size), and looked at every two seconds.
    """
    peak = 0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=HERE.parent)
        end = time.monotonic() + timeout
        while True:
            peak = max(peak, sum(map(_proportional, _family(process.pid))))
            try:
                process.wait(2.0)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > end:
                    process.kill()
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed ({process.returncode}):\n{output.read()[-6000:]}")
    return peak


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for process in found:
        for thread in Path(f"/proc/{process}/task").glob("*"):
            found += [int(child) for line in _lines(f"{thread}/children") for child in line.split()]
    return found


def _proportional(pid: int) -> int:
    """Bytes of a process, its share of what is shared; 0 once it has ended."""
    lines = _lines(f"/proc/{pid}/smaps_rollup")
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def shown(value: Any) -> str:
    """A cell for people; a spread as median (min to max)."""
    if isinstance(value, Mapping):
        return f"{shown(value['median'])} ({shown(value['min'])} to {shown(value['max'])})"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """A Markdown table."""
    columns = list(rows[0]) if columns is None else columns
    lines = ["| " + " | ".join(c.replace("_", " ") for c in columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(shown(row.get(c, "")) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def read(name: str) -> dict[str, Any]:
    """The result that an earlier call has written; empty where there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def write(name: str, result: Mapping[str, Any]) -> Path:
    """Keep a result as JSON, with the machine it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**result, "machine": machine()}, indent=1) + "\n")
    return path


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
