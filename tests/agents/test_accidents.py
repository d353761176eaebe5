"""What goes wrong around a run: signals, full disks, readers that leave, torn files, two runs in one folder."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from atrl_agents import checkpoint, config_file
from atrl_agents.arguments import train_config
from atrl_agents.claim import claimed
from atrl_agents.complaints import ConfigError, enough_memory, raised_in
from atrl_agents.config import GRPOConfig, ThreadsConfig, TinyConfig, WarmupConfig
from atrl_agents.config_check import check, new_folder
from atrl_agents.console import PlainConsole
from atrl_agents.eval_command import checkpoint_of
from atrl_agents.interrupts import Interrupted, Interrupts
from atrl_agents.learner import Diverged, Learner
from atrl_agents.report import Reporter
from atrl_agents.run_files import read_metrics, read_samples
from atrl_agents.train import Run, train
from atrl_agents.warmup import warm_up
from atrl_collectors.direct import DirectCollector
from tests.agents.test_train import SCRIPT, SMALL, assert_same_weights, rows, start, weights

QUICK = replace(SMALL, warmup_steps=30)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happened to."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(replace(SMALL, out=folder))
    return folder


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


# Rewards of one's own


@pytest.mark.parametrize(
    ("reward", "error", "says"),
    [
        ("tests.agents.rewards_of_a_user:raises", ZeroDivisionError, "zero"),
        ("tests.agents.rewards_of_a_user:raises_on_texts", RuntimeError, "'raises_on_texts' failed"),
        ("tests.agents.rewards_of_a_user:one_number", ConfigError, "must return a tensor"),
        ("tests.agents.rewards_of_a_user:infinite", ConfigError, "must return finite numbers"),
    ],
)
def test_a_reward_that_cannot_work_is_found_before_the_warm_start(
    tmp_path: Path, reward: str, error: type[Exception], says: str
) -> None:
    rewards = {"correctness": 1.0, reward: 0.1}
    with pytest.raises(error, match=says):
        train(replace(QUICK, env=replace(QUICK.env, rewards=rewards), out=tmp_path / "out"))
    assert not (tmp_path / "out" / "metrics.csv").exists()


# Stopped in the middle of a step


def test_an_interrupt_in_the_middle_of_a_batch_loses_none_of_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some groups of the next batch are there already when the run stops; the resumed run has all of them."""
    folder, run = tmp_path / "halves", []
    go, collect_more = Run.go, DirectCollector.collect_more

    def remember(self: Run) -> Any:
        run.append(self)
        return go(self)

    def some_and_then_stop(self: DirectCollector) -> bool:
        came = collect_more(self)
        run[0].interrupts.asked = run[0].step == 3 and came and self.buffer.next_group > 12
        return came

    config = replace(SMALL, env=replace(SMALL.env, num_envs=4))  # a group at a time
    train(replace(config, out=tmp_path / "whole"))
    with monkeypatch.context() as patch:
        patch.setattr(Run, "go", remember)
        patch.setattr(DirectCollector, "collect_more", some_and_then_stop)
        assert train(replace(config, out=folder))["steps"] == 3
    assert run[0].buffer.next_group > 12, "a group of the fourth batch had come"
    again = train(replace(config, out=folder, resume=True))
    assert again["steps"] == 6
    assert again["tokens_generated"] == again["tokens_trained"] + sum(again["tokens_dropped"].values())
    assert_same_weights(tmp_path / "whole", folder)


def test_an_interrupted_evaluation_does_not_undo_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heed = Run._heed

    def ask(self: Run) -> None:
        if self.step == 2 and self.collector is not None:  # first asked inside the evaluation after step 2
            self.interrupts.asked = True
        heed(self)

    monkeypatch.setattr(Run, "_heed", ask)
    summary = train(replace(QUICK, eval_every=2, out=tmp_path / "out"))
    assert (summary["steps"], summary["outcome"]) == (2, "interrupted")
    assert [row["step"] for row in rows(tmp_path / "out")] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), ZeroDivisionError("of a task")]
)
def test_an_error_in_the_loop_saves_and_the_run_can_go_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    folder, update = tmp_path / "halves", Learner.update

    def fail(self: Learner, batch: Any) -> dict[str, float]:
        if self.updates == 3:
            raise error
        return update(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "update", fail)
        with pytest.raises(type(error)):
            train(replace(SMALL, out=folder))
    summary = summary_of(folder)
    assert (summary["outcome"], summary["steps"]) == ("failed", 3)
    assert type(error).__name__ in summary["cause"]
    train(replace(SMALL, out=folder, resume=True))
    assert_same_weights(whole, folder)


