"""Config: derived numbers, files there and back, and every complaint before any work."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, Literal

import hypothesis
import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

import atrl_envs
from atrl_agents import config as config_module
from atrl_agents import config_file
from atrl_agents.complaints import ConfigError, bad_input
from atrl_agents.config import (
    EnvConfig,
    GRPOConfig,
    GRPOLossConfig,
    OptimConfig,
    ThreadsConfig,
    TinyConfig,
    TrainConfig,
    WarmupConfig,
)
from atrl_agents.config_check import check, new_folder, resolve
from atrl_agents.parameters import parse_value, typed_parameters


class Settings(atrl_envs.Task):
    """A task with a parameter of every type that words can give."""

    limit: int = 10
    share: float = 0.5
    name: str = "x"
    loud: bool = False
    maybe: int | None = None

    def problem(self, rng: Any) -> atrl_envs.Problem:
        return atrl_envs.Problem("1=", "1")


atrl_envs.register("tests/Settings-v0", Settings, max_new_tokens=4)


def settings(**kwargs: Any) -> GRPOConfig:
    return GRPOConfig(env=EnvConfig("tests/Settings-v0", kwargs=kwargs))


# Derived values


def test_sync_and_async_derive_what_is_not_given() -> None:
    sync, other = GRPOConfig(mode="sync"), GRPOConfig(mode="async")
    assert (sync.staleness_limit, sync.workers) == (0, 0)
    assert (other.staleness_limit, other.workers) == (1, 1)
    assert GRPOConfig(max_staleness=0).staleness_limit == 0
    assert GRPOConfig(prompts_per_batch=4, samples_per_prompt=3).num_envs == 12
    assert GRPOConfig(num_workers=2, env=EnvConfig(num_envs=10)).envs_per_worker == 5


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_threads_never_exceed_the_cores(monkeypatch: pytest.MonkeyPatch, cores: int, workers: int) -> None:
    monkeypatch.setattr(config_module, "available_cores", lambda: cores)
    config = GRPOConfig(num_workers=workers)
    used = config.trainer_threads + workers * config.worker_threads
    assert used <= max(cores, 1 + workers)  # with fewer cores than processes, each still has one thread
    assert GRPOConfig(mode="sync").trainer_threads == cores
    assert GRPOConfig(threads=ThreadsConfig(trainer=3, worker=2)).trainer_threads == 3


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        GRPOConfig().steps = 3  # type: ignore[misc]


def test_folder_needs_a_name() -> None:
    with pytest.raises(RuntimeError, match="resolve"):
        _ = GRPOConfig().folder


# Files


@hypothesis.settings(deadline=None)
@given(
    steps=st.integers(0, 10**6),
    rate=st.floats(1e-9, 1.0),
    kwargs=st.dictionaries(st.sampled_from(["limit", "name"]), st.integers() | st.booleans()),
    imports=st.lists(st.sampled_from(["json", "os.path"]), max_size=2).map(tuple),
    loggers=st.lists(st.sampled_from(["csv", "wandb"]), max_size=2).map(tuple),
    out=st.none() | st.just(Path("runs/a b")),
)
def test_files_give_the_config_back(steps, rate, kwargs, imports, loggers, out, tmp_path_factory) -> None:
    config = GRPOConfig(
        env=EnvConfig(kwargs=kwargs, imports=imports),
        optim=OptimConfig(learning_rate=rate),
        steps=steps,
        loggers=loggers,
        out=out,
    )
    path = config_file.save(config, tmp_path_factory.mktemp("config"))
    assert config_file.load(path) == config
    words = config_file.flags(config_file.read(path), GRPOConfig, str(path))
    parsed = tyro.cli(GRPOConfig, args=words)
    assert parsed.env.kwargs == {name: str(value) for name, value in kwargs.items()}
    assert dataclasses.replace(parsed, env=config.env) == config


def test_acts_are_not_settings(tmp_path: Path) -> None:
    path = config_file.save(GRPOConfig(resume=True, overwrite=True), tmp_path)
    assert config_file.load(path) == GRPOConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stepz = 3", r"'stepz' in .*my\.toml; .*steps"),
        ("[optim]\nlearning_rat = 1", r"'optim\.learning_rat' in .*optim\.learning_rate"),
        ("optim = 3", r"write \[optim\]"),
        ("steps = ", "not TOML"),
    ],
)
def test_a_bad_file_is_named_with_near_keys(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        config_file.flags(config_file.read(path), GRPOConfig, str(path))


def test_an_unknown_algorithm_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"algorithm": "gpro"}))
    with pytest.raises(ConfigError, match=r"gpro.*use one of grpo"):
        config_file.load(path)


# Complaints


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GRPOConfig(steps=-1), r"got --steps -1; .*at least 0"),
        (GRPOConfig(prompts_per_batch=0), r"--prompts-per-batch 0"),
        (GRPOConfig(samples_per_prompt=1), r"--samples-per-prompt 1; .*at least 2"),
        (GRPOConfig(temperature=0.0), r"--temperature 0\.0; .*above 0"),
        (GRPOConfig(temperature=float("nan")), r"--temperature nan"),
        (GRPOConfig(optim=OptimConfig(learning_rate=-1.0)), r"--optim\.learning-rate -1\.0"),
        (GRPOConfig(optim=OptimConfig(betas=(0.9, 1.0))), r"--optim\.betas 1\.0"),
        (GRPOConfig(seed=2**63), "at most 9223372036854775807"),
        (GRPOConfig(mode="asink"), r"--mode asink; .*sync, async"),  # type: ignore[arg-type]
        (GRPOConfig(in_flight="drop"), r"--in-flight drop; .*keep, recompute"),  # type: ignore[arg-type]
        (GRPOConfig(mode="sync", max_staleness=1), r"--max-staleness 1; sync mode"),
        (GRPOConfig(mode="sync", num_workers=2), r"--num-workers 2; sync mode"),
        (GRPOConfig(num_workers=0), r"--num-workers 0; async mode"),
        (GRPOConfig(tiny=TinyConfig(width=100, heads=3)), r"--tiny\.width 100; .*multiple of 6"),
        (GRPOConfig(num_workers=3, env=EnvConfig(num_envs=32)), r"--env\.num-envs 32; .*multiple of 24"),
        (GRPOConfig(env=EnvConfig(num_envs=7)), r"--env\.num-envs 7; .*groups of 8; .*multiple of 8"),
        (GRPOConfig(num_workers=2, prompts_per_batch=3), r"--num-workers 2; 24 slots .*multiple of 16"),
        (GRPOConfig(loss=GRPOLossConfig(clip_low=-1.0)), r"--loss\.clip-low -1\.0; .*at least 0"),
        (GRPOConfig(loss=GRPOLossConfig(clip_low=1.0)), r"--loss\.clip-low 1\.0; .*below 1"),
        (GRPOConfig(loss=GRPOLossConfig(clip_high=-0.1)), r"--loss\.clip-high -0\.1"),
        (GRPOConfig(loss=GRPOLossConfig(clip_high=float("nan"))), r"--loss\.clip-high nan"),
        (GRPOConfig(loss=GRPOLossConfig(clip_high=float("inf"))), r"--loss\.clip-high inf; .*finite"),
        (GRPOConfig(loss=GRPOLossConfig(advantage="rlo")), r"--loss\.advantage rlo; .*rloo"),  # type: ignore[arg-type]
        (GRPOConfig(optim=OptimConfig(weight_decay=float("inf"))), r"--optim\.weight-decay inf; .*finite"),
        (GRPOConfig(warmup=WarmupConfig(weight_decay=-1.0)), r"--warmup\.weight-decay -1\.0"),
        (GRPOConfig(warmup=WarmupConfig(until=float("nan"))), r"--warmup\.until nan"),
        (GRPOConfig(temperature=float("inf")), r"--temperature inf"),
        (GRPOConfig(model="tyni"), r"--model tyni; .*'tiny'"),
        (GRPOConfig(loggers=("tensorbord",)), r"--loggers tensorbord; .*tensorboard"),
        (GRPOConfig(resume=True), r"--resume without a folder.*--out"),
        (GRPOConfig(env=EnvConfig("atrl/Adition-v0")), r"atrl/Adition-v0.*atrl/Addition-v0"),
        (GRPOConfig(env=EnvConfig("no_such_module:my/X-v0")), r"no_such_module.*finds no module"),
        (GRPOConfig(env=EnvConfig(imports=("task.py",))), r"write --import task"),
        (settings(limt=3), r"no parameter 'limt'.*'limit'"),
        (settings(limit="many"), r"limit=many.*no int"),
        (settings(limit=2.5), r"limit must be int"),
    ],
)
def test_bad_settings_are_named(config: TrainConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config)


def test_good_settings_pass() -> None:
    check(GRPOConfig())
    check(GRPOConfig(mode="sync", steps=0, warmup_steps=0))
    check(GRPOConfig(num_workers=2))
    check(GRPOConfig(warmup=WarmupConfig(until=float("inf"))))


def test_a_logger_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        check(GRPOConfig(loggers=("wandb",)))


def test_run_folders(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    check(GRPOConfig(out=run))
    run.mkdir()
    check(GRPOConfig(out=run))  # an empty folder is nobody's
    with pytest.raises(ConfigError, match="no checkpoint/"):
        check(GRPOConfig(out=run, resume=True))
    config_file.save(GRPOConfig(), run)
    with pytest.raises(ConfigError, match="exists already; .*--resume or --overwrite"):
        check(GRPOConfig(out=run))
    check(GRPOConfig(out=run, overwrite=True))
    (run / "checkpoint").mkdir()
    check(GRPOConfig(out=run, resume=True))
    with pytest.raises(ConfigError, match="--resume and --overwrite"):
        check(GRPOConfig(out=run, resume=True, overwrite=True))
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="is no run"):
        check(GRPOConfig(out=other, overwrite=True))
    with pytest.raises(ConfigError, match="file of that name"):
        check(GRPOConfig(out=other / "thesis.tex"))


def test_a_run_folder_must_have_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "thesis.tex"
    file.touch()
    check(GRPOConfig(out=tmp_path / "new" / "run"))
    for out in (file / "run", file / "deep" / "run"):
        with pytest.raises(ConfigError, match=r"--out .*thesis\.tex is a file and no folder"):
            check(GRPOConfig(out=out))
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    for out in (tmp_path, tmp_path / "new" / "run"):
        with pytest.raises(ConfigError, match="you may not write in"):
            check(GRPOConfig(out=out))


def test_a_model_is_no_run(tmp_path: Path) -> None:
    run, model = tmp_path / "run", tmp_path / "run" / "checkpoint"
    model.mkdir(parents=True)
    config_file.save(GRPOConfig(), run)
    with pytest.raises(ConfigError, match="saved no checkpoint/"):
        check(GRPOConfig(model=str(run)))
    (model / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="did you mean .*run/checkpoint"):
        check(GRPOConfig(model=str(run)))
    for text, message in (
        ("{}", "names no model_type"),
        ("[]", "names no model_type"),
        ("{", "cannot be read"),
    ):
        (model / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=message):
            check(GRPOConfig(model=str(model)))
    (model / "config.json").write_text('{"model_type": "qwen2"}')
    check(GRPOConfig(model=str(model)))


def test_resolve_names_the_folder_and_types_the_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = resolve(settings(limit="7", share="0.25", name="5", loud="true", maybe="none"))
    assert config.env.kwargs == {"limit": 7, "share": 0.25, "name": "5", "loud": True, "maybe": None}
    assert config.out == Path("runs/settings-grpo-async-1")
    assert resolve(config) == config
    assert new_folder(config).name == "settings-grpo-async-2"


# Task parameters


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("3", int, 3),
        ("1e3", float, 1000.0),
        ("3", str, "3"),
        ("No", bool, False),
        ("3", int | None, 3),
        ("none", int | None, None),
        ("x", int | str, "x"),
        ("1,2", tuple[int, ...], (1, 2)),
        ("[1, 2]", list[int], [1, 2]),
        ("2", Literal[1, 2], 2),
        ("a/b", Path, Path("a/b")),
        ("true", Any, True),
        ("word", Any, "word"),
    ],
)
def test_words_become_values(text: str, hint: Any, value: Any) -> None:
    parsed = parse_value(text, hint)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("text", "hint"), [("x", int), ("2.5", int), ("maybe", bool), ("x", int | None)])
def test_words_that_are_no_values(text: str, hint: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_value(text, hint)


def test_options_of_the_bank_pass_too() -> None:
    assert typed_parameters("tests/Settings-v0", {"bank_size": "50", "limit": 2}) == {
        "bank_size": 50,
        "limit": 2,
    }


def test_bad_input_is_ours_to_say_and_bugs_pass() -> None:
    with pytest.raises(ConfigError, match="is already"), bad_input():
        atrl_envs.register("tests/Settings-v0", "elsewhere:Other")
    with pytest.raises(ZeroDivisionError), bad_input():
        _ = 1 / 0
    with pytest.raises(ValueError, match="int") as raised, bad_input():
        int("x")
    assert not isinstance(raised.value, ConfigError)
