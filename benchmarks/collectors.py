"""What collecting costs and what asynchrony gains: modes on equal cores, block sizes, slots, overhead per step.

    python benchmarks/collectors.py               # results/collectors.json, three tables
    python benchmarks/collectors.py --quick       # a smoke run of everything in under two minutes
    python benchmarks/collectors.py --parts modes --repetitions 5

Every figure comes from `atrl train`, or from a bare stepping loop, in a fresh process; the kinds of run are
interleaved. Figures are median (min to max) over the repetitions. The learning rate is so small that the
responses, and so the work, stay the same during a run.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import harness
import tyro

Part = Literal["modes", "slots", "steps"]
STEPPERS = ("env.step_and_maybe_reset", "our block collector", "torchrl Collector")


@dataclass(frozen=True)
class Workload:
    """A task, and the warm start that makes a model of its responses."""

    name: str
    env: tuple[str, ...]
    batch: tuple[int, int]  # prompts, samples of each
    warmup: tuple[str, ...]
    steps: int
    ahead: int = 1  # largest staleness of the asynchronous run
    skip: int = 6  # first updates, left out: compilation, empty caches, an empty buffer

    @property
    def rows(self) -> int:
        """Completions of a batch."""
        return self.batch[0] * self.batch[1]

    def train_words(self, model: Path | str) -> list[str]:
        """The arguments of `atrl train` that all runs of this workload share."""
        prompts, samples = self.batch
        return [
            *("--model", str(model), *self.env, "--warmup-steps", "0"),
            *("--prompts-per-batch", str(prompts), "--samples-per-prompt", str(samples)),
            *("--optim.learning-rate", "1e-9", "--optim.schedule", "constant"),
            *("--eval-every", "0", "--eval-problems", "1", "--save-every", "0", "--log-every", "1000000"),
        ]


SUM_STEPS = "--env.id atrl/SumSteps-v0 --env.max-new-tokens 96 --env.set high=9 median_terms=3 max_terms=12"
SUM_STEPS_WARMUP = (
    "--warmup-steps 500 --warmup.batch-size 64 --warmup.learning-rate 2e-3 --warmup.until 0.5 "
    "--warmup.anneal-steps 30"
)
WORKLOADS = (
    Workload("short", ("--env.id", "atrl/Addition-v0"), (64, 8), ("--warmup-steps", "400"), steps=150),
    # While the longest responses of a batch are being written, its other slots go on with the next batches.
    Workload(
        "long-tailed", tuple(SUM_STEPS.split()), (32, 8), tuple(SUM_STEPS_WARMUP.split()), steps=30, ahead=4
    ),
)


@dataclass(frozen=True)
class Options:
    """What is measured."""

    repetitions: int = 3
    parts: tuple[Part, ...] = ("modes", "slots", "steps")
    """modes: async over sync on equal cores; slots: block sizes and slots; steps: overhead per env step."""
    train: str = ""
    """Further words for every `atrl train`, such as "--micro-batch-tokens 2048"."""
    quick: bool = False
    """Few updates, one repetition: to see that everything runs."""
    stepper: str = ""
    """Make one measurement of the part `steps` in this process and print it; the benchmark calls itself so."""


def main(options: Options) -> None:
    if options.stepper:
        print(json.dumps(measure_stepper(options.stepper, seconds=0.3 if options.quick else 1.5)))
        return
    harness.use_checkout()
    result: dict[str, Any] = {"quick": options.quick, "train": options.train}
    repetitions = 1 if options.quick else options.repetitions
    with tempfile.TemporaryDirectory() as scratch:
        if "modes" in options.parts:
            rows = [compare_modes(w, Path(scratch), repetitions, options) for w in WORKLOADS]
            result["modes"] = rows
            show("Async over sync on two cores, seconds per update", rows, MODE_COLUMNS)
        if "slots" in options.parts:
            result["slots"] = rows = compare_slots(WORKLOADS[-1], Path(scratch), repetitions, options)
            show("Generation by block size and slots, sync, long-tailed", rows)
    if "steps" in options.parts:
        result["steps"] = rows = compare_steppers(repetitions, options.quick)
        show("Microseconds per env step of one token in each of B slots, null policy", rows)
    print(f"\n{harness.write('collectors-quick' if options.quick else 'collectors', result)}")


def show(title: str, rows: list[dict[str, Any]], columns: list[str] | None = None) -> None:
    """A heading and a table."""
    print(f"\n### {title}\n\n{harness.table(rows, columns)}", flush=True)


# -- async over sync ---------------------------------------------------------------------------------

MODES = {
    "sync2": ("--mode", "sync", "--threads.trainer", "2"),
    "sync1": ("--mode", "sync", "--threads.trainer", "1"),
    "async": ("--mode", "async", "--threads.trainer", "1", "--threads.worker", "1"),
}
MODE_COLUMNS = [
    *("workload", "max_staleness", "g1", "t1", "g2", "t2", "sync", "async"),
    *("speedup", "bound", "of_bound", "tokens_per_second_sync", "tokens_per_second_async"),
]


def compare_modes(workload: Workload, scratch: Path, repetitions: int, options: Options) -> dict[str, Any]:
    """One row: generation g and training t per update by threads, the bound they set, and what async reached."""
    quick = options.quick
    words = [*workload.train_words(warm_model(workload, scratch, quick)), *options.train.split()]
    steps, skip = (8, 2) if quick else (workload.steps, workload.skip)
    seen: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for _ in range(repetitions):
        for mode, more in MODES.items():
            ahead = ("--max-staleness", str(workload.ahead)) if mode == "async" else ()
            _, rows = harness.train(*words, *more, *ahead, "--steps", str(steps))
            seen[mode].append(update_parts(rows, skip, workload.rows))
    # Each repetition is compared within itself: what else the machine did then touched all of its runs.
    ratios = []
    for sync2, sync1, ahead in zip(seen["sync2"], seen["sync1"], seen["async"], strict=True):
        longer = max(sync1["generate"], sync1["train"])
        bound = (sync2["generate"] + sync2["train"]) / longer
        speedup = sync2["seconds"] / ahead["seconds"]
        ratios.append({"speedup": speedup, "bound": bound, "of_bound": speedup / bound})

    def over(rows: list[dict[str, float]], name: str) -> dict[str, float]:
        return harness.spread([row[name] for row in rows])

    return {
        "workload": workload.name,
        "batch": list(workload.batch),
        "updates": steps - skip,
        "max_staleness": workload.ahead,
        "g1": over(seen["sync1"], "generate"),
        "t1": over(seen["sync1"], "train"),
        "g2": over(seen["sync2"], "generate"),
        "t2": over(seen["sync2"], "train"),
        "sync": over(seen["sync2"], "seconds"),
        "async": over(seen["async"], "seconds"),
        **{name: over(ratios, name) for name in ("speedup", "bound", "of_bound")},
        "tokens_per_second_sync": over(seen["sync2"], "tokens_per_second"),
        "tokens_per_second_async": over(seen["async"], "tokens_per_second"),
        "response_length": over(seen["sync2"], "response_length"),
        "trainer_waits_async": over(seen["async"], "waits"),
        "worker_waits_async": over(seen["async"], "worker_waits"),
    }


def update_parts(rows: list[dict[str, str]], skip: int, completions: int) -> dict[str, float]:
    """Means over the updates after the first `skip`, in seconds; in sync mode the trainer's wait is generation."""
    numbers = [{name: float(row[name] or "nan") for name in WANTED} for row in rows]
    first = next(row["seconds"] for row in numbers if row["step"] == skip)
    kept = [row for row in numbers if row["step"] > skip]
    before = [first, *(row["seconds"] for row in kept[:-1])]
    spent = [row["seconds"] - start for row, start in zip(kept, before, strict=True)]
    total, count = sum(spent), len(kept)
    waited = sum(row["trainer_wait_fraction"] * seconds for row, seconds in zip(kept, spent, strict=True))
    length = statistics.fmean(row["response_length"] for row in kept)
    return {
        "seconds": total / count,
        "generate": waited / count,
        "train": (total - waited) / count,
        "response_length": length,
        "tokens_per_second": length * completions * count / total,
        "waits": waited / total,
        "worker_waits": statistics.fmean(row["worker_wait_fraction"] for row in kept),
    }