def test_the_warm_start_is_saved_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL can come any time; here the process is as good as dead in its first step."""
    seen: list[set[str]] = []

    def stop(self: Run) -> None:
        seen.append({path.name for path in (self.folder / "checkpoint").iterdir()})
        raise Interrupted

    monkeypatch.setattr(Run, "_one_step", stop)
    train(replace(QUICK, save_every=100, out=tmp_path / "out"))
    assert {"model.safetensors", "trainer_state.pt"} <= seen[0]


# Signals


def test_only_a_person_is_impatient(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)  # ignored where a shell has put the tests in the background
    with Interrupts() as interrupts:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.raise_signal(number)  # the last is part of the same request: it comes at once
        assert interrupts.asked
        assert capfd.readouterr().err.count("stopping") == 1
        time.sleep(0.6)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGHUP)
            assert not interrupts.asked
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_scheduler_that_ends_all_processes_at_once_gets_a_saved_run(tmp_path: Path) -> None:
    """Workers may die of SIGTERM before the trainer has heard of it; a terminal that closes is such an end, too."""
    process, out = start(tmp_path, "async", own_session=True)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert summary_of(out)["outcome"] == "interrupted"
    assert not list(out.glob(".weights*"))
    train(replace(SMALL, mode="sync", steps=summary_of(out)["steps"] + 1, out=out, resume=True))


def test_a_run_whose_reader_leaves_saves_and_stops(tmp_path: Path) -> None:
    script, out = tmp_path / "run.py", tmp_path / "out"
    script.write_text(SCRIPT.format(paths=[p for p in sys.path if p], mode="sync", out=str(out)))
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    error = process.stderr.read()
    process.wait(120)
    assert "Traceback" not in error
    summary = summary_of(out)
    assert summary["outcome"] == "interrupted"
    assert "standard output" in summary["cause"]


def test_the_console_shows_what_an_encoding_lacks_by_its_code(tmp_path: Path) -> None:
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, encoding="ascii")
    PlainConsole(GRPOConfig(), tmp_path, terminal).note("7é ▁")
    assert raw.getvalue() == b"7\\xe9 \\u2581\n"


def test_a_console_that_fails_is_noticed_and_costs_nothing(tmp_path: Path) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with Reporter(QUICK, tmp_path, PlainConsole(QUICK, tmp_path, Closed())) as report:
        report.start({})
        report.step(1, {"loss": 0.5})
        report.finish({})
        assert "Broken pipe" in report.unheard
    assert read_metrics(tmp_path / "metrics.csv")[0]["loss"] == 0.5


# Numbers


def test_numbers_that_are_none_end_the_run_and_spare_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(QUICK, save_every=1, out=tmp_path / "out")
    publish = Run._publish

    def spoil(self: Run) -> None:
        if self.step == 3:
            next(iter(self.model.parameters())).data.fill_(torch.nan)
        publish(self)

    monkeypatch.setattr(Run, "_publish", spoil)
    with pytest.raises(Diverged, match="not finite"):
        train(config)
    assert summary_of(tmp_path / "out")["outcome"] == "failed"
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(tmp_path / "out").values())
    state = torch.load(tmp_path / "out" / "checkpoint" / checkpoint.STATE, weights_only=True)
    assert state["step"] == 2, "the last one whose weights were numbers"


def test_a_gradient_that_is_none_leaves_the_weights_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from atrl_agents import models
    from atrl_agents.evaluate import collect
    from atrl_agents.workers import EnvRecipe, sampling_policy

    model, vocab = models.load("tiny", tiny=SMALL.tiny)
    env = EnvRecipe(SMALL, vocab)()
    actor = sampling_policy(model, vocab, SMALL, env.max_new_tokens)
    batch = collect(env, actor, groups=4)
    batch["reward"] = torch.linspace(-1, 1, len(batch))
    learner = Learner(actor, SMALL, env.max_new_tokens)
    before = [parameter.clone() for parameter in model.parameters()]
    monkeypatch.setattr(Learner, "advantage", lambda self, reward, valid: torch.full_like(reward, torch.inf))
    with pytest.raises(Diverged, match="gradient"):
        learner.update(batch.clone())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    monkeypatch.undo()
    for name in ("reward", "log_prob"):
        spoilt = batch.clone()
        spoilt[name].view(-1)[0] = torch.nan
        with pytest.raises(Diverged, match="not finite"):
            learner.update(spoilt)
    actor.response_log_probs = lambda *_: SimpleNamespace(
        log_prob=torch.full((32, 4), torch.nan, requires_grad=True), likeliest=torch.zeros(32, 4)
    )
    with pytest.raises(Diverged, match=r"warm start.*--warmup\.learning-rate"):
        warm_up(actor, env.bank, WarmupConfig(batch_size=32), steps=3, seed=0)


@pytest.mark.parametrize(
    ("config", "flag"),
    [
        (replace(QUICK, threads=ThreadsConfig(trainer=100_000)), "--threads.trainer"),
        (replace(QUICK, tiny=TinyConfig(layers=10**9)), "--tiny.layers"),
        (replace(QUICK, max_uses=10**30), "--max-uses"),
        (replace(QUICK, warmup=WarmupConfig(batch_size=10**20)), "--warmup.batch-size"),
        (replace(QUICK, env=replace(QUICK.env, max_new_tokens=10**20)), "--env.max-new-tokens"),
        (replace(QUICK, seed=2**63), "--seed"),
    ],
)
def test_numbers_too_large_for_any_machine_are_refused(config: GRPOConfig, flag: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=rf"^got {flag} \d+; it must be at most \d+; give a smaller {flag}$"
    ):
        check(replace(config, out=tmp_path / "out"))


def test_sizes_beyond_the_memory_are_bad_input(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"need more memory than there is \([\d,.]+ GiB at once\)"),
        enough_memory(),
    ):
        torch.empty(1 << 60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="something else"), enough_memory():
        raise RuntimeError("something else")
    env = replace(QUICK.env, num_envs=2**30)
    with pytest.raises(ConfigError, match="more memory"):
        train(replace(QUICK, env=env, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


# Files


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)

    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file")

    monkeypatch.setattr(torch, "save", full)
    model, vocab, state = checkpoint.load(folder / "checkpoint")
    with pytest.raises(OSError, match=r"was not saved in .*PytorchStreamWriter"):
        checkpoint.save(folder / "checkpoint", model, vocab, state)
    assert not (folder / "checkpoint.new").exists()
    assert_same_weights(whole, folder)


def test_a_draft_that_cannot_be_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text("old")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        config_file.write_whole(tmp_path / "a.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "old"


def test_a_kill_between_the_two_renames_of_a_save_loses_nothing(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    os.rename(folder / "checkpoint", folder / "checkpoint.old")
    assert checkpoint_of(folder) == folder / "checkpoint.old"
    config = train_config(["--resume", "--out", str(folder), "--steps", "6"])
    check(config)
    assert train(replace(config, steps=6))["steps"] == 6
    assert_same_weights(whole, folder)
    assert not (folder / "checkpoint.old").exists()


@pytest.mark.parametrize("file", ["model.safetensors", "trainer_state.pt", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["torn", "garbage", "missing"])
def test_a_damaged_checkpoint_is_one_message(whole: Path, tmp_path: Path, file: str, damage: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    path = folder / "checkpoint" / file
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[: len(data) // 2] if damage == "torn" else b"\x00\xff" * 50)
    with pytest.raises(ConfigError, match=r"^got --resume with .*run; .*checkpoint"):
        train(replace(SMALL, out=folder, resume=True))
    assert (folder / "summary.json").exists(), "nothing else was touched"


def test_a_run_without_its_settings_is_not_resumed_with_others(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"it holds no config\.json"):
        train_config(["--resume", "--out", str(folder)])
    settings = str(whole / "config.json")
    assert train_config(["--resume", "--out", str(folder), f"@{settings}"]).env.kwargs == {
        "low": "0",
        "high": "9",
    }


def test_damaged_tables_keep_what_can_be_read(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    lines = (folder / "metrics.csv").read_bytes().split(b"\n")
    lines[2] = b"\xff\x00,what," + lines[2]
    (folder / "metrics.csv").write_bytes(b"\n".join(lines) + b"4,0.")
    (folder / "samples.jsonl").write_bytes(
        b'3\n[]\n{"step": "x"}\n\xff\n' + (folder / "samples.jsonl").read_bytes()
    )
    assert len(read_samples(folder / "samples.jsonl")) == 3
    before = read_metrics(folder / "metrics.csv")
    train(replace(SMALL, out=folder, resume=True, steps=7))
    after = read_metrics(folder / "metrics.csv")
    assert [row["step"] for row in after] == [*(row["step"] for row in before), 7]
    assert (folder / "metrics.csv.damaged").exists()


# Two runs


def test_a_folder_has_one_run_at_a_time(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    with claimed(folder):
        for act in ({"overwrite": True}, {"resume": True}):
            with pytest.raises(ConfigError, match="another run is writing in it"):
                train(replace(SMALL, out=folder, **act))
    assert_same_weights(whole, folder)
    (folder / ".weights").touch()  # of a run that was killed
    (folder / ".metrics.csv.123").touch()
    with claimed(folder):
        assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_claim_leaves_no_empty_folder(tmp_path: Path) -> None:
    with claimed(tmp_path / "a" / "b"):
        pass
    assert not (tmp_path / "a").exists()
    (tmp_path / "mine").mkdir()
    with claimed(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine").is_dir()
    named = new_folder(QUICK, tmp_path / "runs")
    assert named.is_dir()
    assert new_folder(QUICK, tmp_path / "runs") != named, "runs that start together"
    with claimed(named):
        pass
    assert not named.exists()


def test_whose_error_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_reward.py").write_text("def fail():\n    open('/no/such/file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import their_reward  # type: ignore[import-not-found]

    with pytest.raises(OSError, match="No such file") as caught:
        their_reward.fail()
    assert raised_in(caught.value, ["their_reward"])
    assert not raised_in(caught.value, ["my_reward"])
