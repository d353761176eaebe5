"""The run folder: whole lines whatever happens, a header that only grows, strict JSON, a resume that fits."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import textwrap
import types
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from atrl_agents import config_file
from atrl_agents.config import GRPOConfig
from atrl_agents.console import SilentConsole
from atrl_agents.plot import draw, read, rolling
from atrl_agents.report import CURVE, SUMMARY, SUMMARY_FIELDS, Reporter
from atrl_agents.run_files import COLUMNS, METRICS, SAMPLES, json_line, read_metrics, read_samples


class Verdict(IntEnum):
    CORRECT = 0


def reporter(folder: Path, console: Any = None, **settings: Any) -> Reporter:
    config = GRPOConfig(out=folder, **settings)
    return Reporter(config, config.folder, console=console or SilentConsole())


def strict(path: Path) -> Any:
    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def test_a_run_leaves_its_whole_folder(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    with reporter(folder, steps=3) as report:
        report.start({"parameters": 10})
        for step in (1, 2, 3):
            report.step(
                step, {"success_rate": step / 4, "grad_norm": 0.5, "staleness_mean": 0.0, "seconds": step}
            )
            report.sample(
                step, {"prompt": "1+1=", "completion": "2", "verdict": Verdict.CORRECT, "reward": 1.0}
            )
        report.finish({"accuracy_before": 0.5, "accuracy_after": 0.75, "pass_at_8": float("nan")})
    assert config_file.load(folder / "config.json") == GRPOConfig(out=folder, steps=3)
    assert [row["success_rate"] for row in read_metrics(folder / METRICS)] == [0.25, 0.5, 0.75]
    assert read_samples(folder / SAMPLES)[0] == {
        "step": 1, "prompt": "1+1=", "completion": "2", "verdict": "CORRECT", "reward": 1.0,
    }  # fmt: skip
    summary = strict(folder / SUMMARY)
    assert set(SUMMARY_FIELDS) <= set(summary)
    assert summary["accuracy_after"] == 0.75
    assert summary["steps"] is None
    assert summary["pass_at_8"] is None
    assert summary["run"] == {"parameters": 10}
    assert (folder / CURVE).read_bytes().startswith(b"\x89PNG")
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_the_header_is_fixed_and_grows(tmp_path: Path) -> None:
    with reporter(tmp_path) as report:
        report.start({})
        report.step(1, {"loss": 0.5})
        assert (tmp_path / METRICS).read_text().splitlines()[0] == ",".join(COLUMNS)
        report.step(2, {"loss": 0.25, "contrast_fraction": 0.75})
        report.step(3, {"loss": float("nan"), "grad_norm": float("inf")})
    rows = list(csv.DictReader((tmp_path / METRICS).open()))
    assert list(rows[0]) == [*COLUMNS, "contrast_fraction"]
    assert [row["contrast_fraction"] for row in rows] == ["", "0.75", ""]
    assert [row["loss"] for row in rows] == ["0.5", "0.25", ""]
    assert rows[2]["grad_norm"] == "inf"
    assert rows[2]["step"] == "3"


def test_a_row_without_seconds_has_those_of_the_row_before(tmp_path: Path) -> None:
    with reporter(tmp_path) as report:
        report.start({})
        report.step(0, {"accuracy": 0.5})
        report.step(1, {"seconds": 12.5})
        report.step(2, {"accuracy": 0.75})
    assert [row["seconds"] for row in read_metrics(tmp_path / METRICS)] == [
        pytest.approx(0, abs=1),
        12.5,
        12.5,
    ]


def test_rows_that_nobody_timed_count_from_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("atrl_agents.report.time", types.SimpleNamespace(monotonic=lambda: now))
    with reporter(tmp_path) as report:
        report.start({})
        now = 160.0
        report.step(0, {"accuracy": 0.5})
        now = 163.0
        report.step(1, {"loss": 0.5})
        now = 170.0
        report.step(1, {"accuracy": 0.5})
    assert [row["seconds"] for row in read_metrics(tmp_path / METRICS)] == [0, 3]


def test_rows_of_the_same_step_are_merged(tmp_path: Path) -> None:
    with reporter(tmp_path) as report:
        report.start({})
        report.step(1, {"loss": 0.5, "seconds": 2.0})
        report.step(1, {"accuracy": 0.75, "new": 3.0})
        report.step(2, {"loss": 0.25})
    rows = read_metrics(tmp_path / METRICS)
    assert rows[0] == {"step": 1, "seconds": 2, "loss": 0.5, "accuracy": 0.75, "new": 3}
    assert [row["step"] for row in rows] == [1, 2]


def test_resume_drops_later_rows_and_goes_on(tmp_path: Path) -> None:
    with reporter(tmp_path) as report:
        report.start({})
        for step in range(1, 6):
            report.step(step, {"loss": step, "extra": step, "seconds": 10 * step})
            report.sample(step, {"prompt": str(step)})
    with (tmp_path / METRICS).open("a") as file:
        file.write("6,1.5")  # the kill came in the middle of a line
    with (tmp_path / SAMPLES).open("a") as file:
        file.write('{"step": 6, "pro')
    with reporter(tmp_path, resume=True) as report:
        report.start({}, step=3)
        report.step(4, {"loss": 40.0})
        report.sample(4, {"prompt": "again"})
    rows = read_metrics(tmp_path / METRICS)
    assert [(row["step"], row["loss"]) for row in rows] == [(1, 1), (2, 2), (3, 3), (4, 40)]
    assert [row.get("extra") for row in rows] == [1, 2, 3, None]
    assert rows[3]["seconds"] == pytest.approx(30, abs=1)
    assert [sample["prompt"] for sample in read_samples(tmp_path / SAMPLES)] == ["1", "2", "3", "again"]


def test_resume_keeps_columns_that_the_first_row_leaves_empty(tmp_path: Path) -> None:
    with reporter(tmp_path) as report:
        report.start({})
        report.step(0, {"accuracy": 0.5})
        report.step(1, {"extra": 1.5})
        report.step(2, {"late": 2.5})
    with reporter(tmp_path, resume=True) as report:
        report.start({}, step=1)
    rows = list(csv.DictReader((tmp_path / METRICS).open()))
    assert [row["extra"] for row in rows] == ["", "1.5"]
    assert list(rows[0]) == [*COLUMNS, "extra", "late"]


def test_torn_last_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    path.write_text("step,loss\n1,0.5\n2,0.2")
    assert read_metrics(path) == [{"step": 1, "loss": 0.5}]
    path.write_text("step,loss\n1,0.5\n2\n")
    assert read_metrics(path) == [{"step": 1, "loss": 0.5}]
    assert read_metrics(tmp_path / "none.csv") == []
    (tmp_path / SAMPLES).write_text('{"step": 1}\n{"st')
    assert read_samples(tmp_path / SAMPLES) == [{"step": 1}]


def test_a_killed_run_keeps_all_its_lines(tmp_path: Path) -> None:
    code = f"""
        import os
        from pathlib import Path
        from atrl_agents.config import GRPOConfig
        from atrl_agents.report import Reporter
        report = Reporter(GRPOConfig(), Path({str(tmp_path)!r}))
        report.start({{}})
        for step in range(1, 4):
            report.step(step, {{"loss": 0.5}})
            report.sample(step, {{"prompt": "p"}})
        os._exit(9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 9
    assert [row["step"] for row in read_metrics(tmp_path / METRICS)] == [1, 2, 3]
    assert len(read_samples(tmp_path / SAMPLES)) == 3


def test_overwriting_takes_our_files_and_no_others(tmp_path: Path) -> None:
    for name in (METRICS, SUMMARY, "notes.txt"):
        (tmp_path / name).write_text("old")
    (tmp_path / "checkpoint").mkdir()
    with reporter(tmp_path, overwrite=True) as report:
        report.start({})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", METRICS, "notes.txt", SAMPLES]
    assert read_metrics(tmp_path / METRICS) == []


def test_a_checkpoint_is_never_removed_unasked(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    with reporter(tmp_path) as report:
        report.start({})
    assert (tmp_path / "checkpoint").is_dir()


def test_the_console_hears_everything(tmp_path: Path) -> None:
    heard: list[str] = []

    class Listener(SilentConsole):
        def __getattribute__(self, name: str) -> Any:
            return lambda *_: heard.append(name)

    with reporter(tmp_path, console=Listener()) as report:
        report.start({})
        report.phase("evaluating")
        report.step(1, {})
        report.sample(1, {})
        report.note("hello")
        report.finish({})
    assert heard == ["start", "phase", "step", "sample", "note", "finish", "close"]


def test_a_picture_that_fails_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr("atrl_agents.plot.draw", broken)
    with reporter(tmp_path) as report:
        report.start({})
        assert report.finish({"accuracy_after": 1.0})["accuracy_after"] == 1.0
    assert strict(tmp_path / SUMMARY)["accuracy_after"] == 1.0


def test_json_lines_are_strict() -> None:
    import torch

    value = {
        "a": float("nan"),
        "b": [float("inf"), torch.tensor(2.0)],
        "c": Verdict.CORRECT,
        "d": Path("x"),
        1: None,
    }
    assert json.loads(json_line(value)) == {"a": None, "b": [None, 2.0], "c": "CORRECT", "d": "x", "1": None}
    assert "\n" not in json_line({"text": "two\nlines"})


def test_tensorboard_by_name(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with reporter(tmp_path, loggers=("tensorboard", "csv")) as report:
        report.start({})
        report.step(1, {"loss": 0.5, "kl": float("nan")})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (event_file,) = (tmp_path / "tensorboard").rglob("events.*")
    events = EventAccumulator(str(event_file.parent)).Reload()
    assert [event.value for event in events.Scalars("loss")] == [0.5]
    assert "kl" not in events.Tags()["scalars"]
    assert list((tmp_path / "csv").rglob("loss.csv"))


@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_other_trackers_go_through_torchrl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls: list[tuple[str, Any]] = []

    class Tracker:
        def log_hparams(self, config: dict[str, Any]) -> None:
            calls.append(("config", config["algorithm"]))

        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            calls.append(("metrics", (step, metrics["loss"])))

        def close(self) -> None:
            calls.append(("close", None))

    def get_logger(kind: str, logger_name: str, experiment_name: str, **kwargs: Any) -> Tracker:
        calls.append((kind, experiment_name))
        return Tracker()

    monkeypatch.setattr("torchrl.record.loggers.get_logger", get_logger)
    with reporter(tmp_path / "run", loggers=(name,)) as report:
        report.start({})
        report.step(1, {"loss": 0.5})
    assert calls == [(name, "run"), ("config", "grpo"), ("metrics", (1, 0.5)), ("close", None)]


# Pictures


def test_draw_one_run_and_several(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with reporter(tmp_path / name) as report:
            report.start({})
            for step in range(1, 30):
                report.step(
                    step, {"success_rate": 0.5, "staleness_mean": 1.0, "staleness_max": 2.0, "seconds": step}
                )
            report.step(30, {"accuracy": 0.8, "seconds": 30})
            report.finish({"accuracy_before": 0.4})
    curves = read(tmp_path / "a")
    assert curves.held_out("step") == ([0.0, 30.0], [0.4, 0.8])
    assert len(curves.of("success_rate", "seconds")[0]) == 29
    target = draw([tmp_path / "a", tmp_path / "b"], tmp_path / "both.png")
    assert target.stat().st_size > 10_000


def test_draw_a_run_without_rows(tmp_path: Path) -> None:
    with reporter(tmp_path) as report:
        report.start({})
        report.finish({})
    assert (tmp_path / CURVE).is_file()
    with pytest.raises(FileNotFoundError, match=r"no metrics\.csv"):
        read(tmp_path / "elsewhere")


def test_rolling_looks_back_only() -> None:
    assert rolling(max, [1, 3, 2, 0, 0], 3) == [1, 3, 3, 3, 2]
