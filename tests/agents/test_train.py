"""Whole runs with real parts: what they leave behind, determinism, resume, and how they end."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from atrl_agents.complaints import ConfigError
from atrl_agents.config import (
    DAPOConfig,
    EnvConfig,
    GRPOConfig,
    M2POConfig,
    OptimConfig,
    PPOConfig,
    ThreadsConfig,
    TinyConfig,
    WarmupConfig,
)
from atrl_agents.loss_config import PPOLossConfig
from atrl_agents.train import Run, train
from atrl_collectors.workers import WorkerDied

SMALL = GRPOConfig(
    env=EnvConfig(id="atrl/Addition-v0", kwargs={"low": 0, "high": 9}, block_size=2),
    mode="sync",
    tiny=TinyConfig(layers=1, width=32, heads=2),
    optim=OptimConfig(learning_rate=1e-3),
    warmup=WarmupConfig(batch_size=32, learning_rate=5e-3, weight_decay=0.1),
    threads=ThreadsConfig(trainer=1, worker=1),
    prompts_per_batch=4,
    samples_per_prompt=4,
    steps=6,
    warmup_steps=150,
    eval_problems=10,
    eval_every=0,
    log_every=2,
    save_every=0,
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint" / "model.safetensors")


def assert_same_weights(one: Path, two: Path) -> None:
    a, b = weights(one), weights(two)
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different, f"differ: {different}"


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def sync_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "sync"
    train(replace(SMALL, out=folder))
    return folder


def test_a_run_leaves_everything_behind(sync_run):
    names = {path.name for path in sync_run.iterdir()}
    assert {"config.json", "metrics.csv", "samples.jsonl", "curve.png", "summary.json", "checkpoint"} <= names
    assert not [name for name in names if name.startswith(".weights")]
    summary = json.loads((sync_run / "summary.json").read_text())
    for field in (
        "accuracy_before", "accuracy_after", "train_seconds", "steps", "completions_per_second",
        "tokens_per_second", "staleness_mean", "staleness_max",
    ):  # fmt: skip
        assert isinstance(summary[field], (int, float)), field
    assert summary["steps"] == 6 and summary["staleness_max"] == 0
    assert summary["tokens_generated"] == summary["tokens_trained"] + sum(summary["tokens_dropped"].values())
    samples = [json.loads(line) for line in (sync_run / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 3 and {"prompt", "completion", "answer", "verdict", "version"} <= samples[0].keys()
    steps = [row for row in rows(sync_run) if row["success_rate"]]
    assert [int(float(row["step"])) for row in steps] == [1, 2, 3, 4, 5, 6]
    assert any(float(row["grad_norm"]) > 0 for row in steps), "something was learned from"
    model = AutoModelForCausalLM.from_pretrained(sync_run / "checkpoint")
    tokenizer = AutoTokenizer.from_pretrained(sync_run / "checkpoint")
    assert tokenizer.decode(tokenizer.encode("1+2=")) == "1+2=" and model.config.vocab_size == len(tokenizer)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(sync_run, tmp_path):
    train(replace(SMALL, out=tmp_path / "again"))
    assert_same_weights(sync_run, tmp_path / "again")
    train(replace(SMALL, seed=1, out=tmp_path / "other"))
    a, b = weights(sync_run), weights(tmp_path / "other")
    assert any(not torch.equal(a[name], b[name]) for name in a)


def test_asynchronous_with_staleness_zero_is_the_synchronous_run(sync_run, tmp_path):
    summary = train(replace(SMALL, mode="async", max_staleness=0, out=tmp_path / "async"))
    assert summary["staleness_max"] == 0
    assert_same_weights(sync_run, tmp_path / "async")


def test_asynchronous_staleness_is_bounded(tmp_path):
    summary = train(replace(SMALL, mode="async", max_staleness=2, steps=12, out=tmp_path / "async"))
    assert 0 < summary["staleness_max"] <= 2
    assert summary["tokens_generated"] == summary["tokens_trained"] + sum(summary["tokens_dropped"].values())


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_resume_continues_a_synchronous_run_bit_for_bit(sync_run, tmp_path, monkeypatch, stop):
    folder = tmp_path / "halves"
    one_step = Run._one_step

    def ask_to_stop(self):
        one_step(self)
        self.interrupts.asked = self.step == stop  # as Ctrl-C does

    monkeypatch.setattr(Run, "_one_step", ask_to_stop)
    assert train(replace(SMALL, out=folder))["steps"] == stop
    monkeypatch.undo()
    summary = train(replace(SMALL, out=folder, resume=True))
    assert summary["steps"] == 6
    assert_same_weights(sync_run, folder)
    for whole, halves in zip(
        [r for r in rows(sync_run) if r["success_rate"]],
        [r for r in rows(folder) if r["success_rate"]],
        strict=True,
    ):
        for name in ("step", "success_rate", "loss", "grad_norm", "episodes", "tokens_trained"):
            assert whole[name] == halves[name], name


@pytest.mark.parametrize(
    "config",
    [
        PPOConfig(loss=PPOLossConfig(critic="own")),
        PPOConfig(loss=PPOLossConfig(critic="head", kl_weight=0.01)),
        M2POConfig(epochs=2),
        DAPOConfig(dynamic_sampling=2),
    ],
    ids=["ppo", "ppo head with a reference", "m2po", "dapo"],
)
def test_resume_continues_every_kind_of_learner_bit_for_bit(tmp_path, monkeypatch, config):
    shared = {field.name: getattr(SMALL, field.name) for field in fields(SMALL)}
    mine = {name: getattr(config, name) for name in ("loss", "epochs", "dynamic_sampling")}
    config = type(config)(**(shared | mine))
    train(replace(config, out=tmp_path / "whole"))
    one_step = Run._one_step

    def ask_to_stop(self):
        one_step(self)
        self.interrupts.asked = self.step == 3

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_one_step", ask_to_stop)
        train(replace(config, out=tmp_path / "halves"))
    train(replace(config, out=tmp_path / "halves", resume=True))
    assert_same_weights(tmp_path / "whole", tmp_path / "halves")


def test_zero_contrast_groups_change_nothing_but_time(sync_run):
    """The learner leaves groups without contrast out; putting them in gives the same gradient."""
    from atrl_agents import models
    from atrl_agents.evaluate import collect
    from atrl_agents.learner import Learner
    from atrl_agents.workers import EnvRecipe, sampling_policy

    torch.set_num_threads(1)
    model, vocab = models.load(str(sync_run / "checkpoint"))
    env = EnvRecipe(replace(SMALL, out=sync_run), vocab)()
    actor = sampling_policy(model, vocab, SMALL, env.max_new_tokens)
    batch = collect(env, actor, groups=4)
    batch["reward"] = torch.tensor([1.0, 0, 0, 1] + [0.0] * 4 + [1.0] * 4 + [0.0, 0, 0, 1])
    batch["verdict"] = batch["reward"].eq(0).to(torch.int8)
    gradients = []
    for everything in (False, True):
        learner = Learner(actor, SMALL, env.max_new_tokens)
        if everything:
            micro_batches = learner._micro_batches
            learner._micro_batches = lambda b, contrast, f=micro_batches: f(b, torch.ones_like(contrast))
        learner.optimizer.step = lambda: None
        learner.update(batch.clone())
        gradients.append(torch.cat([p.grad.flatten().clone() for p in model.parameters()]))
    # the same sums with exact zeros among them, blocked differently
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-7)


SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from dataclasses import replace
from atrl_agents.train import Run, train
from tests.agents.test_train import SMALL
if __name__ == "__main__":
    train(replace(SMALL, mode={mode!r}, steps=100000, save_every=1, out=Path({out!r})))
"""


