"""The whole pipeline against TRL's GRPOTrainer, and against the bare work: same model, task, batch and optimiser.

    python benchmarks/pipeline.py --trl-python ~/trl-venv/bin/python      # results/pipeline.json, three tables
    python benchmarks/pipeline.py --quick --parts throughput              # a smoke run

Throughput is taken at a vanishing learning rate, so that every side answers with the same lengths all along.
Wall time to 90 % is the first evaluation that reaches it, every side evaluating as often, on as many problems.
The clock stands still while a side evaluates (our workers of an asynchronous run go on meanwhile, as far as the
staleness allows; what every side needed with its evaluations is in a column of its own). Every run has its own
process; kinds of run are interleaved.
"""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import harness
import tyro
from collectors import update_parts

Part = Literal["throughput", "accuracy"]
PROMPTS, SAMPLES = 64, 8
EVAL_EVERY = 5  # updates between two evaluations of the runs to the target, on every side
STILL = 1e-9  # a learning rate at which nothing changes


@dataclass(frozen=True)
class Contest:
    """A task, a warm start, and how TRL runs it best."""

    name: str
    env_id: str
    task: dict[str, Any]
    warmup: tuple[str, ...]
    updates: int
    peers: dict[str, tuple[str, ...]]
    lr: float  # of the runs to the target, constant
    ahead: int  # largest staleness of our asynchronous runs
    skip: int = 2

    @property
    def env_words(self) -> list[str]:
        """The environment as arguments of `atrl train`."""
        task = dict(self.task)
        longest = task.pop("max_new_tokens", None)
        words = ["--env.id", self.env_id]
        words += ["--env.max-new-tokens", str(longest)] if longest else []
        return [*words, "--env.set", *(f"{k}={v}" for k, v in task.items())] if task else words


TUNED = ("--generation-rows", "32", "--micro-batch", "32")
CONTESTS = (
    Contest(
        name="short",
        env_id="atrl/Addition-v0",
        task={},
        warmup=("--warmup-steps", "1200", "--warmup.until", "0.5", "--warmup.anneal-steps", "20"),
        updates=32,
        peers={"trl": ()},
        lr=2e-4,
        ahead=1,
    ),
    Contest(
        name="long-tailed",
        env_id="atrl/SumSteps-v0",
        # the gold responses of the warm start answer at once more often than not: rewards teach to work it out
        task={"high": 9, "median_terms": 3, "max_terms": 12, "hasty": 0.6, "max_new_tokens": 96},
        warmup=tuple(
            "--tiny.layers 3 --warmup-steps 1400 --warmup.batch-size 64 --warmup.learning-rate 2e-3 "
            "--warmup.until 2 --warmup.anneal-steps 60".split()
        ),
        updates=5,
        skip=1,
        peers={"trl tuned": TUNED, "trl tuned, sorted": (*TUNED, "--sort-prompts")},
        lr=2e-5,
        ahead=4,  # a batch whose longest responses are still being written lets two more begin
    ),
)
OURS = {
    "atrl sync": ("--mode", "sync", "--threads.trainer", "2"),
    "atrl async": ("--mode", "async", "--threads.trainer", "1", "--threads.worker", "1"),
}


@dataclass(frozen=True)
class Options:
    """What is measured."""

    trl_python: str = sys.executable
    """An interpreter whose environment has trl beside atrl."""
    repetitions: int = 2
    """Of the throughput runs."""
    accuracy_repetitions: int = 3
    """Of the runs to the target, each with a seed of its own."""
    parts: tuple[Part, ...] = ("throughput", "accuracy")
    tasks: tuple[str, ...] = ("short", "long-tailed")
    peers: bool = True
    """Run TRL too."""
    target: float = 0.9
    """Held-out greedy accuracy to reach."""
    limit: float = 400.0
    """Seconds of training after which a side is taken not to reach it."""
    eval_problems: int = 256
    """Held-out problems of each of those evaluations."""
    warm: Path | None = None
    """Keep the warm-started models in this folder, and use those that are there already."""
    train: str = ""
    """Further words for every `atrl train` after the warm start."""
    quick: bool = False
    """Few updates, one repetition: to see that everything runs."""


def main(options: Options) -> None:
    harness.use_checkout()
    name = "pipeline-quick" if options.quick else "pipeline"
    result = measured_before(name, options)
    contests = [contest for contest in CONTESTS if contest.name in options.tasks]
    title = f"Seconds of training to {options.target:.0%} held-out accuracy"
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for contest in contests:
            warm_model(contest, scratch, options)
        for part, heading, measure in (
            ("throughput", "Throughput", throughput),
            ("accuracy", title, to_target),
        ):
            for contest in contests if part in options.parts else ():
                result[part] += measure(contest, scratch, options)
                path = harness.write(name, result)  # at once: what comes next may take long
            if part in options.parts:
                print(f"\n### {heading}\n\n{harness.table(result[part])}\n\n{path}", flush=True)


