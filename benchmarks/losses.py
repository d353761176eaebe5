"""What a loss costs: forward and backward of each objective beside its peers; log-probabilities of wide vocabularies.

    python benchmarks/losses.py                          # results/losses.json, two tables
    PYTHON_WITH_TRL benchmarks/losses.py                 # with TRL's GRPO among the peers
    python benchmarks/losses.py --parts objectives

Objectives: 64 responses of 256 tokens (AsyncTensorRLHF's Table 1), the same tensors for every side, which take turns in
one process; a loss comes with the diagnostics that its trainer has of it. Log-probabilities: from hidden states to
log-probabilities and entropies and back, the naive way (logits, log_softmax, gather) and ours, with a projection that
is trained and with one that is frozen, as under LoRA. Figures are median (min to max) over the turns; peaks are of
processes of their own.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import harness
import tyro

Part = Literal["objectives", "log_probs"]
ROWS, COLUMNS = 64, 256
VOCABULARIES = {"SmolLM2-135M": (49_152, 576), "Qwen2.5-0.5B": (151_936, 896)}  # tokens, width


@dataclass(frozen=True)
class Options:
    """What is measured."""

    turns: int = 9
    parts: tuple[Part, ...] = ("objectives", "log_probs")
    threads: int = 1
    tokens: int = 256
    """Response tokens whose log-probabilities are made at once."""
    quick: bool = False
    """Two turns, few tokens: to see that everything runs."""
    measure: str = ""
    """One measurement in this process, as JSON; the benchmark calls itself so."""


def main(options: Options) -> None:
    if options.measure:
        print(json.dumps(measure(json.loads(options.measure))))
        return
    if options.quick:
        options = replace(options, turns=2, tokens=64)
    harness.use_checkout()
    name = "losses-quick" if options.quick else "losses"
    result = {**harness.read(name), "quick": options.quick}  # a part that is not measured now keeps its rows
    if "objectives" in options.parts:
        result["objectives"] = in_a_process(kind="objectives", turns=options.turns, threads=options.threads)
        print(f"\n### Forward and backward of a loss, {ROWS} x {COLUMNS} tokens\n")
        print(harness.table(result["objectives"]), flush=True)
    if "log_probs" in options.parts:
        result["log_probs"] = [
            log_prob_row(model, frozen, options) for model in VOCABULARIES for frozen in (True, False)
        ]
        print("\n### Log-probabilities and entropies from hidden states, forward and backward\n")
        print(harness.table(result["log_probs"]), flush=True)
    print(f"\n{harness.write(name, result)}")


def in_a_process(**what: Any) -> Any:
    """A measurement in a process of its own."""
    words = [sys.executable, str(harness.HERE / "losses.py"), "--measure", json.dumps(what)]
    return json.loads(harness.run(words).splitlines()[-1])


def log_prob_row(model: str, frozen: bool, options: Options) -> dict[str, Any]:
    """Time of both ways taken in turns, and the peak of each."""
    vocabulary, width = VOCABULARIES[model]
    what = {"tokens": options.tokens, "vocabulary": vocabulary, "width": width, "threads": options.threads}
    what |= {"frozen": frozen}
    rates = in_a_process(kind="log_probs", turns=options.turns, **what)
    peaks = {way: in_a_process(kind="peak", way=way, **what) for way in ("naive", "atrl")}
    times = [a / b for a, b in zip(rates["naive"], rates["atrl"], strict=True)]
    return {
        "model": model,
        "vocabulary": str(vocabulary),
        "projection": "frozen" if frozen else "trained",
        "tokens": options.tokens,
        "naive, s": harness.spread(rates["naive"]),
        "atrl, s": harness.spread(rates["atrl"]),
        "times as fast": harness.spread(times),
        "naive, peak MB": peaks["naive"],
        "atrl, peak MB": peaks["atrl"],
        "share of the peak": peaks["atrl"] / peaks["naive"],
    }


# -- in the measuring process ------------------------------------------------------------------------


def measure(what: dict[str, Any]) -> Any:
    import torch

    torch.set_num_threads(what["threads"])
    return {"objectives": objectives, "log_probs": log_probs, "peak": peak}[what["kind"]](what)


def objectives(what: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each objective and side."""
    from loss_peers import Tensors, loss_calls

    tensors = Tensors.of(ROWS, COLUMNS)
    calls = {name: backwarded(call, tensors) for name, call in loss_calls(tensors).items()}
    seconds = take_turns(calls, what["turns"], least=0.2)
    grpo = seconds["GRPO, atrl"]
    rows = []
    for name, times in seconds.items():
        objective, side = name.split(", ")
        ours = seconds[f"{objective}, atrl"]
        rows.append(
            {
                "objective": objective,
                "side": side,
                "ms": harness.spread([1000 * t for t in times]),
                "tokens_per_second": harness.spread([ROWS * COLUMNS / t for t in times]),
                "peak_mb": allocated(calls[name]) / 1e6,
                "atrl_is_faster_by": harness.spread([t / o for t, o in zip(times, ours, strict=True)]),
                "over_our_grpo": harness.spread([t / g for t, g in zip(times, grpo, strict=True)]),
            }
        )
    return rows


