"""A person's own task, exactly as the README shows it, in a package of their own: trained and evaluated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import atrl_agents

OWN = '''\
import numpy
import atrl_envs


class Doubling(atrl_envs.Task):
    """Twice a number below `limit`."""

    limit: int = 100

    def problem(self, rng: numpy.random.Generator) -> atrl_envs.Problem:
        n = int(rng.integers(self.limit))
        return atrl_envs.Problem(prompt=f"2*{n}=", answer=str(2 * n))


atrl_envs.register("my/Doubling-v0", Doubling, max_new_tokens=6)
'''


def test_under_fifteen_lines_of_code():
    assert len([line for line in OWN.splitlines() if line.strip()]) < 15


def test_an_own_environment_trains_and_is_evaluated(tmp_path):
    (tmp_path / "my_tasks").mkdir()
    (tmp_path / "my_tasks" / "__init__.py").write_text(OWN)
    root = str(Path(atrl_agents.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}

    def atrl(*words: str) -> str:
        command = [sys.executable, "-m", "atrl_agents.cli", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    small = ["--tiny.layers", "1", "--tiny.width", "32", "--tiny.heads", "2", "--prompts-per-batch", "8"]
    atrl(
        "train", "--env.id", "my/Doubling-v0", "--import", "my_tasks", "--env.set", "limit=400",
        "--mode", "async", "--steps", "8", "--warmup-steps", "30", "--eval-problems", "30", "--out", "run", *small,
    )  # fmt: skip
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["steps"] == 8 and summary["staleness_max"] >= 0
    sample = json.loads((tmp_path / "run" / "samples.jsonl").read_text().splitlines()[0])
    assert sample["prompt"].startswith("2*") and int(sample["answer"]) == 2 * int(sample["prompt"][2:-1])
    output = atrl(
        "eval", "run/checkpoint", "--env.id", "my/Doubling-v0", "--import", "my_tasks", "--env.set", "limit=400",
        "--problems", "20", "--samples-per-prompt", "4",
    )  # fmt: skip
    assert "accuracy" in output and "pass at k" in output, output
