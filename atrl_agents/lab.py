"""The staleness laboratory: every algorithm on data that is exactly k updates old, and nothing else different.

    row = delayed_run(config, staleness=8)      # one run: success, gradient norms, M2, masked share
    run_all(LabConfig(out=Path("runs/staleness")), print)

A delay line stands between rollout and training: each update samples a batch with the weights of that moment and puts
it at the end of a queue, and trains on the batch at its head, which is k updates old (the first k + 1 batches are of
the first weights). That is the Stale-k of the M2PO paper (arXiv 2510.01161, section 5), with k from 0 on.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tyro

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

RUNS = "runs.jsonl"
_RECENT = 20  # updates at the end of a run over which success is averaged


@dataclass(frozen=True)
class LabConfig:
    """Train every algorithm at every staleness, several seeds; a table and a figure of what came out."""

    algorithms: tuple[str, ...] = (
        "grpo", "dapo", "gspo", "cispo", "ppo", "m2po", "m2po:variant=authors", "m2po:variant=ratio",
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
    """Results are kept here; runs that are there already are not repeated."""


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
    """Every run, seed by seed, so that an interrupted laboratory has whole rows."""
    return [
        Arm(algorithm, staleness, seed)
        for seed in range(lab.seeds)
        for staleness in lab.staleness
        for algorithm in lab.algorithms
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


def run_all(lab: LabConfig, say: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Make the runs that `lab.out` lacks, write each as a line of runs.jsonl, and return all rows."""
    check(lab)
    lab.out.mkdir(parents=True, exist_ok=True)
    rows = list(_known(lab))
    done = {(row["algorithm"], row["staleness"], row["seed"]) for row in rows}
    missing = [arm for arm in arms(lab) if arm.key not in done]
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(lab.processes or available_cores(), mp_context=context) as pool,
        open(lab.out / RUNS, "a", encoding="utf-8") as file,
    ):
        for seed in sorted({arm.seed for arm in missing}):
            if not (lab.out / f"warm-{seed}" / "config.json").is_file():
                say(f"warm start of seed {seed}: {pool.submit(warm_model, lab, seed).result():.1%} right")
        futures = {pool.submit(run_arm, lab, arm): arm for arm in missing}
        for number, future in enumerate(as_completed(futures), 1):
            row = future.result()
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            say(
                f"{number:4d} of {len(missing)}  {row['algorithm']:<22} staleness {row['staleness']:<4d} seed "
                f"{row['seed']}  success {row['success_curve'][0]:.1%} -> {row['success']:.1%}  "
                f"{row['seconds']:.0f} s"
            )
    return rows


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
    folder = lab.out / f"warm-{seed}"
    vocab.tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return Evaluator(config.env, vocab, problems=config.eval_problems, seed=seed)(model).accuracy


def run_arm(lab: LabConfig, arm: Arm) -> dict[str, Any]:
    """One run of the laboratory as a row of runs.jsonl."""
    config = train_config_of(lab, arm.algorithm, arm.seed)
    found = delayed_run(
        config, arm.staleness, model=lab.out / f"warm-{arm.seed}", probe_every=lab.probe_every
    )
    return {"algorithm": arm.algorithm, "staleness": arm.staleness, "seed": arm.seed, **found}