def backwarded(call: Callable[[], Any], tensors: Any) -> Callable[[], None]:
    """The loss and its gradient, from no gradient."""

    def run() -> None:
        tensors.log_prob.grad = tensors.value.grad = None
        call().backward()

    return run


def take_turns(calls: dict[str, Callable[[], None]], turns: int, least: float) -> dict[str, list[float]]:
    """Seconds a call, in each turn; a call is repeated for `least` seconds, and made once before all."""
    for call in calls.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            began, count = time.perf_counter(), 0
            while True:
                call()
                count += 1
                if (spent := time.perf_counter() - began) >= least:
                    break
            seconds[name].append(spent / count)
    return seconds


def allocated(call: Callable[[], None]) -> int:
    """Most bytes of tensors alive at once during a call, those from before it left out."""
    import torch

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        call()
    alive = most = 0
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    return most


def log_probs(what: dict[str, Any]) -> dict[str, list[float]]:
    """Seconds of both ways, turn by turn."""
    return take_turns({way: log_prob_call(what, way) for way in ("naive", "atrl")}, what["turns"], least=0.0)


def peak(what: dict[str, Any]) -> float:
    """MB that one call takes at most, beside the inputs; a small call has been made before."""
    log_prob_call({**what, "tokens": 8, "vocabulary": 512}, what["way"])()
    call = log_prob_call(what, what["way"])
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # begin the high-water mark anew
    call()
    return (resident("VmHWM") - before) / 1e6


def log_prob_call(what: dict[str, Any], way: str) -> Callable[[], None]:
    """One forward and backward to hidden states, and to the projection unless it is frozen."""
    import torch

    from atrl_agents.linear_log_probs import linear_log_probs

    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(what["tokens"], what["width"], generator=g).requires_grad_()
    weight = torch.randn(what["vocabulary"], what["width"], generator=g) / what["width"] ** 0.5
    weight.requires_grad_(not what["frozen"])
    target = torch.randint(what["vocabulary"], (what["tokens"],), generator=g)

    def run() -> None:
        hidden.grad = weight.grad = None
        if way == "atrl":
            log_prob, _, _ = linear_log_probs(hidden, weight, target, entropy_gradient=False)
        else:
            whole = torch.log_softmax(hidden @ weight.T, -1)
            log_prob = whole.gather(1, target.unsqueeze(1)).squeeze(1)
            with torch.no_grad():
                -(whole.exp() * whole).sum(-1)  # the entropy, which both report
        log_prob.sum().backward()

    return run


def resident(name: str) -> int:
    """A figure of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
