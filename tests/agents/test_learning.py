"""Reinforcement learning alone makes a small model better at a small task, by every algorithm, in seconds."""

from __future__ import annotations

import csv
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atrl_agents.config import ALGORITHMS, OptimConfig, TinyConfig, TrainConfig
from atrl_agents.train import train
from tests.agents.test_train import SMALL

KEPT = ("env", "mode", "threads", "eval_problems", "eval_every", "save_every")
OTHER: dict[str, dict[str, Any]] = {
    "grpo": {"advantage": "rloo"},
    "m2po": {"variant": "authors"},
    "ppo": {"critic": "head", "gae_lambda": 1.0},
}


def learn(config: TrainConfig, folder: Path) -> list[dict[str, str]]:
    config = replace(
        config,
        env=replace(SMALL.env, kwargs={"low": 0, "high": 4}),
        tiny=TinyConfig(layers=2, width=64, heads=2),
        warmup=replace(SMALL.warmup, learning_rate=2e-3, until=0.3, anneal_steps=20),
        warmup_steps=400,
        steps=160,
        epochs=2,  # in the second step on a batch the ratio is no longer 1
        log_every=1000,
        prompts_per_batch=16,
        samples_per_prompt=8,
        optim=OptimConfig(learning_rate=2e-3, ramp_steps=20),
        out=folder / "run",
    )
    train(config)
    with open(folder / "run" / "metrics.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["success_rate"]]


ARMS = [(name, {}) for name in sorted(ALGORITHMS)] + sorted(OTHER.items())


@pytest.mark.parametrize(("algorithm", "settings"), ARMS)
def test_it_learns(tmp_path: Path, algorithm: str, settings: dict[str, Any]) -> None:
    config = ALGORITHMS[algorithm](**{name: getattr(SMALL, name) for name in KEPT})
    rows = learn(replace(config, loss=replace(config.loss, **settings)), tmp_path)
    success = [float(row["success_rate"]) for row in rows]
    before, after = sum(success[:5]) / 5, sum(success[-5:]) / 5
    assert before < 0.3, before
    assert after > 0.6, after
    touched = [float(row["clip_fraction"]) + 1 - float(row["kept_fraction"]) for row in rows if row["m2"]]
    assert algorithm == "cispo" or max(touched) > 0, "no clip or mask has ever acted"
    if algorithm == "ppo":
        # the median: once nearly all are right, there is hardly a variance to explain, and single values say nothing
        explained = statistics.median(float(row["explained_variance"]) for row in rows[-80:])
        assert explained > 0.1, explained
