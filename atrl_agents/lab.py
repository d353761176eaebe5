"""The staleness laboratory: every algorithm on data that is exactly k updates old, and nothing else different.

    rows = run_all(LabConfig(out=Path("runs/staleness")), print)

A run is made by delay_line.py; here stand which runs there are, and what of them is done already.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tyro

from .claim import claimed
from .complaints import ConfigError
from .config import (
    EnvConfig,
    OptimConfig,
    ThreadsConfig,
    TinyConfig,
    TrainConfig,
    WarmupConfig,
    available_cores,
)
from .config_file import write_whole

RUNS, SETTINGS = "runs.jsonl", "settings.json"


@dataclass(frozen=True)
class LabConfig:
    """Train every algorithm at every staleness, several seeds; a table and a figure of what came out."""

    algorithms: tuple[str, ...] = (
        "grpo", "dr-grpo", "dapo", "gspo", "cispo", "ppo", "m2po", "m2po:variant=authors", "m2po:variant=areal",
        "m2po:variant=ratio",
    )  # fmt: skip
    """Words after `atrl train`, with settings of the loss behind a colon: m2po:variant=ratio,gamma=2."""
    staleness: tuple[int, ...] = (0, 1, 2, 3, 5, 8, 64, 256)
    """Updates that the data is behind."""
    seeds: int = 5
    """Runs of each, with seeds 0, 1, ..."""
    steps: int = 512
    """Updates of a run."""
    env: EnvConfig = field(
        default_factory=lambda: EnvConfig(id="atrl/Addition-v0", kwargs={"low": 0, "high": 9}, block_size=4)
    )
    tiny: TinyConfig = field(default_factory=lambda: TinyConfig(layers=2, width=64, heads=2))
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(learning_rate=5e-4, schedule="constant", ramp_steps=20)
    )
    warmup: WarmupConfig = field(
        default_factory=lambda: WarmupConfig(batch_size=64, learning_rate=2e-3, until=0.25, anneal_steps=20)
    )
    warmup_steps: int = 600
    """Supervised steps of the model that the runs of a seed begin with, at most."""
    prompts_per_batch: int = 16
    """Groups per update."""
    samples_per_prompt: int = 8
    """Completions per group."""
    eval_problems: int = 200
    """Held-out problems, or all where there are fewer."""
    processes: int | None = None
    """Runs at a time, each on one thread. None: one for every core."""
    probe_every: int = 32
    """Updates between two comparisons of gradient norms on the same batch; 0: none."""
    out: Path = Path("runs/staleness")
    """Results are kept here; runs that are there already, made with the same settings, are not repeated."""


@dataclass(frozen=True)
class Arm:
    """One run of the laboratory."""

    algorithm: str
    staleness: int
    seed: int

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells it from the others."""
        return self.algorithm, self.staleness, self.seed


def train_config_of(lab: LabConfig, algorithm: str, seed: int) -> TrainConfig:
    """The run that `atrl train` would make of an algorithm's words. ConfigError for words that it refuses."""
    from .arguments import train_config
    from .config_check import resolve

    name, _, settings = algorithm.partition(":")
    flags: list[str] = []
    for setting in filter(None, settings.split(",")):
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(
                f"got --algorithms {algorithm}; a setting of the loss is written NAME=VALUE; give it as in "
                "m2po:variant=ratio"
            )
        flags += [f"--loss.{key.replace('_', '-')}", value]
    try:
        config = train_config([name, *flags])
    except SystemExit:
        raise ConfigError(
            f"got --algorithms {algorithm}; see above; atrl train {name} --help lists the settings of its loss"
        ) from None
    shared = ("env", "tiny", "optim", "warmup", "warmup_steps", "prompts_per_batch", "samples_per_prompt")
    config = replace(
        config,
        **{name: getattr(lab, name) for name in (*shared, "steps", "eval_problems")},
        mode="sync",
        micro_batch_tokens=1 << 20,
        threads=ThreadsConfig(trainer=1),
        seed=seed,
        out=lab.out / "none",
    )
    return resolve(config)


def arms(lab: LabConfig) -> list[Arm]:
    """Every run once, seed by seed, so that an interrupted laboratory has whole rows."""
    return [
        Arm(algorithm, staleness, seed)
        for seed in range(lab.seeds)
        for staleness in dict.fromkeys(lab.staleness)
        for algorithm in dict.fromkeys(lab.algorithms)
    ]


def check(lab: LabConfig) -> None:
    """ConfigError for what cannot work, before the first run."""
    for name, least in (("seeds", 1), ("steps", 1), ("eval_problems", 1), ("probe_every", 0)):
        if getattr(lab, name) < least:
            raise ConfigError(
                f"got --{name.replace('_', '-')} {getattr(lab, name)}; it must be at least {least}; give more"
            )
    if not lab.staleness or min(lab.staleness) < 0:
        raise ConfigError(f"got --staleness {lab.staleness}; give numbers of updates, 0 or more")
    if not lab.algorithms:
        raise ConfigError("got no --algorithms; there is nothing to compare; give one or more")
    for algorithm in lab.algorithms:
        train_config_of(lab, algorithm, seed=0)
    path, settings = lab.out / SETTINGS, settings_of(lab)
    before = settings
    if path.is_file():
        try:
            before = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise ConfigError(
                f"got --out {lab.out}; its {SETTINGS} is damaged, so it is not known what the runs there were made "
                "with; put it back, or give another --out"
            ) from None
    if before != settings:
        changed = ", ".join(name for name in settings if before.get(name) != settings[name])
        raise ConfigError(
            f"got --out {lab.out}; the runs there were made with another {changed}, and cannot be compared with new "
            "ones; give another --out"
        )


