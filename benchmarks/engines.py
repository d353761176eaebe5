"""Which engine samples fastest? The same model, prompts and long-tailed response lengths for all of them.

    python benchmarks/engines.py                                      # a tiny model; results/engines.json, a table
    python benchmarks/engines.py --model FOLDER --python-vllm PYTHON_WITH_VLLM
    python benchmarks/engines.py --quick                              # a smoke run

Engines are interleaved, each in a fresh process that samples a few short responses first; figures are median (min to
max) over the repetitions, and ratios are taken within a repetition. Each repetition draws lengths anew. Counted are
the response tokens that were asked for. `atrl slots` runs with its env, verifier, collector and buffer; it and vLLM
return log-probabilities, which the others do not. `generate, sorted` is given rows of similar length together: an
oracle that nobody has. Responses of a prompt share what the engine can share.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import harness
import tyro

FEW = 8  # tokens of a response before the clock runs
BASE = "generate"
NO_VLLM = "not measured: vLLM is not installed"


@dataclass(frozen=True)
class Options:
    """What is measured."""

    model: str = "tiny"
    """A transformers folder, or `tiny`: made as `atrl train` makes it."""
    dtype: str = "float32"
    repetitions: int = 3
    engines: tuple[str, ...] = ("atrl slots", "generate", "generate, sorted", "continuous batching", "vllm")
    prompts: int = 16
    samples_per_prompt: int = 8
    rows: int = 32
    """Sequences that are computed at a time: slots, rows of a batch, requests."""
    median: float = 24.0
    """Tokens of a response; log-normal."""
    sigma: float = 1.0
    """Standard deviation of the logarithm of the length."""
    longest: int = 256
    """Where lengths are cut."""
    env_id: str = "atrl/WordProblems-v0"
    """Where the prompts come from."""
    block_size: int = 8
    """Tokens of an env step, for our slots."""
    threads: int = 2
    python_vllm: Path | None = None
    """The interpreter that has vLLM. None: this one, or .venv-vllm/bin/python, where one of them has it."""
    quick: bool = False
    """Few short responses, one repetition: to see that everything runs."""
    measure: str = ""
    """One measurement in this process, as JSON; the benchmark calls itself so."""


def main(options: Options) -> None:
    if options.measure:
        print(json.dumps(measure(**json.loads(options.measure))))
        return
    if options.quick:
        options = replace(options, prompts=4, samples_per_prompt=4, rows=8, longest=64, repetitions=1)
    harness.use_checkout()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = tiny_folder(Path(scratch)) if options.model == "tiny" else Path(options.model).resolve()
        seen, absent = interleaved(options, str(folder))
    rows = [row(engine, seen) for engine in seen if seen[engine]]
    rows += [{"engine": engine, "tokens_per_second": why} for engine, why in absent.items()]
    about = {"model": Path(options.model).name, "options": described(options), "absent": absent}
    print(f"\n### Generated tokens per second, {about['model']}, {options.rows} rows at a time\n")
    print(harness.table(rows, ["engine", "tokens_per_second", "over_generate", "seconds", "tokens"]))
    print(f"\n{harness.write('engines-quick' if options.quick else 'engines', {**about, 'rows': rows})}")


def described(options: Options) -> dict[str, Any]:
    """The options as JSON, without the paths of this machine."""
    kept = asdict(options)
    for name in ("model", "python_vllm", "measure", "quick"):
        del kept[name]
    return kept


def interleaved(options: Options, folder: str) -> tuple[dict[str, list[dict[str, float]]], dict[str, str]]:
    """What each engine measured, repetition by repetition, and why some engines measured nothing."""
    seen: dict[str, list[dict[str, float]]] = {engine: [] for engine in options.engines}
    absent: dict[str, str] = {}
    pythons = {engine: python_of(engine, options.python_vllm) for engine in options.engines}
    for engine, python in pythons.items():
        if python is None:
            absent[engine] = NO_VLLM
    for repetition in range(options.repetitions):
        for engine in options.engines:
            if engine in absent:
                continue
            what = {"engine": engine, "work": work(options, folder, seed=repetition)}
            command = [str(pythons[engine]), str(harness.HERE / "engines.py"), "--measure", json.dumps(what)]
            try:
                seen[engine].append(json.loads(harness.run(command).splitlines()[-1]))
            except RuntimeError as error:
                absent[engine] = f"failed: {str(error).strip().splitlines()[-1][:200]}"
                continue
            print(f"{repetition + 1}/{options.repetitions} {engine}: {seen[engine][-1]}", flush=True)
    return {engine: found for engine, found in seen.items() if engine not in absent}, absent


def work(options: Options, folder: str, seed: int) -> dict[str, Any]:
    """The fields of a Work, see engine_peers.py."""
    shared = described(options)
    del shared["repetitions"], shared["engines"]
    return {**shared, "model": folder, "seed": seed}


def python_of(engine: str, python_vllm: Path | None) -> str | None:
    """The interpreter of an engine; None where there is none."""
    if engine != "vllm":
        return sys.executable
    if python_vllm is not None:
        return str(python_vllm)
    if importlib.util.find_spec("vllm") is not None:
        return sys.executable
    beside = harness.HERE.parent / ".venv-vllm" / "bin" / "python"
    return str(beside) if beside.exists() else None


def row(engine: str, seen: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """A line of the table."""
    found, base = seen[engine], seen.get(BASE) or seen[engine]
    rates = [one["tokens"] / one["seconds"] for one in found]
    ratios = [b["seconds"] / one["seconds"] for one, b in zip(found, base, strict=True)]
    return {
        "engine": engine,
        "tokens_per_second": harness.spread(rates),
        "over_generate": harness.spread(ratios) if BASE in seen else "",
        "seconds": harness.spread([one["seconds"] for one in found]),
        "tokens": harness.spread([one["tokens"] for one in found]),
        "prompt_tokens": found[0]["prompt_tokens"],
    }


def tiny_folder(scratch: Path) -> Path:
    """The tiny model and its vocabulary as a folder."""
    from atrl_agents import models

    model, vocab = models.load("tiny")
    with models.without_progress_bars():
        model.save_pretrained(scratch / "tiny")
    vocab.tokenizer.save_pretrained(scratch / "tiny")
    return scratch / "tiny"


# -- in the measuring process ------------------------------------------------------------------------


def measure(engine: str, work: dict[str, Any]) -> dict[str, float]:
    """Seconds from the requests to the last token, after a few short responses."""
    import torch
    from engine_peers import ENGINES, Work

    torch.set_num_threads(work["threads"])
    wanted = Work(**work)
    lengths = wanted.lengths()
    side = ENGINES[engine](wanted)
    some = max(1, wanted.rows // wanted.samples_per_prompt)
    side.ready(lengths[:some].clamp(max=FEW))()
    go = side.ready(lengths)
    began = time.perf_counter()
    made = go()
    seconds = time.perf_counter() - began
    if not torch.equal(made, lengths):
        raise RuntimeError(
            f"{engine} made {int(made.sum())} tokens where {int(lengths.sum())} were asked for"
        )
    each = [len(prompt) for prompt in side.requests(lengths)]
    return {"seconds": seconds, "tokens": int(lengths.sum()), "prompt_tokens": sum(each) / len(each)}


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
