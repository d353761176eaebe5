"""How rightly are answers judged? Labelled cases, by the tensor program, with its fallback, and by math-verify.

    rows()                            # one row a judge: accuracy, false negatives, false positives, accuracy by needs
    python benchmarks/agreement.py    # the table

Right is: paid if the label says so, not paid otherwise; disputed cases are left out. math-verify runs in processes as
the fallback does, so what hangs is not paid and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atrl_envs.host import HostPool, prepared_by
from atrl_envs.verify import Verdict, verify_texts
from atrl_envs.verify.formulas.excerpt import excerpt

CASES = Path(__file__).resolve().parent.parent / "tests" / "data" / "verify_cases.jsonl"
NEEDS = ("integer", "decimal", "fraction", "latex", "symbolic", "text")
Case = dict[str, Any]


def cases() -> list[Case]:
    """The labelled cases that are not disputed."""
    read = [json.loads(line) for line in CASES.read_text("utf-8").splitlines()]
    return [case for case in read if not case.get("disputed")]


def rows(judges: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The table; judges: names out of JUDGES, all by default."""
    some = cases()
    return [row(name, some, JUDGES[name](some)) for name in judges or JUDGES]


def row(judge: str, some: Sequence[Case], paid: Sequence[bool | None]) -> dict[str, Any]:
    """What is counted of one judge: shares judged rightly, errors of both kinds. paid: None for no verdict in time."""
    right = [bool(p) == case["correct"] for case, p in zip(some, paid, strict=True)]
    wrong = [case for case, r in zip(some, right, strict=True) if not r]
    numeric = [r for case, r in zip(some, right, strict=True) if case["needs"] in NEEDS[:3]]
    by_need = {
        need: _share([r for case, r in zip(some, right, strict=True) if case["needs"] == need])
        for need in NEEDS
    }
    return {
        "judge": judge,
        "cases": len(some),
        "accuracy": _share(right),
        "false_negatives": sum(case["correct"] for case in wrong),
        "false_positives": sum(not case["correct"] for case in wrong),
        "numeric_false_positives": sum(not c["correct"] for c in wrong if c["needs"] in NEEDS[:3]),
        "numeric_only": _share(numeric),
        **by_need,
        "timeouts": sum(p is None for p in paid),
    }


def on_tensors(some: Sequence[Case], fallback: bool = False) -> list[bool | None]:
    """Paid or not by `verify_texts`."""
    paid: dict[str, bool | None] = {}
    for style in sorted({case["style"] for case in some}):
        mine = [case for case in some if case["style"] == style]
        texts, golds = [case["completion"] for case in mine], [case["gold"] for case in mine]
        for case, verdict in zip(
            mine, verify_texts(texts, golds, style=style, fallback=fallback), strict=True
        ):
            paid[case["id"]] = verdict == Verdict.CORRECT
    return [paid[case["id"]] for case in some]


def with_fallback(some: Sequence[Case]) -> list[bool | None]:
    """Paid or not by `verify_texts(..., fallback=True)`."""
    return on_tensors(some, fallback=True)


def load_math_verify() -> None:
    """Import what math-verify needs."""
    import logging

    from math_verify import parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its alarms are off
    parse("$x$", parsing_timeout=None)


@prepared_by(load_math_verify)
def by_math_verify(text: str, gold: str) -> bool:
    """math-verify as its README calls it, its alarms off (they work in the main thread only)."""
    from math_verify import parse, verify

    wanted = parse(f"\\boxed{{{gold}}}", parsing_timeout=None)
    return bool(verify(wanted, parse(text, parsing_timeout=None), timeout_seconds=None))


def math_verify_raw(some: Sequence[Case]) -> list[bool | None]:
    """math-verify on the whole completion."""
    return _in_processes([(case["completion"], case["gold"]) for case in some])


def math_verify_behind(some: Sequence[Case]) -> list[bool | None]:
    """math-verify on what stands where the style says."""
    found = [excerpt(case["completion"].split(case.get("eos") or "\0")[0], case["style"]) for case in some]
    return _in_processes(
        [(f"\\boxed{{{text or ''}}}", case["gold"]) for text, case in zip(found, some, strict=True)]
    )


JUDGES: dict[str, Callable[[Sequence[Case]], list[bool | None]]] = {
    "tensor program": on_tensors,
    "tensor program and fallback": with_fallback,
    "math-verify, raw completion": math_verify_raw,
    "math-verify behind the extractor": math_verify_behind,
}


def _in_processes(jobs: Sequence[tuple[str, str]]) -> list[bool | None]:
    with HostPool(cpu_seconds=5.0, wall_seconds=30.0, retries=0) as pool:
        paid: dict[int, bool | None] = {pool.submit(by_math_verify, *job): False for job in jobs}
        while pool.pending:
            for outcome in pool.collect(wait=1.0):
                paid[outcome.ticket] = None if outcome.status == "timeout" else bool(outcome.value)
    return list(paid.values())


def _share(flags: Sequence[bool]) -> float:
    return round(sum(flags) / len(flags), 3) if flags else float("nan")


if __name__ == "__main__":
    import harness

    print(harness.table(rows()))