def settings_of(lab: LabConfig) -> dict[str, Any]:
    """What all runs of a folder must share, in plain JSON values."""
    free = ("algorithms", "staleness", "seeds", "processes", "out")
    shared = {name: value for name, value in asdict(lab).items() if name not in free}
    return json.loads(json.dumps(shared, default=str))  # type: ignore[no-any-return]


def run_all(lab: LabConfig, say: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Make the runs that `lab.out` lacks, write each as a line of runs.jsonl, and return all rows."""
    check(lab)
    with claimed(lab.out):
        check(lab)  # under the claim: nobody has begun other runs there meanwhile
        write_whole(lab.out / SETTINGS, json.dumps(settings_of(lab), indent=1) + "\n")
        rows = _known(lab)
        missing = [arm for arm in arms(lab) if arm.key not in rows]
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(lab.processes or available_cores(), mp_context=context)
        try:
            for seed in sorted({arm.seed for arm in missing}):
                if not _warm(lab, seed).is_dir():
                    say(f"warm start of seed {seed}: {pool.submit(warm_model, lab, seed).result():.1%} right")
            with open(lab.out / RUNS, "a", encoding="utf-8") as file:
                for number, row in enumerate(_finished(pool, lab, missing), 1):
                    rows[row["algorithm"], row["staleness"], row["seed"]] = row
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    say(f"{number:4d} of {len(missing)}  {_line(row)}")
        finally:  # what runs now ends, what waits never begins
            pool.shutdown(cancel_futures=True)
    return list(rows.values())


def _finished(pool: ProcessPoolExecutor, lab: LabConfig, missing: list[Arm]) -> Iterator[dict[str, Any]]:
    """Rows as they come; an arm that fails does not cost the others, and its error is raised after them."""
    failed: Exception | None = None
    for future in as_completed([pool.submit(run_arm, lab, arm) for arm in missing]):
        try:
            yield future.result()
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['algorithm']:<22} staleness {row['staleness']:<4d} seed {row['seed']}  success "
        f"{row['success_curve'][0]:.1%} -> {row['success']:.1%}  {row['seconds']:.0f} s"
    )


def _warm(lab: LabConfig, seed: int) -> Path:
    return lab.out / f"warm-{seed}"


def warm_model(lab: LabConfig, seed: int) -> float:
    """Train and save the model that all runs of a seed begin with; its held-out accuracy."""
    import torch

    from . import models
    from .evaluate import Evaluator
    from .warmup import warm_up
    from .workers import EnvRecipe, sampling_policy

    torch.set_num_threads(1)
    config = train_config_of(lab, "grpo", seed)
    model, vocab = models.load("tiny", tiny=config.tiny, seed=seed)
    env = EnvRecipe(config, vocab)()
    actor = sampling_policy(model, vocab, config, env.max_new_tokens)
    warm_up(actor, env.bank, config.warmup, steps=config.warmup_steps, seed=seed)
    folder = _warm(lab, seed)
    draft = folder.with_suffix(".new")  # a folder of that name is whole
    shutil.rmtree(draft, ignore_errors=True)
    vocab.tokenizer.save_pretrained(draft)
    model.save_pretrained(draft)
    draft.rename(folder)
    return Evaluator(config.env, vocab, problems=config.eval_problems, seed=seed)(model).accuracy


def run_arm(lab: LabConfig, arm: Arm) -> dict[str, Any]:
    """One run of the laboratory as a row of runs.jsonl."""
    from .delay_line import delayed_run

    config = train_config_of(lab, arm.algorithm, arm.seed)
    found = delayed_run(config, arm.staleness, model=_warm(lab, arm.seed), probe_every=lab.probe_every)
    return {"algorithm": arm.algorithm, "staleness": arm.staleness, "seed": arm.seed, **found}


def _known(lab: LabConfig) -> dict[tuple[str, int, int], dict[str, Any]]:
    """The rows of earlier calls that are wanted again, by what tells them apart; a torn line is none."""
    path = lab.out / RUNS
    if not path.is_file():
        return {}
    if not path.read_bytes().endswith(b"\n"):
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n")  # what is torn shall not swallow the next one
    wanted, rows = {arm.key for arm in arms(lab)}, {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
            key = row["algorithm"], row["staleness"], row["seed"]
        except (ValueError, TypeError, KeyError):
            continue
        if key in wanted:
            rows[key] = row
    return rows


def main(words: list[str]) -> int:
    """`atrl lab staleness [flags]`."""
    from .lab_report import report

    if not words or words[0] != "staleness":
        got = f"'atrl lab {words[0]}'" if words else "'atrl lab'"
        raise ConfigError(f"got {got}; the laboratory's one experiment is staleness; type atrl lab staleness")
    lab = tyro.cli(LabConfig, args=words[1:], prog="atrl lab staleness", description=LabConfig.__doc__)
    rows = run_all(lab)
    print(report(rows, lab.out))
    return 0
