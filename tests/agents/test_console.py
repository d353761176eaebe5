"""What a person sees: fixed order, success first, one sample an interval, on a terminal and elsewhere."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console as Terminal

from atrl_agents.config import EnvConfig, GRPOConfig
from atrl_agents.console import PlainConsole, SilentConsole, clock, make_console, readings, sample_line
from atrl_agents.console_live import LiveConsole, sample_text, sparkline

CONFIG = GRPOConfig(steps=10, log_every=5, env=EnvConfig(kwargs={"low": 0, "high": 9}))
METRICS = {
    "tokens_per_second": 3210.4,
    "success_rate": 0.25,
    "staleness_max": 2,
    "staleness_mean": 0.5,
    "grad_norm": 0.8123,
    "trainer_wait_fraction": 0.12,
    "worker_wait_fraction": 0.03,
    "seconds": 61.0,
}
SAMPLE = {"prompt": "2+2=", "completion": "5\n", "answer": "4", "verdict": "WRONG"}
SUMMARY = {
    "accuracy_before": 0.5,
    "accuracy_after": 0.9375,
    "accuracy_after_interval": [0.91, 0.96],
    "steps": 10,
    "train_seconds": 84.2,
    "completions_per_second": 512.0,
    "tokens_per_second": 3210.0,
    "staleness_mean": 0.5,
    "staleness_max": 2,
}


def run(console: Any, steps: int = 10) -> None:
    console.start({"parameters": 400_000})
    console.phase("warm start")
    for step in range(1, steps + 1):
        console.sample(step, {**SAMPLE, "prompt": f"{step}+2="})
        console.step(step, {**METRICS, **({"accuracy": 0.75} if step == 7 else {})})
    console.note("a note")
    console.finish(SUMMARY)
    console.close()
    console.close()


def plain(tmp_path: Path) -> list[str]:
    out = io.StringIO()
    console = make_console(CONFIG, tmp_path, out)
    assert isinstance(console, PlainConsole)
    run(console)
    return out.getvalue().splitlines()


def test_plain_lines_lead_with_success_in_a_fixed_order(tmp_path: Path) -> None:
    lines = [line for line in plain(tmp_path) if line.startswith("step")]
    assert lines == [
        "step  5/10  success 25.0%  grad 0.812  staleness 0.5 / 2  tokens/s 3,210  "
        "waits trainer/worker 12% / 3%  seconds 61",
        "step  7/10  success 25.0%  grad 0.812  staleness 0.5 / 2  tokens/s 3,210  "
        "waits trainer/worker 12% / 3%  held-out 75.0%  seconds 61",
        "step 10/10  success 25.0%  grad 0.812  staleness 0.5 / 2  tokens/s 3,210  "
        "waits trainer/worker 12% / 3%  seconds 61",
    ]


def test_plain_shows_one_sample_an_interval_and_where_the_files_are(tmp_path: Path) -> None:
    lines = plain(tmp_path)
    assert [line.strip() for line in lines if "WRONG" in line] == [
        f"{step}+2= | 5\\n | WRONG (answer 4)" for step in (5, 7, 10)
    ]
    assert "high=9" in lines[0]
    assert str(tmp_path) in lines[1]
    assert {"warm start", "a note", "parameters 400,000"} <= set(lines)
    assert "held-out accuracy  50.0% -> 93.8% [91.0, 96.0]" in lines
    assert lines[-1].startswith(f"files              {tmp_path}/")


def test_a_sample_after_its_step_is_not_held_back(tmp_path: Path) -> None:
    out = io.StringIO()
    console = PlainConsole(CONFIG, tmp_path, out)
    console.step(5, METRICS)
    console.sample(5, SAMPLE)
    console.sample(6, SAMPLE)
    assert out.getvalue().count("WRONG") == 1


def test_a_phase_is_told_once(tmp_path: Path) -> None:
    out = io.StringIO()
    console = PlainConsole(CONFIG, tmp_path, out)
    for step in range(5):
        console.phase(f"warm start: step {step}")
    console.phase("")
    console.phase("evaluating")
    assert out.getvalue().splitlines() == ["warm start: step 0", "evaluating"]


def test_what_is_not_measured_is_left_out() -> None:
    assert readings({"success_rate": 1.0, "step": 3}) == [("success", "100.0%")]
    assert readings({}) == []


def test_ending_of_a_run_that_was_not_evaluated(tmp_path: Path) -> None:
    out = io.StringIO()
    PlainConsole(CONFIG, tmp_path, out).finish({})
    assert "not measured -> not measured" in out.getvalue()


def test_long_samples_keep_their_end() -> None:
    line = sample_line(
        {"prompt": "p", "completion": "a" * 500 + "42", "verdict": "CORRECT", "answer": "42"}, 60
    )
    assert len(line) < 120
    assert line.endswith("aaa42 | CORRECT")


def test_a_terminal_gets_one_panel_with_the_same_readings(tmp_path: Path) -> None:
    out = io.StringIO()
    terminal = Terminal(file=out, force_terminal=True, width=100, height=40, color_system=None, _environ={})
    run(LiveConsole(CONFIG, tmp_path, terminal))
    screen = out.getvalue().rpartition("╭")[2]  # the last drawing
    where = [
        screen.index(name)
        for name in ("success", "grad", "staleness", "tokens/s", "waits", "held-out", "WRONG")
    ]
    assert where == sorted(where)
    assert "step 10/10" in screen
    assert "finished" in screen
    assert "75.0%" in screen  # the last evaluation stays
    assert "a note" in out.getvalue()
    assert "93.8%" in screen


def test_make_console_asks_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_console(CONFIG, tmp_path, io.StringIO()), LiveConsole)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_console(CONFIG, tmp_path, io.StringIO()), PlainConsole)


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    run(SilentConsole())
    assert capsys.readouterr().out == ""


def test_sparkline() -> None:
    assert sparkline([], 10) == ""
    assert sparkline([0.0, 0.5, 1.0], 10) == "▁▅█"
    assert sparkline([i / 999 for i in range(1000)], 8) == "▁▂▃▄▅▆▇█"


def test_sample_text_has_the_verdict_and_stays_short() -> None:
    text = sample_text(
        {"prompt": "[bold]", "completion": "x" * 5000 + "end", "verdict": "MISSING", "answer": "1"}, 80
    )
    assert text.plain.endswith("end   MISSING (answer 1)")
    assert len(text) < 300
    assert sample_text({"prompt": "[bold]1", "verdict": "CORRECT"}, 80).plain.startswith("[bold]1")


def test_clock() -> None:
    assert [clock(s) for s in (0.9, 75, 3725)] == ["0:00", "1:15", "1:02:05"]
