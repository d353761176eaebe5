"""How fast are answers judged, in how much memory, and how rightly? Whole batches against text by text.

    python benchmarks/verification.py               # results/verification.json, tables
    python benchmarks/verification.py --quick       # a smoke run in about a minute
    python benchmarks/verification.py --parts patterns --repetitions 9

Each measurement runs in a fresh process that may use one core or two; in it the ways of judging take turns, so a
ratio compares figures of the same moments. Figures are median (min to max) over the turns. Host judges get fewer rows
where they are slow (their time is linear in the rows); all judges must agree on every row that they share.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import harness
import tyro

Part = Literal["lengths", "styles", "patterns", "memory", "agreement"]
ROWS = {300: (64, 512, 4096), 2000: (64, 512, 4096), 8000: (64, 512, 2048), 32000: (64, 512)}
OURS, REGEX, PEER, LOOP, PATTERNS = (
    "MathVerifier",
    "decode, regex, Fraction",
    "math-verify",
    "loop over rows",
    "PatternVerifier",
)


@dataclass(frozen=True)
class Options:
    """What is measured."""

    repetitions: int = 5
    parts: tuple[Part, ...] = ("lengths", "styles", "patterns", "memory", "agreement")
    """lengths: rows/s by response length and rows; styles: by style; patterns: token patterns against a loop over the
    rows; memory: peak as a multiple of the tokens; agreement: verdicts on labelled cases."""
    cores: tuple[int, ...] = (1, 2)
    quick: bool = False
    """Few rows, two turns: to see that everything runs."""
    measure: str = ""
    """One measurement in this process, as JSON; the benchmark calls itself so."""


def main(options: Options) -> None:
    if options.measure:
        print(json.dumps(measure(json.loads(options.measure))))
        return
    harness.use_checkout()
    name = "verification-quick" if options.quick else "verification"
    result = {**harness.read(name), "quick": options.quick}  # parts that are not measured now keep their rows
    for part in options.parts:
        result[part] = rows = PARTS[part](options)
        show(TITLES[part], rows)
    print(f"\n{harness.write(name, result)}")


TITLES = {
    "lengths": "Judging boxed answers, rows per second",
    "styles": "MathVerifier by style, 300 characters, one core, rows per second",
    "patterns": "Token patterns, L = 256",
    "memory": "Peak memory of one call, as a multiple of the token batch (int64)",
    "agreement": "Agreement with labelled cases",
}


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """A heading and a table."""
    text = harness.table(rows) if rows else "(not measured)"
    print(f"\n### {title}\n\n{text}", flush=True)


def measured(options: Options, **what: Any) -> Any:
    """One measurement in a fresh process."""
    what |= {"turns": 2 if options.quick else options.repetitions, "seconds": 0.05 if options.quick else 0.4}
    return json.loads(harness.run([sys.executable, __file__, "--measure", json.dumps(what)]).splitlines()[-1])


def measure_lengths(options: Options) -> list[dict[str, Any]]:
    """A row for each number of cores, length and number of rows."""
    grid = {300: (64, 256), 2000: (64,)} if options.quick else ROWS
    return [
        measured(options, kind="lengths", cores=cores, characters=characters, rows=rows)
        for cores in options.cores
        for characters, sizes in grid.items()
        for rows in sizes
    ]


def measure_styles(options: Options) -> list[dict[str, Any]]:
    """A row for each style."""
    styles = ("plain", "gsm8k_hash", "boxed", "answer_tag", "last_number")
    return [
        measured(options, kind="styles", cores=1, style=s, rows=64 if options.quick else 512) for s in styles
    ]


def measure_patterns(options: Options) -> list[dict[str, Any]]:
    """A row for each number of cores and of rows."""
    return [
        measured(options, kind="patterns", cores=cores, rows=rows)
        for cores in options.cores
        for rows in (64, 128)
    ]


def measure_memory(options: Options) -> list[dict[str, Any]]:
    """A row for each verifier and length."""
    grid = [(300, 256)] if options.quick else [(300, 4096), (2000, 4096), (8000, 1024), (32000, 512)]
    names = (OURS, "ExactVerifier", PATTERNS)
    return [
        measured(options, kind="memory", cores=1, verifier=name, characters=characters, rows=rows)
        for characters, rows in grid
        for name in names
    ]


def measure_agreement(options: Options) -> list[dict[str, Any]]:
    """The table of verdicts on labelled cases."""
    return measured(options, kind="agreement", cores=max(options.cores))


PARTS: dict[str, Callable[[Options], list[dict[str, Any]]]] = {
    "lengths": measure_lengths,
    "styles": measure_styles,
    "patterns": measure_patterns,
    "memory": measure_memory,
    "agreement": measure_agreement,
}


# -- in the measuring process ------------------------------------------------------------------------


def measure(what: dict[str, Any]) -> Any:
    """Make one measurement on so many cores."""
    import torch

    cores = sorted(os.sched_getaffinity(0))[: what["cores"]]
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(what["cores"])
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if what["cores"] > 1 else "false"
    kinds = {
        "lengths": lengths,
        "styles": styles,
        "patterns": patterns,
        "memory": memory,
        "agreement": agreement,
    }
    with torch.no_grad():
        return kinds[what["kind"]](what)


def take_turns(
    calls: dict[str, tuple[Callable[[], Any], int]], what: dict[str, Any]
) -> dict[str, list[float]]:
    """Rows per second of each call in each turn; a call is repeated until its time is up. One warm-up call each."""
    for call, _ in calls.values():
        call()
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(what["turns"]):
        for name, (call, rows) in calls.items():
            began, made = time.perf_counter(), 0
            while True:
                call()
                made += rows
                if (spent := time.perf_counter() - began) >= what["seconds"]:
                    break
            rates[name].append(made / spent)
    return rates


def ratios(rates: dict[str, list[float]], ours: str) -> dict[str, dict[str, float]]:
    """How many times as fast ours is, within each turn."""
    return {
        f"over_{name}": harness.spread([a / b for a, b in zip(rates[ours], other, strict=True)])
        for name, other in rates.items()
        if name != ours
    }


def lengths(what: dict[str, Any]) -> dict[str, Any]:
    """MathVerifier, decode with regex, and math-verify on one batch."""
    import judges
    from responses import ResponseWriter

    cores, most = what["cores"], what["rows"]
    writer = ResponseWriter()
    batch = writer.batch(most, what["characters"])
    host = batch.head(min(most, max(64, 2_000_000 // what["characters"])))
    peer = batch.head(min(most, 2 * max(8, 30_000 // what["characters"])))
    made = {
        OURS: (judges.tensor_judge(writer.vocab, "boxed", batch.golds), batch),
        REGEX: (judges.decode_judge(writer.vocab, "boxed", host.golds, cores), host),
        PEER: (judges.math_verify_judge(writer.vocab, "boxed", peer.golds, cores), peer),
    }
    for name, (judge, part) in made.items():
        said = [bool(right) for right in judge(part.tokens, part.start)]
        if said != part.right:
            wrong = next(i for i, (a, b) in enumerate(zip(said, part.right, strict=True)) if a != b)
            raise AssertionError(f"{name} judges row {wrong} wrongly: gold {part.golds[wrong]}")
    calls = {
        name: (lambda judge=judge, part=part: judge(part.tokens, part.start), part.rows)
        for name, (judge, part) in made.items()
    }
    rates = take_turns(calls, what)
    return {
        "cores": cores,
        "characters": what["characters"],
        "rows": most,
        "tokens": batch.tokens.shape[1],
        "characters_per_token": batch.characters / batch.tokens_each,
        **{name: harness.spread(values) for name, values in rates.items()},
        **ratios(rates, OURS),
    }


def styles(what: dict[str, Any]) -> dict[str, Any]:
    """MathVerifier on answers of one style."""
    import judges
    from responses import ResponseWriter

    writer, style = ResponseWriter(), what["style"]
    batch = writer.batch(what["rows"], 300 if style != "plain" else 1, style)
    judge = judges.tensor_judge(writer.vocab, style, batch.golds)
    rates = take_turns({OURS: (lambda: judge(batch.tokens, batch.start), batch.rows)}, what)
    right = sum(bool(paid) for paid in judge(batch.tokens, batch.start)) / sum(batch.right)
    return {
        "style": style,
        "rows": batch.rows,
        OURS: harness.spread(rates[OURS]),
        "right_answers_paid": right,
    }


def patterns(what: dict[str, Any]) -> dict[str, Any]:
    """PatternVerifier and the loop over rows on the same tokens and patterns."""
    import judges
    import torch
    from responses import ResponseWriter

    from atrl_envs.verify import PatternVerifier

    rows, size = what["rows"], 256
    writer = ResponseWriter()
    tokens = writer.batch(rows, 1500).tokens[:, 8 : 8 + size].contiguous()
    rng, eos = writer.rng, writer.vocab.eos_id
    whole, chosen = tokens.clone(), []
    for row in range(rows):
        at, length = rng.randrange(size - 8), rng.randint(1, 8)
        source = whole[row if rng.random() < 0.7 else (row + 1) % rows]
        chosen.append(source[at : at + length].clone())
        stop = rng.randrange(size // 2, size)
        tokens[row, stop], tokens[row, stop + 1 :] = eos, writer.vocab.pad_id
    verifier = PatternVerifier(writer.vocab)
    answers = verifier.encode_answers([pattern.tolist() for pattern in chosen])
    start = torch.zeros(rows, dtype=torch.int64)
    found = judges.loop_over_rows(tokens, chosen, eos)
    if not torch.equal(verifier(tokens, start, answers) == 0, found > 0):
        raise AssertionError("PatternVerifier and the loop over rows differ")
    calls = {
        PATTERNS: (lambda: verifier(tokens, start, answers), rows),
        LOOP: (lambda: judges.loop_over_rows(tokens, chosen, eos), rows),
    }
    rates = take_turns(calls, what)
    return {
        "cores": what["cores"],
        "rows": rows,
        "found": float(found.mean()),
        **{f"{name}, ms": harness.spread([1000 * rows / rate for rate in rates[name]]) for name in calls},
        **ratios(rates, PATTERNS),
    }


def memory(what: dict[str, Any]) -> dict[str, Any]:
    """The highest resident size during one call over the size before it, in units of the token batch."""
    from responses import ResponseWriter

    from atrl_envs.verify import ExactVerifier, MathVerifier, PatternVerifier

    writer = ResponseWriter()
    makers = {
        OURS: lambda: MathVerifier(writer.vocab, "boxed"),
        "ExactVerifier": lambda: ExactVerifier(writer.vocab, "boxed"),
        PATTERNS: lambda: PatternVerifier(writer.vocab),
    }
    verifier, batch = makers[what["verifier"]](), writer.batch(what["rows"], what["characters"])
    answers = verifier.encode_answers(batch.golds)
    few = batch.head(8)
    verifier(few.tokens[:, -64:], few.start * 0, answers[:8])
    ctypes.CDLL(None).malloc_trim(0)  # what earlier work left free would be used first, and not be seen
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # begin the high-water mark anew
    verifier(batch.tokens, batch.start, answers)
    extra, size = resident("VmHWM") - before, batch.tokens.numel() * 8
    return {
        "verifier": what["verifier"],
        "characters": what["characters"],
        "rows": batch.rows,
        "tokens_mb": size / 1e6,
        "peak_mb": extra / 1e6,
        "multiple": extra / size,
    }


def agreement(what: dict[str, Any]) -> list[dict[str, Any]]:
    """Verdicts on labelled cases, see agreement.py."""
    import agreement as table

    return table.rows()


def resident(name: str) -> int:
    """A figure of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