def start(tmp_path: Path, mode: str, own_session: bool = False) -> tuple[subprocess.Popen, Path]:
    script, out = tmp_path / "run.py", tmp_path / "out"
    script.write_text(SCRIPT.format(paths=[p for p in sys.path if p], mode=mode, out=str(out)))
    process = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=own_session,
    )
    deadline = time.monotonic() + 120
    while not (out / "metrics.csv").exists() or len(rows(out)) < 2:  # the evaluation before, and a step
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline, "the run did not get to its first step"
        time.sleep(0.05)
    return process, out


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_ctrl_c_saves_and_the_run_can_go_on(tmp_path, mode):
    process, out = start(tmp_path, mode)
    workers = children(process.pid)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["outcome"] == "interrupted" and summary["steps"] >= 1
    deadline = time.monotonic() + 20
    while left := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.1)
    steps = summary["steps"]
    again = train(replace(SMALL, mode=mode, steps=steps + 2, out=out, resume=True))
    assert again["steps"] == steps + 2 and again["outcome"] == "finished"


def test_ctrl_c_in_the_warm_start_ends_at_once_and_says_so(tmp_path):
    script, out = tmp_path / "run.py", tmp_path / "out"
    text = SCRIPT.format(paths=[p for p in sys.path if p], mode="sync", out=str(out))
    script.write_text(
        text.replace("steps=100000", "warmup_steps=10**6, warmup=replace(SMALL.warmup, until=2.0)")
    )
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 120
    while not (out / "config.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "--overwrite" in output, output
    assert json.loads((out / "summary.json").read_text())["outcome"] == "interrupted"
    assert not (out / "checkpoint").exists()


def test_a_batch_without_contrast_moves_a_resumed_run_as_it_moves_any(tmp_path, monkeypatch):
    """The optimiser's momentum goes on when there is no gradient, whether or not the run was interrupted before."""
    from atrl_agents.learner import Learner

    monkeypatch.setattr(Learner, "advantage", lambda self, reward, valid: one_advantage(self, reward, valid))

    def one_advantage(self, reward, valid):  # contrast in the first three updates only
        return torch.linspace(-1, 1, reward.shape[0]) if self.updates < 3 else torch.zeros_like(reward)

    config = replace(SMALL, optim=OptimConfig(learning_rate=1e-3, ramp_steps=2))
    train(replace(config, out=tmp_path / "whole"))
    one_step = Run._one_step

    def ask_to_stop(self):
        one_step(self)
        self.interrupts.asked = self.step == 3

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_one_step", ask_to_stop)
        train(replace(config, out=tmp_path / "halves"))
    train(replace(config, out=tmp_path / "halves", resume=True))
    assert_same_weights(tmp_path / "whole", tmp_path / "halves")


def test_sequences_longer_than_the_models_positions_are_refused_before_any_work(tmp_path):
    config = replace(SMALL, env=replace(SMALL.env, max_new_tokens=100_000), out=tmp_path / "out")
    with pytest.raises(ConfigError, match="2048 positions"):
        train(config)
    assert not (tmp_path / "out").exists()


def test_an_asynchronous_run_from_standard_input_is_refused_before_any_work(tmp_path):
    script = SCRIPT.format(paths=[p for p in sys.path if p], mode="async", out=str(tmp_path / "out"))
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "save the script to a file" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_killed_worker_is_named_and_the_checkpoint_is_usable(tmp_path):
    process, out = start(tmp_path, "async")
    victims = [
        pid for pid in children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(victims[0], signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "rollout worker 0 of 1" in output and "SIGKILL" in output, output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["outcome"] == "worker died" and "SIGKILL" in summary["cause"]
    AutoModelForCausalLM.from_pretrained(out / "checkpoint")
    again = train(replace(SMALL, steps=summary["steps"] + 1, out=out, resume=True))
    assert again["steps"] == summary["steps"] + 1


def test_an_env_that_raises_in_the_worker_stops_the_run_with_its_cause(tmp_path, monkeypatch):
    package = tmp_path / "faulty_tasks.py"
    package.write_text(
        textwrap.dedent(
            """
            import multiprocessing
            import atrl_envs

            class Faulty(atrl_envs.Task):
                "Raises in a worker."
                def problem(self, rng):
                    if multiprocessing.parent_process() is not None:
                        raise ZeroDivisionError("planted fault")
                    n = int(rng.integers(50))
                    return atrl_envs.Problem(prompt=f"{n}=", answer=str(n))

            atrl_envs.register("faulty/Task-v0", Faulty, max_new_tokens=4)
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    env = EnvConfig(id="faulty_tasks:faulty/Task-v0", block_size=2)
    with pytest.raises(WorkerDied, match="planted fault"):
        train(replace(SMALL, env=env, mode="async", out=tmp_path / "out"))
    AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "checkpoint")