WANTED = ("step", "seconds", "trainer_wait_fraction", "worker_wait_fraction", "response_length")


def warm_model(workload: Workload, scratch: Path, quick: bool) -> Path:
    """The model that all runs of a workload begin with, made once: it has learnt the form of a response."""
    folder = scratch / workload.name
    if not folder.exists():
        words = [*workload.env, *workload.warmup, "--steps", "0", "--eval-problems", "1", "--mode", "sync"]
        words += ["--warmup-steps", "60", "--warmup.anneal-steps", "20"] if quick else []
        harness.run([sys.executable, "-m", "atrl_agents.cli", "train", "--out", str(folder), *words])
    return folder / "checkpoint"


# -- block sizes and slots ---------------------------------------------------------------------------


def compare_slots(
    workload: Workload, scratch: Path, repetitions: int, options: Options
) -> list[dict[str, Any]]:
    """A row for each block size with a slot per completion, and for each smaller number of slots."""
    rows, whole, quick = workload.rows, 96, options.quick
    settings = [
        (1, rows),
        (4, rows),
        (16, rows),
        (whole, rows),
        (4, rows // 2),
        (4, rows // 4),
    ]
    settings = settings[3:5] if quick else settings
    steps, skip = (4, 1) if quick else (8, 2)
    words = [*workload.train_words(warm_model(workload, scratch, quick)), *options.train.split()]
    words += ["--mode", "sync", "--threads.trainer", "2", "--steps", str(steps)]
    seen: dict[tuple[int, int], list[dict[str, float]]] = {setting: [] for setting in settings}
    for _ in range(min(2, repetitions)):
        for block, slots in settings:
            more = ("--env.block-size", str(block), "--env.num-envs", str(slots))
            _, lines = harness.train(*words, *more)
            parts = update_parts(lines, skip, rows)
            rate = parts["response_length"] * rows / parts["generate"]
            seen[block, slots].append(parts | {"generated": rate})
    return [
        {
            "block_size": "whole response" if block == whole else block,
            "slots": slots,
            "generated_tokens_per_second": harness.spread([part["generated"] for part in parts]),
            "trained_tokens_per_second": harness.spread([part["tokens_per_second"] for part in parts]),
        }
        for (block, slots), parts in seen.items()
    ]


# -- overhead per env step ---------------------------------------------------------------------------


def compare_steppers(repetitions: int, quick: bool) -> list[dict[str, Any]]:
    """A row for each way to step the environment with a policy that costs nothing."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in STEPPERS}
    for _ in range(repetitions):
        for name in STEPPERS:
            words = ["--stepper", name, *(["--quick"] if quick else [])]
            seen[name].append(json.loads(harness.run([sys.executable, __file__, *words]).splitlines()[-1]))
    return [
        {"loop": name, **{f"B = {slots}": harness.spread([run[slots] for run in runs]) for slots in runs[0]}}
        for name, runs in seen.items()
    ]


def measure_stepper(name: str, seconds: float) -> dict[str, float]:
    """Microseconds per env step, by number of slots, on one thread."""
    import torch

    torch.set_num_threads(1)
    return {str(slots): time_steps(stepper(name, slots), seconds) for slots in (64, 512)}


def time_steps(steps: Iterable[int], seconds: float) -> float:
    """Microseconds per step of an iterator that says how many steps each turn made; a warm-up goes before."""
    turns = iter(steps)
    warm = time.perf_counter() + seconds / 3
    while time.perf_counter() < warm:
        next(turns)
    began, made = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        made += next(turns)
    return 1e6 * spent / made


def stepper(name: str, slots: int) -> Iterable[int]:
    """A loop over atrl/Addition-v0 in blocks of one token; responses end at random after two tokens on average."""
    import atrl_envs

    env = atrl_envs.make("atrl/Addition-v0", num_envs=slots, group_size=8, block_size=1)
    return {
        "env.step_and_maybe_reset": step_env,
        "our block collector": step_ours,
        "torchrl Collector": step_torchrl,
    }[name](env, null_policy(env))


def null_policy(env: Any) -> Any:
    """Answers with prepared blocks, one of 64 in turn, half of whose tokens end the response."""
    import torch
    from tensordict.nn import TensorDictModuleBase

    from atrl_envs import keys

    shape = (64, env.num_envs, env.block_size)
    generator = torch.Generator().manual_seed(0)
    digits = torch.tensor(env.vocab.encode("0123456789"))
    actions = digits[torch.randint(len(digits), shape, generator=generator)]
    actions[torch.rand(shape, generator=generator) < 0.5] = env.vocab.eos_id
    log_prob, version = torch.zeros(shape[1:]), torch.zeros(shape[1:], dtype=torch.int64)

    class Null(TensorDictModuleBase):
        in_keys, out_keys, calls = (keys.TOKENS,), (keys.ACTION, keys.LOG_PROB, keys.VERSION), 0

        def forward(self, tensordict: Any) -> Any:
            Null.calls += 1
            tensordict.set(keys.ACTION, actions[Null.calls % 64])
            tensordict.set(keys.LOG_PROB, log_prob)
            return tensordict.set(keys.VERSION, version)

    return Null()


def step_env(env: Any, policy: Callable[[Any], Any]) -> Iterable[int]:
    """TorchRL's own stepping function and nothing else."""
    import torch

    state = env.reset()
    while True:
        with torch.no_grad():
            _, state = env.step_and_maybe_reset(policy(state))
        yield 1


def step_ours(env: Any, policy: Any) -> Iterable[int]:
    """The block collector: steps, assembles episodes, counts, and hands over what has finished (to nobody)."""
    from atrl_collectors.blocks import BlockCollector
    from atrl_collectors.delivery import Delivery
    from atrl_collectors.telemetry import WorkerRecord

    delivery = Delivery(WorkerRecord.private(), put=lambda episodes: None)
    collector = BlockCollector(
        env,
        policy,
        replay_buffer=delivery,
        frames_per_batch=env.num_envs,
        auto_register_policy_transforms=False,
    )
    while True:
        collector.block()
        yield 1


def step_torchrl(env: Any, policy: Any) -> Iterable[int]:
    """TorchRL's collector at its defaults, 16 steps a batch; it assembles no episodes."""
    from torchrl.collectors import Collector

    collector = Collector(env, policy, frames_per_batch=16 * env.num_envs, total_frames=-1)
    for _ in collector:
        yield 16


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