def measured_before(name: str, options: Options) -> dict[str, Any]:
    """The settings, and the rows of other parts and tasks that an earlier call left in the JSON."""
    settings = {"prompts": PROMPTS, "samples": SAMPLES, "target": options.target, "limit": options.limit}
    settings |= {"eval_every": EVAL_EVERY, "eval_problems": options.eval_problems}
    result: dict[str, Any] = {"settings": settings}
    before = harness.read(name)
    for part in ("throughput", "accuracy"):
        again = options.tasks if part in options.parts else ()
        result[part] = [row for row in before.get(part, []) if row["task"] not in again]
    return result


def warm_model(contest: Contest, scratch: Path, options: Options) -> None:
    """The model that every side begins with."""
    words = [*contest.env_words, *contest.warmup, "--steps", "0", "--mode", "sync", "--eval-problems", "512"]
    words += ["--warmup-steps", "40", "--warmup.anneal-steps", "10"] if options.quick else []
    model = scratch / contest.name
    kept = None if options.warm is None or options.quick else options.warm / contest.name
    if kept is not None and (kept / "summary.json").is_file():
        shutil.copytree(kept, model)
    else:
        harness.run(atrl(model, words))
        if kept is not None:
            shutil.copytree(model, kept)
    before = json.loads((model / "summary.json").read_text())["accuracy_before"]
    print(f"{contest.name}: warm start at {before:.1%}", flush=True)


def atrl(out: Path, words: list[str]) -> list[str]:
    """The command of an `atrl train` run."""
    return [sys.executable, "-m", "atrl_agents.cli", "train", "--out", str(out), *words]


def our_words(contest: Contest, scratch: Path, mode: str, lr: float) -> list[str]:
    """The arguments of our runs: TRL's optimiser, in our words."""
    return [
        *("--model", str(scratch / contest.name / "checkpoint"), *contest.env_words, "--warmup-steps", "0"),
        *("--prompts-per-batch", str(PROMPTS), "--samples-per-prompt", str(SAMPLES), *OURS[mode]),
        *(("--max-staleness", str(contest.ahead)) if "async" in OURS[mode] else ()),
        *("--optim.learning-rate", str(lr), "--optim.schedule", "constant", "--optim.ramp-steps", "1"),
        *("--optim.betas", "0.9", "0.999", "--save-every", "0", "--log-every", "1000000"),
    ]


def peer_run(contest: Contest, scratch: Path, options: Options, words: tuple[str, ...]) -> dict[str, Any]:
    """One run of TRL: its JSON."""
    out = scratch / "trl.json"
    task = json.dumps(contest.task)
    fixed = ["--model-folder", str(scratch / contest.name / "checkpoint"), "--env-id", contest.env_id]
    fixed += ["--task", task, "--out", str(out), "--threads", "2"]
    fixed += ["--prompts-per-batch", str(PROMPTS), "--samples-per-prompt", str(SAMPLES)]
    harness.run([options.trl_python, str(harness.HERE / "trl_peer.py"), *fixed, *words])
    return json.loads(out.read_text())


# -- throughput --------------------------------------------------------------------------------------


def throughput(contest: Contest, scratch: Path, options: Options) -> list[dict[str, Any]]:
    """A row for each side: completions/s and response tokens/s over the updates after the first few."""
    updates, skip = (4, 1) if options.quick else (contest.updates + contest.skip, contest.skip)
    seen: dict[str, list[dict[str, float]]] = {}
    for _ in range(1 if options.quick else options.repetitions):
        for mode in OURS:
            words = [*our_words(contest, scratch, mode, STILL), *options.train.split()]
            _, rows = harness.train(
                *words, "--steps", str(updates), "--eval-every", "0", "--eval-problems", "1"
            )
            parts = update_parts(rows, skip, PROMPTS * SAMPLES)
            rates = {
                "completions": PROMPTS * SAMPLES / parts["seconds"],
                "tokens": parts["tokens_per_second"],
            }
            seen.setdefault(mode, []).append(rates)
        seen.setdefault("bare loop", []).append(bare_run(contest, scratch, updates, skip))
        for name, more in contest.peers.items() if options.peers else ():
            still = ("--updates", str(updates), "--lr", str(STILL), "--eval-every", "1000000")
            record = peer_run(contest, scratch, options, (*still, "--eval-problems", "8", *more))
            seen.setdefault(name, []).append(rates_of(record["updates"][skip:]))
    return [throughput_row(contest, name, seen) for name in seen]


