"""Every complaint about a config, before any long work: what was got, what is wrong, what to do.

config = resolve(config)      # checked, task parameters typed, run folder named
check(config)                 # ConfigError with one clear message, or nothing
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import math
import os
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .complaints import ConfigError, bad_input, near
from .config import EnvConfig, TrainConfig
from .config_engine import check_engine
from .config_file import CONFIG
from .loss_config import CISPOLossConfig, M2POLossConfig
from .model_check import CHECKPOINT as CHECKPOINT
from .model_check import check_model
from .parameters import typed_parameters

SPARE = ".old"  # after the name of a checkpoint that is being replaced
RUNS = Path("runs")
LOGGERS = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "mlflow": "mlflow",
    "csv": "csv",
}

# Smallest value of each number; a key is the path of the field in the config.
_AT_LEAST: dict[str, float] = {
    "steps": 0,
    "warmup_steps": 0,
    "prompts_per_batch": 1,
    "samples_per_prompt": 1,
    "epochs": 1,
    "micro_batch_tokens": 1,
    "max_staleness": 0,
    "max_uses": 1,
    "dynamic_sampling": 0,
    "num_workers": 0,
    "seed": 0,
    "eval_every": 0,
    "eval_problems": 1,
    "log_every": 1,
    "save_every": 0,
    "env.block_size": 1,
    "env.num_envs": 1,
    "env.max_new_tokens": 1,
    "tiny.layers": 1,
    "tiny.width": 1,
    "tiny.heads": 1,
    "lora.r": 0,
    "loss.clip_high": 0,
    "loss.kl_weight": 0,
    "loss.entropy_weight": 0,
    "loss.budget": 0,
    "loss.dual_limit": 1,
    "loss.cispo_low": 0,
    "loss.value_weight": 0,
    "loss.value_clip": 0,
    "loss.discount": 0,
    "loss.gae_lambda": 0,
    "optim.weight_decay": 0,
    "optim.ramp_steps": 1,
    "warmup.batch_size": 1,
    "warmup.anneal_steps": 1,
    "warmup.weight_decay": 0,
    "threads.trainer": 1,
    "threads.worker": 1,
    "vllm.memory_gb": 1,
    "vllm.max_model_len": 1,
    "vllm.max_replacements": 0,
}
# Largest value of a whole number where it is not _MOST.
_AT_MOST: dict[str, int] = {
    "tiny.layers": 1000,
    "tiny.width": 1 << 16,
    "threads.trainer": 512,  # beyond, libraries end the process instead of complaining
    "threads.worker": 512,
    "num_workers": 512,
    "seed": (1 << 63) - 1,
}
_MOST = (1 << 31) - 1
_ABOVE_ZERO = (
    "temperature",
    "optim.learning_rate",
    "optim.eps",
    "optim.grad_clip",
    "warmup.learning_rate",
    "loss.cispo_high",
    "loss.gamma",
    "loss.critic_learning_rate",
    "lora.alpha",
)
_SHARES = ("optim.betas", "loss.clip_low", "lora.dropout")  # at least 0 and below 1
_AT_MOST_ONE = ("loss.discount", "loss.gae_lambda")
_MAY_BE_INFINITE = ("warmup.until", "loss.budget", "loss.cispo_high", "loss.gamma")


def check(config: TrainConfig) -> None:
    """Raise ConfigError for the first setting that cannot work; cheap, so call it before anything else."""
    _check_choices(config)
    _check_numbers(config)
    _check_mode(config)
    _check_sizes(config)
    check_loss(config)
    check_model(config)
    check_engine(config)
    _check_loggers(config)
    check_folder(config)
    check_env(config.env)


def resolve(config: TrainConfig) -> TrainConfig:
    """The checked config with `out` named and the task parameters in the types that the task declares."""
    check(config)
    return dataclasses.replace(
        config, env=with_typed_parameters(config.env), out=config.out or new_folder(config)
    )


def check_env(env: EnvConfig, *, id_flag: str = "--env.id", set_flag: str = "--env.set") -> None:
    """Import the modules that the env asks for, then look up its id and its parameters.

    The flags are those that the person typed, for complaints.
    """
    if any(":" in name for name in env.rewards):
        see_own_folder()
    import_modules(env.modules)
    typed_parameters(env.id, env.kwargs, id_flag=id_flag, set_flag=set_flag)
    if env.rewards:
        from atrl_envs.rewards import compose

        with bad_input():
            compose(env.rewards, allow_outscoring=env.allow_outscoring)


def with_typed_parameters(env: EnvConfig) -> EnvConfig:
    """The same env with its task parameters in the types that the task declares."""
    return dataclasses.replace(env, kwargs=typed_parameters(env.id, env.kwargs))


def see_own_folder() -> None:
    """Let modules of the current folder be imported; an installed script has its own folder on the path instead."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)


