"""What environments cost: steps and resets by number of slots, building a bank, memory of workers that share one.

    python benchmarks/environments.py             # results/environments.json, three tables
    python benchmarks/environments.py --quick     # a smoke run in about a minute
    python benchmarks/environments.py --parts bank --problems 1000000

Each measurement runs in a fresh process, on one core; repetitions of the kinds take turns. Figures are median
(min to max). No model is involved: actions are prepared blocks.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import harness
import tyro

Part = Literal["slots", "bank", "memory"]
SLOTS = (16, 64, 256, 1024, 4096)
WORKLOADS: dict[str, dict[str, Any]] = {
    "one token a step": {"id": "atrl/Addition-v0", "block_size": 1},
    "16 tokens a step": {"id": "atrl/SumSteps-v0", "block_size": 16, "max_new_tokens": 96},
}
BANKS: dict[str, dict[str, Any]] = {
    "atrl/Addition-v0": {"low": 0, "high": 99_999},
    "atrl/Multiplication-v0": {"low": 0, "high": 99_999},
    "atrl/SumSteps-v0": {"high": 999},
}
KINDS = ("a bank of its own", "a shared bank")


@dataclass(frozen=True)
class Options:
    """What is measured."""

    repetitions: int = 3
    parts: tuple[Part, ...] = ("slots", "bank", "memory")
    """slots: steps and resets per second; bank: time to build; memory: proportional set size of worker processes."""
    problems: int = 100_000
    """Problems of a bank."""
    workers: tuple[int, ...] = (1, 2, 4)
    quick: bool = False
    """Few slots and problems, one repetition: to see that everything runs."""
    measure: str = ""
    """One measurement in this process, as JSON; the benchmark calls itself so."""


def main(options: Options) -> None:
    if options.measure:
        print(json.dumps(measure(json.loads(options.measure))))
        return
    harness.use_checkout()
    name = "environments-quick" if options.quick else "environments"
    result = {**harness.read(name), "quick": options.quick, "problems": options.problems}
    for part in options.parts:
        title, rows_of = PARTS[part]
        result[part] = rows = rows_of(options)
        path = harness.write(name, result)  # at once: what comes next may take long
        print(f"\n### {title}\n\n{harness.table(rows)}\n\n{path}", flush=True)


def repeated(options: Options, settings: list[dict[str, Any]]) -> list[list[dict[str, float]]]:
    """Figures of every setting in every repetition, each from a fresh process; settings take turns."""
    found: list[list[dict[str, float]]] = [[] for _ in settings]
    for _ in range(1 if options.quick else options.repetitions):
        for figures, setting in zip(found, settings, strict=True):
            words = json.dumps(setting | {"seconds": 0.2 if options.quick else 1.0})
            figures.append(
                json.loads(harness.run([sys.executable, __file__, "--measure", words]).splitlines()[-1])
            )
    return found


def spreads(figures: list[dict[str, float]]) -> dict[str, Any]:
    """Median and range of every figure."""
    return {name: harness.spread([one[name] for one in figures]) for name in figures[0]}


def slots_rows(options: Options) -> list[dict[str, Any]]:
    """A row for each workload and number of slots."""
    sizes = SLOTS[:2] if options.quick else SLOTS
    settings = [{"kind": "slots", "workload": name, "slots": slots} for name in WORKLOADS for slots in sizes]
    return [
        {"workload": setting["workload"], "slots": setting["slots"], **spreads(figures)}
        for setting, figures in zip(settings, repeated(options, settings), strict=True)
    ]


def bank_rows(options: Options) -> list[dict[str, Any]]:
    """A row for each task."""
    problems = 2000 if options.quick else options.problems
    settings = [{"kind": "bank", "id": name, "problems": problems} for name in BANKS]
    return [
        {"task": setting["id"], "problems": problems, **spreads(figures)}
        for setting, figures in zip(settings, repeated(options, settings), strict=True)
    ]


def memory_rows(options: Options) -> list[dict[str, Any]]:
    """A row for each number of workers and way to have the bank."""
    problems = 2000 if options.quick else options.problems
    counts = options.workers[:1] if options.quick else options.workers
    settings = [
        {"kind": "memory", "workers": workers, "bank": kind, "problems": problems}
        for workers in counts
        for kind in KINDS
    ]
    return [
        {"workers": setting["workers"], "bank": setting["bank"], **spreads(figures)}
        for setting, figures in zip(settings, repeated(options, settings), strict=True)
    ]


PARTS: dict[str, tuple[str, Callable[[Options], list[dict[str, Any]]]]] = {
    "slots": ("Steps and resets by number of slots, one core", slots_rows),
    "bank": ("Building a bank, one core", bank_rows),
    "memory": ("Memory of a worker, proportional set size (PSS) in MB", memory_rows),
}


# -- in the measuring process ------------------------------------------------------------------------


def measure(what: dict[str, Any]) -> dict[str, float]:
    """Make one measurement."""
    import torch

    torch.set_num_threads(1)
    return {"slots": measure_slots, "bank": measure_bank, "memory": measure_memory}[what["kind"]](what)


def measure_slots(what: dict[str, Any]) -> dict[str, float]:
    """Steps of all slots with resets where responses end, and resets of all slots, per second."""
    import atrl_envs
    from atrl_envs import keys

    options = dict(WORKLOADS[what["workload"]])
    env = atrl_envs.make(options.pop("id"), num_envs=what["slots"], group_size=8, bank_size=10_000, **options)
    act, state, ended = prepared_blocks(env), env.reset(), 0

    def step() -> None:
        nonlocal state, ended
        taken, state = env.step_and_maybe_reset(act(state))
        ended += int(taken["next", keys.DONE].sum())

    rate = per_second(step, what["seconds"])
    ended, calls = 0, 20
    for _ in range(calls):
        step()
    resets = per_second(env.reset, what["seconds"])
    return {
        "steps_per_second": rate,
        "slot_steps_per_second": rate * what["slots"],
        "episodes_per_second": rate * ended / calls,
        "slot_resets_per_second": resets * what["slots"],
    }


def per_second(call: Callable[[], Any], seconds: float) -> float:
    """Calls per second, after a warm-up of a third of the time."""
    import torch

    with torch.no_grad():
        warm = time.perf_counter() + seconds / 3
        while time.perf_counter() < warm:
            call()
        began, made = time.perf_counter(), 0
        while (spent := time.perf_counter() - began) < seconds:
            call()
            made += 1
    return made / spent


def prepared_blocks(env: Any) -> Callable[[Any], Any]:
    """A policy of prepared blocks of digits, in turn. Half of them end a response; a fifth if they have many tokens."""
    import torch

    from atrl_envs import keys

    shape = (64, env.num_envs, env.block_size)
    generator = torch.Generator().manual_seed(0)
    digits = torch.tensor(env.vocab.encode("0123456789"))
    actions = digits[torch.randint(len(digits), shape, generator=generator)]
    ends = torch.rand(shape[:2], generator=generator) < (0.5 if env.block_size == 1 else 0.2)
    actions[..., -1][ends] = env.vocab.eos_id
    log_prob, version = torch.zeros(shape[1:]), torch.zeros(shape[1:], dtype=torch.int64)
    calls = 0

    def act(state: Any) -> Any:
        nonlocal calls
        calls += 1
        state.set(keys.ACTION, actions[calls % 64])
        return state.set(keys.LOG_PROB, log_prob).set(keys.VERSION, version)

    return act


def built(id: str, problems: int) -> Any:
    """A bank of a registered task."""
    from atrl_envs.bank import ProblemBank
    from atrl_envs.registry import get_spec
    from atrl_envs.vocab import Vocab

    return ProblemBank.build(get_spec(id).build_task(**BANKS[id]), Vocab.characters(), size=problems)


def measure_bank(what: dict[str, Any]) -> dict[str, float]:
    """Seconds to draw, tokenise and encode the problems, and the size of the tensors."""
    built(what["id"], 10)  # imports, and the tables of the verifier
    began = time.perf_counter()
    bank = built(what["id"], what["problems"])
    seconds = time.perf_counter() - began
    if len(bank) != what["problems"]:
        raise AssertionError(f"{what['id']} has {len(bank)} problems only")
    return {
        "seconds": seconds,
        "problems_per_second": len(bank) / seconds,
        "tensor_mb": bank.data.bytes() / 1e6,
    }


def measure_memory(what: dict[str, Any]) -> dict[str, float]:
    """Megabytes of a worker with a bank, and of one with next to none: all workers alive, the mean over them."""
    import torch.multiprocessing  # noqa: F401  (tensors in shared memory are sent by handle)

    shared = built("atrl/Addition-v0", what["problems"]).share_memory() if what["bank"] == KINDS[1] else None
    small = mean_pss(what["workers"], None, 10)
    whole = mean_pss(what["workers"], shared, what["problems"])
    return {"with_the_bank": whole, "with_ten_problems": small, "for_the_bank": whole - small}


def mean_pss(workers: int, bank: Any, problems: int) -> float:
    """Mean PSS in megabytes over so many workers, each with an env over the bank."""
    context = multiprocessing.get_context("spawn")
    # The barrier breaks where a worker died; the numbers are small enough to wait in the queue.
    barrier, queue = context.Barrier(workers, timeout=300), context.SimpleQueue()
    jobs = [context.Process(target=worker, args=(bank, problems, barrier, queue)) for _ in range(workers)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    if any(job.exitcode for job in jobs):
        raise RuntimeError(f"workers ended with {[job.exitcode for job in jobs]}")
    return sum(queue.get() for _ in jobs) / workers / 1e6


def worker(bank: Any, problems: int, barrier: Any, queue: Any) -> None:
    """Make an env, take a few steps, wait for the others, tell the own size."""
    import torch

    import atrl_envs

    torch.set_num_threads(1)
    bank = built("atrl/Addition-v0", problems) if bank is None else bank
    env = atrl_envs.make("atrl/Addition-v0", num_envs=64, group_size=8, bank=bank)
    act, state = prepared_blocks(env), env.reset()
    for _ in range(20):
        _, state = env.step_and_maybe_reset(act(state))
    int(env.bank.prompts.sum())  # every page has been looked at
    barrier.wait()
    size = own_pss()
    barrier.wait()  # nobody leaves while others count
    queue.put(size)


def own_pss() -> int:
    """Proportional set size in bytes: a page that n processes share counts as 1/n of it in each."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