def throughput_row(contest: Contest, name: str, seen: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """A side's figures, and how many times as fast as every other one the first of ours is (per repetition)."""

    def times(mode: str) -> dict[str, float]:
        pairs = zip(seen[mode], seen[name], strict=True)
        return harness.spread([ours["completions"] / theirs["completions"] for ours, theirs in pairs])

    return {
        "task": contest.name,
        "side": name,
        "completions_per_second": harness.spread([run["completions"] for run in seen[name]]),
        "tokens_per_second": harness.spread([run["tokens"] for run in seen[name]]),
        "atrl_sync_over_this": times("atrl sync"),
        "atrl_async_over_this": times("atrl async"),
    }


def rates_of(rows: list[dict[str, float]]) -> dict[str, float]:
    """Completions/s and tokens/s of rows with `seconds`, `completions` and `tokens`."""
    seconds = sum(row["seconds"] for row in rows)
    return {name: sum(row[name] for row in rows) / seconds for name in ("completions", "tokens")}


def bare_run(contest: Contest, scratch: Path, updates: int, skip: int) -> dict[str, float]:
    """The bare work on the same model and prompts; see bare.py."""
    words = ["--model-folder", str(scratch / contest.name / "checkpoint"), "--env-id", contest.env_id]
    words += ["--task", json.dumps(contest.task), "--updates", str(updates)]
    printed = harness.run([sys.executable, str(harness.HERE / "bare.py"), *words])
    return rates_of(json.loads(printed.splitlines()[-1])[skip:])


# -- time to accuracy --------------------------------------------------------------------------------


def to_target(contest: Contest, scratch: Path, options: Options) -> list[dict[str, Any]]:
    """A row for each side: seconds until an evaluation reached the target, None where it did not in time."""
    limit = 5.0 if options.quick else options.limit
    seen: dict[str, list[dict[str, Any]]] = {}
    for repetition in range(1 if options.quick else options.accuracy_repetitions):
        shared = ("--eval-every", str(EVAL_EVERY), "--eval-problems", str(options.eval_problems))
        for mode in OURS:
            words = [*our_words(contest, scratch, mode, contest.lr), *shared, "--seed", str(repetition)]
            words += options.train.split()
            out = scratch / f"{contest.name}-{mode.split()[1]}-{repetition}"
            seen.setdefault(mode, []).append(watch(atrl(out, words), out, options.target, limit))
        more = ("--lr", str(contest.lr), "--seconds", str(limit), "--target", str(options.target))
        more += ("--updates", "2000", "--seed", str(repetition), *shared)
        for name, tuned in list(contest.peers.items())[-1:] if options.peers else ():
            record = peer_run(contest, scratch, options, (*more, *tuned))
            seen.setdefault(name, []).append(
                {
                    "seconds": record["seconds_to_target"],
                    "evaluating": record["eval_seconds"],
                    "updates": len(record["updates"]),
                    "before": record["accuracy_before"],
                    "last": record["accuracy_after"],
                }
            )
    return [
        {
            "task": contest.name,
            "side": name,
            "before": runs[0]["before"],
            "seconds": reached(runs, limit),
            "with_evaluations": reached(runs, limit, "evaluating"),
            "updates": harness.spread([run["updates"] for run in runs]),
            "last_accuracy": harness.spread([run["last"] for run in runs]),
        }
        for name, runs in seen.items()
    ]


def reached(runs: list[dict[str, Any]], limit: float, more: str = "") -> Any:
    """The spread of the seconds (and of those under `more`), or in words how many runs got there."""
    seconds = [run["seconds"] + run.get(more, 0.0) for run in runs if run["seconds"] is not None]
    if len(seconds) == len(runs):
        return harness.spread(seconds)
    return f"{len(seconds)} of {len(runs)} in {limit:.0f} s"


def watch(command: list[str], out: Path, target: float, limit: float) -> dict[str, Any]:
    """Run `atrl train` until an evaluation reaches the target or its clock the limit, then stop it by Ctrl-C."""
    command = [*command, "--steps", "100000"]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, cwd=harness.HERE.parent)
        try:
            while process.poll() is None:
                time.sleep(0.5)
                rows = metrics(out / "metrics.csv")
                hit = next((row for row in rows if row["accuracy"] >= target), None)
                if rows and (hit or rows[-1]["seconds"] >= limit):
                    break
            else:
                said.seek(0)
                raise RuntimeError(f"{' '.join(command)} ended by itself:\n{said.read()[-4000:]}")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
    evaluations = [row for row in rows if row["accuracy"] >= 0]
    # a row's seconds end where its own evaluation begins
    evaluating = sum(
        max(0.0, row["eval_seconds"]) for row in rows if hit is None or row["step"] < hit["step"]
    )
    return {
        "seconds": hit["seconds"] - evaluating if hit and hit["seconds"] <= limit else None,
        "evaluating": evaluating,
        "updates": hit["step"] if hit else rows[-1]["step"],
        "before": evaluations[0]["accuracy"],
        "last": hit["accuracy"] if hit else evaluations[-1]["accuracy"],
    }


def metrics(path: Path) -> list[dict[str, float]]:
    """The whole rows so far: step, seconds, accuracy and eval_seconds (-1 where there was no evaluation)."""
    if not path.is_file():
        return []
    text = path.read_text()
    rows = csv.DictReader(text[: text.rfind("\n") + 1].splitlines())
    return [
        {name: float(row[name] or -1.0) for name in ("step", "seconds", "accuracy", "eval_seconds")}
        for row in rows
        if row.get("accuracy") is not None
    ]


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