def import_modules(names: tuple[str, ...]) -> None:
    """Import modules by name, those of the current folder too; workers call it before they make an env.

    Errors: ConfigError when a module is not found. A module's own errors pass through.
    """
    if names:
        see_own_folder()
    for name in names:
        if not name or name.startswith("."):
            raise ConfigError(
                f"got module '{name}'; it is no whole name; write it as in --import my_package.my_tasks"
            )
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
                raise  # the module is there; something that it imports is not
            is_file = name.endswith(".py")
            do = (
                f"write --import {name[:-3].replace('/', '.')}"
                if is_file
                else "go to its folder, or install it"
            )
            raise ConfigError(f"got module '{name}'; Python finds no module of that name; {do}") from None


def new_folder(config: TrainConfig, root: Path = RUNS) -> Path:
    """The first unused `runs/TASK-ALGORITHM-MODE-N`, made at once: runs that start together get one each."""
    task = config.env.name.rpartition("/")[2].rpartition("-v")[0].lower() or "run"
    number = 1
    while True:
        folder = root / f"{task}-{config.algorithm}-{config.mode}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        reserved[folder] = True
        return folder


reserved: dict[Path, bool] = {}  # folders that `new_folder` made and no run has begun in


def flag(path: str) -> str:
    """The command line flag of a field."""
    return "--" + path.replace("_", "-")


def _fail(path: str, got: Any, wrong: str, do: str) -> typing.NoReturn:
    raise ConfigError(f"got {flag(path)} {got}; {wrong}; {do}")


def _fields(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, type, value) of every setting, those of the inner dataclasses too."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        path, value = prefix + field.name, getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _fields(value, f"{path}.")
        else:
            yield path, hints[field.name], value


def _check_choices(config: TrainConfig) -> None:
    for path, hint, value in _fields(config):
        if value is not None and typing.get_origin(hint) is typing.Union:  # X | None
            hint = typing.get_args(hint)[0]
        if typing.get_origin(hint) is typing.Literal and value not in (names := typing.get_args(hint)):
            _fail(path, value, "there is no such choice", f"use one of {', '.join(names)}")


def _check_numbers(config: TrainConfig) -> None:
    for path, _, value in _fields(config):
        least = _AT_LEAST.get(path)
        if least is not None and value is not None and not value >= least:
            _fail(path, value, f"it must be at least {least}", f"give {flag(path)} {least} or more")
        most = _AT_MOST.get(path, _MOST)
        if isinstance(value, int) and not value <= most:
            _fail(path, value, f"it must be at most {most}", f"give a smaller {flag(path)}")
        if path in _ABOVE_ZERO and value is not None and not value > 0:
            _fail(path, value, "it must be a number above 0", f"give {flag(path)} a positive number")
        if path in _AT_MOST_ONE and value > 1:
            _fail(path, value, "it must be at most 1", f"give {flag(path)} a share")
        for number in value if isinstance(value, tuple) else (value,):
            if path in _SHARES and not 0 <= number < 1:
                _fail(path, number, "it must be at least 0 and below 1", f"give {flag(path)} such a number")
            if not isinstance(number, float) or math.isfinite(number):
                continue
            if math.isnan(number) or path not in _MAY_BE_INFINITE:
                _fail(path, number, "it must be a finite number", f"give {flag(path)} a finite number")


def _check_mode(config: TrainConfig) -> None:
    if config.mode == "sync" and config.max_staleness:
        _fail(
            "max_staleness",
            config.max_staleness,
            "sync mode has no staleness",
            "use --mode async, or leave it out",
        )
    if config.mode == "sync" and config.num_workers:
        _fail(
            "num_workers",
            config.num_workers,
            "sync mode rolls out in the trainer's own process",
            "use --mode async (with --max-staleness 0 for the synchronous order), or leave it out",
        )
    if config.mode == "async" and config.num_workers == 0:
        _fail("num_workers", 0, "async mode needs a rollout process", "give 1 or more, or use --mode sync")