def delayed_run(
    config: TrainConfig, staleness: int, *, model: Path | str | None = None, probe_every: int = 0
) -> dict[str, Any]:
    """Train on batches that are `staleness` updates old.

    Args:
        config: of the run; it is synchronous whatever its mode.
        model: a folder to begin with; None: what the config says, without a warm start.
        probe_every: every so many updates, compare gradient norms of PPO's clip and the forms of M2PO on the same
            batch and weights; 0: never.

    Returns:
        accuracy_before, accuracy_after: greedy, held out; success: of the last sampled batches; success_curve: the
        mean of each sixteenth of the run; grad_norm, grad_norm_variance: over updates; m2, masked (share of response
        tokens without gradient): means over updates; diverged; probe: mean norms by name; seconds.
    """
    import time

    import torch

    from . import models
    from .evaluate import Evaluator, collect
    from .learner import Diverged, Learner
    from .workers import EnvRecipe, sampling_policy

    torch.set_num_threads(1)
    began = time.monotonic()
    language_model, vocab = models.load(
        str(model) if model is not None else config.model, tiny=config.tiny, seed=config.seed
    )
    env = EnvRecipe(config, vocab)()
    actor = sampling_policy(language_model, vocab, config, env.max_new_tokens)
    learner = Learner(actor, config, env.max_new_tokens)
    learner.begin()
    evaluator = Evaluator(config.env, vocab, problems=config.eval_problems, seed=config.seed)
    before = evaluator(language_model).accuracy
    probes = _probes(actor, config, env.max_new_tokens) if probe_every else {}
    line: deque[Any] = deque()
    curve: list[float] = []
    seen: dict[str, list[float]] = {name: [] for name in ("grad_norm", "m2", "masked")}
    norms: dict[str, list[float]] = {name: [] for name in probes}
    diverged = False
    for step in range(config.steps):
        actor.set_version(step)
        while len(line) <= staleness:
            line.append(collect(env, actor, groups=config.prompts_per_batch))
        batch = line.popleft()
        _assert_age(batch, step, staleness)
        if probe_every and step and step % probe_every == 0:
            for name, probe in probes.items():
                norms[name].append(probe.gradient_norm(batch))
        try:
            metrics = learner.update(batch)
        except Diverged:
            diverged = True
            break
        newest = line[-1] if line else batch
        curve.append(_success(newest))
        seen["grad_norm"].append(metrics["grad_norm"])
        if "m2" in metrics:
            seen["m2"].append(metrics["m2"])
            seen["masked"].append(metrics["clip_fraction"] + 1 - metrics["kept_fraction"])
    return {
        "accuracy_before": before,
        "accuracy_after": 0.0 if diverged else evaluator(language_model).accuracy,
        "success": statistics.fmean(curve[-_RECENT:]) if curve else 0.0,
        "success_curve": _sixteenths(curve),
        "grad_norm": _mean(seen["grad_norm"]),
        "grad_norm_variance": statistics.pvariance(seen["grad_norm"]) if seen["grad_norm"] else 0.0,
        "m2": _mean(seen["m2"]),
        "masked": _mean(seen["masked"]),
        "diverged": diverged,
        "probe": {name: _mean(values) for name, values in norms.items()},
        "steps": len(curve),
        "seconds": time.monotonic() - began,
    }


def _probes(actor: Any, config: TrainConfig, max_new_tokens: int) -> dict[str, Any]:
    """Learners that only tell gradients: the protocol of AsyncTensorRLHF's Table 3, PPO's clip against M2PO."""
    from .config import GRPOConfig, GRPOLossConfig, M2POConfig, M2POLossConfig
    from .learner import Learner

    common = {
        name: getattr(config, name)
        for name in ("env", "optim", "prompts_per_batch", "samples_per_prompt", "steps", "micro_batch_tokens")
    }
    kinds: dict[str, TrainConfig] = {
        "clip": GRPOConfig(**common, loss=GRPOLossConfig(reduction="token")),
        "unclipped": GRPOConfig(**common, loss=GRPOLossConfig(reduction="token", surrogate="unclipped")),
        "m2po paper": M2POConfig(**common),
        "m2po ratio": M2POConfig(**common, loss=M2POLossConfig(variant="ratio")),
    }
    return {name: Learner(actor, kind, max_new_tokens) for name, kind in kinds.items()}


def _assert_age(batch: Any, step: int, staleness: int) -> None:
    """The delay line keeps its promise: every token is of the weights of `step - staleness` (of the first, before)."""
    from atrl_envs import keys

    version = batch[keys.VERSION][batch[keys.RESPONSE_MASK]]
    wanted = max(0, step - staleness)
    if int(version.min()) != wanted or int(version.max()) != wanted:
        raise AssertionError(
            f"update {step} got tokens of versions {int(version.min())} to {int(version.max())}, wanted {wanted}"
        )


def _success(batch: Any) -> float:
    from atrl_envs import keys
    from atrl_envs.verify import Verdict

    return float((batch[keys.VERDICT] == int(Verdict.CORRECT)).float().mean())


def _sixteenths(curve: list[float]) -> list[float]:
    cuts = [round(i * len(curve) / 16) for i in range(17)]
    return [round(_mean(curve[a:b]), 4) for a, b in itertools.pairwise(cuts) if b > a]


def _mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def _known(lab: LabConfig) -> Iterator[dict[str, Any]]:
    """The rows of earlier calls that are wanted again; a torn last line is none."""
    path = lab.out / RUNS
    wanted = {arm.key for arm in arms(lab)}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if (row["algorithm"], row["staleness"], row["seed"]) in wanted:
            yield row


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
