"""Reinforcement learning alone makes a small model better at a small task, in a few seconds on one core."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from atrl_agents.config import GRPOLossConfig, OptimConfig, TinyConfig
from atrl_agents.train import train
from tests.agents.test_train import SMALL


@pytest.mark.parametrize("advantage", ["grpo", "dr_grpo", "rloo"])
def test_it_learns(tmp_path, advantage):
    config = replace(
        SMALL,
        env=replace(SMALL.env, kwargs={"low": 0, "high": 4}),
        tiny=TinyConfig(layers=2, width=64, heads=2),
        warmup=replace(SMALL.warmup, learning_rate=2e-3, until=0.3, anneal_steps=20),
        warmup_steps=400,
        steps=250,
        log_every=1000,
        prompts_per_batch=16,
        samples_per_prompt=8,
        optim=OptimConfig(learning_rate=2e-3, ramp_steps=20),
        loss=GRPOLossConfig(advantage=advantage),
        out=tmp_path / "run",
    )
    train(config)
    with open(tmp_path / "run" / "metrics.csv", newline="") as file:
        success = [float(row["success_rate"]) for row in csv.DictReader(file) if row["success_rate"]]
    before, after = sum(success[:5]) / 5, sum(success[-5:]) / 5
    assert before < 0.3 and after > 0.6, (before, after)