def _check_sizes(config: TrainConfig) -> None:
    width, heads = config.tiny.width, config.tiny.heads
    if width % (2 * heads):
        _fail(
            "tiny.width",
            width,
            f"each of the {heads} heads needs an even share of it (rotary positions)",
            f"give a multiple of {2 * heads}, or other --tiny.heads",
        )
    workers, group = max(1, config.workers), config.samples_per_prompt
    if group < 2 and config.algorithm != "ppo":
        _fail(
            "samples_per_prompt",
            group,
            "it must be at least 2: a response is compared with the others of its prompt",
            "give 2 or more, or use atrl train ppo, which has a critic",
        )
    if config.dynamic_sampling and config.algorithm == "ppo":
        _fail(
            "dynamic_sampling",
            config.dynamic_sampling,
            "PPO's critic tells responses of a group apart that earned the same",
            "leave it out, or use atrl train dapo",
        )
    if config.num_envs % (workers * group):
        # With --env.num-envs left out, one worker always fits, so the number of workers was given.
        path, got = ("env.num_envs", config.num_envs) if config.env.num_envs else ("num_workers", workers)
        among = f" for each of {workers} workers" if workers > 1 else ""
        _fail(
            path,
            got,
            f"{config.num_envs} slots are no whole number of groups of {group}{among}",
            f"give --env.num-envs a multiple of {workers * group}",
        )


def check_loss(config: TrainConfig) -> None:
    """Settings of a loss that do not go together; objectives.Objective refuses the same."""
    loss = config.loss
    correction, m2po = loss.correction, isinstance(loss, M2POLossConfig)
    if correction == "dppo" and (m2po or getattr(loss, "surrogate", "clip") not in ("clip", "unclipped")):
        _fail(
            "loss.correction",
            correction,
            "it takes the place of a clip, and this objective is another",
            "use it with atrl train grpo or ppo, or another correction",
        )
    if m2po and correction == "a3po":
        _fail(
            "loss.correction",
            correction,
            "M2PO's moments would be those of a policy that never was",
            "leave it out, or use --loss.variant areal --loss.correction decoupled",
        )
    if isinstance(loss, M2POLossConfig) and loss.variant != "areal":
        if correction not in ("none", "sequence_mask"):
            _fail(
                "loss.correction",
                correction,
                f"the variant {loss.variant} of M2PO bounds the ratio to what sampled, which it replaces",
                "leave it out, or use --loss.variant areal",
            )
    if isinstance(loss, CISPOLossConfig) and loss.cispo_low > loss.cispo_high:
        _fail(
            "loss.cispo_low",
            loss.cispo_low,
            f"it is above --loss.cispo-high {loss.cispo_high}",
            "give a smaller one",
        )


def _check_loggers(config: TrainConfig) -> None:
    for name in config.loggers:
        if name not in LOGGERS:
            _fail("loggers", name, "there is no such tracker", f"did you mean {near(name, LOGGERS)}?")
        if importlib.util.find_spec(LOGGERS[name]) is None:
            _fail(
                "loggers",
                name,
                f"the package {LOGGERS[name]} is not installed",
                f"pip install {LOGGERS[name]}",
            )


def check_folder(config: TrainConfig) -> None:
    """Whether the run folder is free, or holds the run that is to go on or to be replaced."""
    out = config.out
    if config.resume and config.overwrite:
        raise ConfigError(
            "got --resume and --overwrite; one goes on with a run, the other replaces it; give one of them"
        )
    if out is None:
        _check_place(RUNS)
        if config.resume or config.overwrite:
            act = "--resume" if config.resume else "--overwrite"
            raise ConfigError(
                f"got {act} without a folder; it is not known which run is meant; add --out DIR"
            )
        return
    _check_place(out)
    if config.resume:
        # The spare is there alone where a run was killed between the two renames that replace a checkpoint.
        if not (out / CHECKPOINT).is_dir() and not (out / f"{CHECKPOINT}{SPARE}").is_dir():
            _fail(
                "out",
                out,
                f"there is no {CHECKPOINT}/ in it to resume from",
                "give the folder of a run that saved one",
            )
    elif out.is_dir() and any(out.iterdir()):
        if not (out / CONFIG).is_file():
            _fail(
                "out", out, f"the folder is in use and is no run (it holds no {CONFIG})", "give another --out"
            )
        if not config.overwrite:
            _fail("out", out, "that run exists already", "give another --out, or add --resume or --overwrite")


def _check_place(out: Path) -> None:
    """Whether a folder `out` is there, or can be made: what there is of its path must be folders, the last ours."""
    # os.path.exists is False, and no error, below a file and below a folder that may not be searched.
    there = next((path for path in (out, *out.parents) if os.path.exists(path)), Path())
    if not there.is_dir():
        wrong = "there is a file of that name" if there == out else f"{there} is a file and no folder"
        _fail("out", out, wrong, "give the name of a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        _fail("out", out, f"you may not write in {there}", "give a folder of your own")
