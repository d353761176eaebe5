"""The labelled cases: right where the tensor program owns the kind, and never a wrong answer paid."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from atrl_envs.verify import MathVerifier, Verdict, verify_texts
from tests.envs.verify.spellings import PieceVocab, batch, split

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "verify_cases.jsonl").read_text("utf-8").splitlines()
]
STYLES = sorted({case["style"] for case in CASES})
OWNED = ("integer", "decimal", "fraction")


def judge_texts(cases: list[dict[str, Any]]) -> list[Verdict]:
    """Verdicts on the written completions."""
    verdicts: dict[str, Verdict] = {}
    for style in STYLES:
        some = [case for case in cases if case["style"] == style]
        found = verify_texts([c["completion"] for c in some], [c["gold"] for c in some], style=style)
        verdicts.update({case["id"]: verdict for case, verdict in zip(some, found, strict=True)})
    return [verdicts[case["id"]] for case in cases]


def judge_pieces(cases: list[dict[str, Any]], pieces: list[list[bytes]]) -> list[Verdict]:
    """Verdicts on the completions split into these pieces; an `eos` of the case is the end-of-sequence token."""
    verdicts: dict[str, Verdict] = {}
    vocab = PieceVocab([piece for row in pieces for piece in row])
    for style in STYLES:
        some = [(case, row) for case, row in zip(cases, pieces, strict=True) if case["style"] == style]
        rows = [
            [
                vocab.eos_id if piece.decode("utf-8", "replace") == case.get("eos") else vocab.ids[piece]
                for piece in row
            ]
            for case, row in some
        ]
        tokens, start = batch(rows, vocab.pad_id)
        verifier = MathVerifier(vocab, style)
        golds = verifier.encode_answers([case["gold"] for case, _ in some])
        # Short rows are padded; the padding token has no bytes, so it is no part of the text.
        found = verifier(tokens, start, golds).tolist()
        verdicts.update({case["id"]: Verdict(v) for (case, _), v in zip(some, found, strict=True)})
    return [verdicts[case["id"]] for case in cases]


def score(verdicts: list[Verdict]) -> tuple[Counter[str], Counter[str], list[str]]:
    """Cases and errors by need, and wrong answers that were paid; disputed cases are left out."""
    total: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    paid_wrong = []
    for case, verdict in zip(CASES, verdicts, strict=True):
        if case.get("disputed"):
            continue
        paid = verdict == Verdict.CORRECT
        total[case["needs"]] += 1
        errors[case["needs"]] += paid != case["correct"]
        if paid and not case["correct"]:
            paid_wrong.append(case["id"])
    return total, errors, paid_wrong


def check(verdicts: list[Verdict]) -> None:
    total, errors, paid_wrong = score(verdicts)
    assert not paid_wrong
    for need in OWNED:
        assert errors[need] <= 0.01 * total[need], (need, errors[need], total[need])


def test_written_out() -> None:
    check(judge_texts(CASES))


@pytest.mark.parametrize("seed", [0, 1])
def test_split_at_random(seed: int) -> None:
    rng = random.Random(seed)
    pieces = []
    for case in CASES:
        raw = case["completion"].encode()
        if case.get("eos"):
            mark = case["eos"].encode()
            parts = raw.split(mark)
            row = split(parts[0], rng)
            for part in parts[1:]:
                row += [mark, *split(part, rng)]
            pieces.append(row)
        else:
            pieces.append(split(raw, rng, longest=7))
    check(judge_pieces(CASES, pieces))


def test_split_as_given() -> None:
    pieces = [[p.encode() for p in case.get("pieces", list(case["completion"]))] for case in CASES]
    check(judge_pieces(CASES, pieces))


def test_no_owned_case_is_left_open() -> None:
    """The kinds that the tensor program owns get a verdict, not UNDECIDED."""
    open_cases = [
        case["id"]
        for case, verdict in zip(CASES, judge_texts(CASES), strict=True)
        if verdict == Verdict.UNDECIDED and case["needs"] in OWNED and not case.get("disputed")
    ]
    assert not open_cases
