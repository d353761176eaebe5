"""The laboratory: data of exactly the asked age, no run twice, a table and a figure of what came out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atrl_agents import lab as lab_module
from atrl_agents.claim import claimed
from atrl_agents.cli import main
from atrl_agents.complaints import ConfigError
from atrl_agents.config import EnvConfig, TinyConfig, WarmupConfig
from atrl_agents.delay_line import delayed_run
from atrl_agents.lab import RUNS, Arm, LabConfig, arms, run_all, train_config_of
from atrl_agents.lab_report import collapsed, half_width, probe_table, report, spread, summarise

SMALL = LabConfig(
    algorithms=("grpo", "m2po:variant=ratio,gamma=2", "ppo"),
    staleness=(0, 3),
    seeds=1,
    steps=6,
    env=EnvConfig(id="atrl/Addition-v0", kwargs={"low": 0, "high": 4}, block_size=4),
    warmup=WarmupConfig(batch_size=32, learning_rate=5e-3, weight_decay=0.1),
    warmup_steps=150,
    tiny=TinyConfig(layers=1, width=32, heads=2),
    prompts_per_batch=4,
    samples_per_prompt=4,
    eval_problems=10,
    probe_every=2,
    processes=1,
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[LabConfig, list[dict[str, object]]]:
    lab = replace(SMALL, out=tmp_path_factory.mktemp("lab"))
    return lab, run_all(lab, lambda line: None)


def test_every_arm_runs_once_and_is_kept(rows: tuple[LabConfig, list[dict[str, object]]]) -> None:
    lab, found = rows
    assert len(found) == len(arms(lab)) == 6
    said: list[str] = []
    whole = (lab.out / RUNS).read_text().splitlines()
    (lab.out / RUNS).write_text("\n".join(whole)[:-40])  # killed while it wrote
    again = run_all(lab, said.append)
    assert len(said) == 1, "the torn one is made again, and its line is a line of its own"
    timeless = [sorted(json.dumps({**row, "seconds": 0}) for row in r) for r in (again, found)]
    assert timeless[0] == timeless[1]
    assert run_all(lab, said.append) == again
    assert len(said) == 1
    assert {row["steps"] for row in found} == {6}


def test_stale_data_has_another_gradient_than_fresh(rows: tuple[LabConfig, list[dict[str, object]]]) -> None:
    _, found = rows
    fresh, stale = (
        next(row for row in found if row["algorithm"] == "grpo" and row["staleness"] == age) for age in (0, 3)
    )
    assert fresh["m2"] == pytest.approx(0.0, abs=1e-6)
    assert float(str(stale["m2"])) > 1e-6
    assert fresh["accuracy_before"] == stale["accuracy_before"]
    probe = dict(fresh["probe"])  # type: ignore[call-overload]
    # on policy nothing is clipped or dropped: all objectives have one gradient, but for the m2po's token mean
    assert probe["clip"] == pytest.approx(probe["unclipped"], rel=1e-4)
    assert probe["m2po paper"] == pytest.approx(probe["clip"], rel=1e-4)


def test_the_delay_line_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from atrl_agents.policies.transformers_policy import TransformersPolicy

    monkeypatch.setattr(TransformersPolicy, "set_version", lambda self, version: None)
    config = train_config_of(replace(SMALL, out=tmp_path), "grpo", seed=0)
    with pytest.raises(AssertionError, match="tokens of versions 0 to 0, wanted 1"):
        delayed_run(config, staleness=1)


def test_table_and_figure(rows: tuple[LabConfig, list[dict[str, object]]], tmp_path: Path) -> None:
    _, found = rows
    text = report(found, tmp_path)
    assert "| m2po:variant=ratio,gamma=2 | 3 | 1 |" in text
    assert "| cut by m2po ratio |" in text
    assert "| algorithm, at staleness | 0 | 3 |" in text
    assert (tmp_path / "staleness.png").stat().st_size > 10_000
    assert (tmp_path / "table.md").read_text().strip() in text


def test_what_counts_as_collapse_and_the_interval() -> None:
    row = {"diverged": False, "success_curve": [0.2, 0.8, 0.5]}
    assert not collapsed(row)
    assert collapsed({**row, "success_curve": [0.2, 0.8, 0.39]})
    assert collapsed({**row, "diverged": True})
    values = [0.4, 0.5, 0.6, 0.5, 0.5]  # their variance is 0.005
    assert half_width(values) == pytest.approx(2.776 * math.sqrt(0.005 / 5))
    assert math.isinf(half_width([0.4]))
    assert (spread([0.4]), spread(values)) == ("40 %", "50 ± 9 %")
    blank = {"accuracy_after": 0.1, "grad_norm": 1, "grad_norm_variance": 0, "m2": 0, "masked": 0}
    shared = {"algorithm": "grpo", "staleness": 1, **row, **blank}
    many = [{**shared, "seed": seed, "success": 0.1 * seed} for seed in range(3)]
    (summary,) = summarise(many)
    assert summary["runs"] == 3
    assert summary["success"] == pytest.approx(0.1)


def test_runs_of_a_seed_are_no_independent_ones() -> None:
    """Twice the algorithms on the same seeds make no interval narrower."""
    rows = [
        {
            "algorithm": name,
            "staleness": 1,
            "seed": seed,
            "probe": {"clip": 1.0, "m2po ratio": 0.9 - 0.1 * seed},
        }
        for seed in range(3)
        for name in ("grpo", "ppo", "dapo")
    ]
    assert probe_table(rows) == probe_table(rows[::3])
    assert "| 20 ± 25 % |" in probe_table(rows)


def test_runs_of_other_settings_are_not_mixed_in(rows: tuple[LabConfig, list[dict[str, object]]]) -> None:
    lab, _ = rows
    with pytest.raises(ConfigError, match="another steps, eval_problems"):
        run_all(replace(lab, steps=7, eval_problems=5))
    assert len(arms(replace(lab, staleness=(0, 0), algorithms=("grpo", "grpo")))) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"algorithms": ("grop",)}, "grop"),
        ({"algorithms": ("m2po:variant",)}, "NAME=VALUE"),
        ({"algorithms": ("m2po:variant=mine",)}, "lists the settings"),
        ({"algorithms": ()}, "nothing to compare"),
        ({"staleness": (-1,)}, "0 or more"),
        ({"seeds": 0}, "at least 1"),
    ],
)
def test_what_cannot_work_is_said_before_the_first_run(
    tmp_path: Path, change: dict[str, object], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=says):
        run_all(replace(SMALL, out=tmp_path / "lab", **change))  # type: ignore[arg-type]
    assert not (tmp_path / "lab").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "lab staleness --algorithms grpo --staleness 1 --seeds 1 --steps 3 --warmup-steps 20 --tiny.layers 1 "
        "--tiny.width 32 --prompts-per-batch 4 --samples-per-prompt 4 --eval-problems 5 --processes 1"
    )
    assert main([*words.split(), "--out", str(tmp_path)]) == 0
    assert "| grpo | 1 | 1 |" in capsys.readouterr().out
    assert main(["lab", "steadiness"]) == 2
    assert "atrl lab staleness" in capsys.readouterr().err


def test_a_torn_folder_is_named_or_mended(tmp_path: Path) -> None:
    lab = replace(SMALL, out=tmp_path, algorithms=("grpo",), staleness=(0,))
    (tmp_path / "settings.json").write_text('{"steps": ', encoding="utf-8")
    with pytest.raises(ConfigError, match="settings.json is damaged"):
        run_all(lab, lambda line: None)
    (tmp_path / "settings.json").unlink()
    (tmp_path / "warm-0.new").mkdir()  # a kill while the model was being written
    (tmp_path / "warm-0.new" / "config.json").write_text("{}", encoding="utf-8")
    (row,) = run_all(lab, lambda line: None)
    runs = tmp_path / "runs.jsonl"
    runs.write_text("7\n" + runs.read_text(encoding="utf-8") * 2 + '{"algorithm": "gr', encoding="utf-8")
    assert run_all(lab, lambda line: None) == [row], "twice is once, and what is no row is none"


def test_an_arm_that_fails_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In threads, so that the fault can be planted."""
    from concurrent.futures import ThreadPoolExecutor

    def run(lab: LabConfig, arm: Arm) -> dict[str, Any]:
        if arm.staleness == 1:
            raise RuntimeError("planted")
        key = {"algorithm": arm.algorithm, "staleness": arm.staleness, "seed": arm.seed}
        return {**key, "success": 0.5, "success_curve": [0.1], "seconds": 1.0}

    monkeypatch.setattr(lab_module, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(1))
    monkeypatch.setattr(lab_module, "run_arm", run)
    monkeypatch.setattr(lab_module, "warm_model", lambda lab, seed: 0.1)
    lab = replace(SMALL, out=tmp_path, algorithms=("grpo",), staleness=(0, 1, 2))
    with pytest.raises(RuntimeError, match="planted"):
        run_all(lab, lambda line: None)
    kept = [json.loads(line)["staleness"] for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert sorted(kept) == [0, 2]


def test_two_laboratories_do_not_share_a_folder(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(ConfigError, match="another run is writing"):
        run_all(replace(SMALL, out=tmp_path), lambda line: None)
