"""What does it cost to hand on what was trained: an adapter against whole weights, trainer's side and worker's side.

    python benchmarks/publication.py --model FOLDER                   # results/publication.json, a table
    python benchmarks/publication.py --model FOLDER --python-vllm PYTHON_WITH_VLLM
    python benchmarks/publication.py --quick                          # a tiny model, two publications

`publish`: the trainer writes the tensors into shared memory with their fingerprint, and for vLLM computes the canary.
`take`: a sampler copies them, checks the fingerprint and puts them in its model; vLLM's process does so and answers
the canary, an adapter being written as a file that vLLM loads. Each line is a fresh process; the first publication is
left out, and figures are median (min to max) over the others, whose tensors differ from one to the next.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import engines
import harness
import tyro

Engine = Literal["transformers", "vllm"]


@dataclass(frozen=True)
class Options:
    """What is measured."""

    model: str = "tiny"
    """A transformers folder, or `tiny`: made as `atrl train` makes it."""
    dtype: str = "float32"
    r: int = 8
    """Rank of the adapter."""
    publications: int = 10
    engines: tuple[Engine, ...] = ("transformers", "vllm")
    threads: int = 2
    python_vllm: Path | None = None
    """The interpreter that has vLLM. None: this one, or .venv-vllm/bin/python, where one of them has it."""
    quick: bool = False
    """Two publications: to see that everything runs."""
    measure: str = ""
    """One measurement in this process, as JSON; the benchmark calls itself so."""


def main(options: Options) -> None:
    if options.measure:
        print(json.dumps(measure(**json.loads(options.measure))))
        return
    if options.quick:
        options = replace(options, publications=2)
    harness.use_checkout()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        tiny = options.model == "tiny"
        folder = engines.tiny_folder(Path(scratch)) if tiny else Path(options.model).resolve()
        for engine in options.engines:
            rows += both_rows(engine, options, folder)
    name = Path(options.model).name
    print(f"\n### Publication of {name}, milliseconds\n\n{harness.table(rows, COLUMNS)}")
    about = {"model": name, "dtype": options.dtype, "threads": options.threads, "r": options.r}
    written = harness.write("publication-quick" if options.quick else "publication", {**about, "rows": rows})
    print(f"\n{written}")


COLUMNS = [
    "sampler",
    "published",
    "tensors",
    "megabytes",
    "publish",
    "take",
    "publish_and_take",
    "times_as_fast",
]


def both_rows(engine: Engine, options: Options, folder: Path) -> list[dict[str, Any]]:
    """The adapter's line and that of the whole weights."""
    python = engines.python_of(engine, options.python_vllm)
    if python is None:
        return [{"sampler": engine, "published": engines.NO_VLLM}]
    found = {}
    for rank in (options.r, 0):
        what = {"engine": engine, "folder": str(folder), "dtype": options.dtype, "r": rank}
        what |= {"publications": options.publications, "threads": options.threads}
        command = [python, str(harness.HERE / "publication.py"), "--measure", json.dumps(what)]
        found[rank] = json.loads(harness.run(command).splitlines()[-1])
        print(f"{engine}, {published_name(rank)}: {found[rank]}", flush=True)
    whole = statistics.median(total(found[0]))
    return [
        {
            "sampler": engine,
            "published": published_name(rank),
            "tensors": one["tensors"],
            "megabytes": one["bytes"] / 1e6,
            "publish": harness.spread(one["publish"]),
            "take": harness.spread(one["take"]),
            "publish_and_take": harness.spread(total(one)),
            "times_as_fast": whole / statistics.median(total(one)),
        }
        for rank, one in found.items()
    ]


def published_name(rank: int) -> str:
    return f"adapter, r = {rank}" if rank else "whole weights"


def total(one: dict[str, Any]) -> list[float]:
    """Milliseconds of both sides, publication by publication."""
    return [sum(both) for both in zip(one["publish"], one["take"], strict=True)]


# -- in the measuring process ------------------------------------------------------------------------


def measure(
    engine: Engine, folder: str, dtype: Any, r: int, publications: int, threads: int
) -> dict[str, Any]:
    """Milliseconds of each publication on both sides, as a run publishes and its worker takes."""
    import torch

    from atrl_agents import GRPOConfig, models
    from atrl_agents.config import LoRAConfig, ThreadsConfig
    from atrl_agents.engine_recipe import published
    from atrl_collectors import WeightMailbox, mapped

    torch.set_num_threads(threads)
    config = GRPOConfig(
        model=folder, dtype=dtype, engine=engine, lora=LoRAConfig(r=r), threads=ThreadsConfig(worker=threads)
    )
    model, vocab = models.begin(config)
    weights = published(config, model, vocab)
    size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    scratch = mapped.scratch_directory(needed=2 * size)
    try:
        mailbox = WeightMailbox.create(scratch / "weights", weights)
        mailbox.publish(weights, 0)
        policy = sampler(config, model, vocab, scratch)
        times = [one_publication(config, model, vocab, mailbox, policy) for _ in range(publications + 1)][1:]
        if engine == "vllm":
            policy.close()
    finally:
        mapped.discard(scratch)
    return {
        "tensors": len(weights),
        "bytes": size,
        "publish": [publish for publish, _ in times],
        "take": [take for _, take in times],
    }


def sampler(config: Any, model: Any, vocab: Any, scratch: Path) -> Any:
    """The policy of a worker, which holds version 0."""
    from atrl_agents.engine_recipe import EngineRecipe, engine_folder
    from atrl_agents.workers import PolicyRecipe
    from atrl_collectors import WeightMailbox

    mailbox = WeightMailbox.open(scratch / "weights")
    if config.engine == "vllm":
        env = SimpleNamespace(sequence_length=64, max_new_tokens=32)
        return EngineRecipe.of(config, model, vocab, env, engine_folder(model, scratch / "engine"), mailbox)()
    policy = PolicyRecipe.of(config, model, vocab, 32, mailbox)()
    policy.take_new_weights()
    return policy


def one_publication(config: Any, model: Any, vocab: Any, mailbox: Any, policy: Any) -> tuple[float, float]:
    """Change the weights, publish them, take them: milliseconds of the last two."""
    import torch

    from atrl_agents import lora
    from atrl_agents.engine_recipe import published

    with torch.no_grad():
        for parameter in lora.trainable(model).values():
            parameter += 1e-4
    began = time.perf_counter()
    mailbox.publish(published(config, model, vocab), mailbox.version + 1)
    between = time.perf_counter()
    policy.take_new_weights()
    ended = time.perf_counter()
    if (int(policy.version), int(policy.fingerprint)) != (mailbox.version, mailbox.fingerprint):
        raise RuntimeError(
            f"version {mailbox.version} was published, the sampler holds {int(policy.version)}"
        )
    return 1000 * (between - began), 1000 * (ended - between)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
