"""MATH-shaped data: the box, the level, the subject, and golds that only the host can judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import atrl_envs
from atrl_envs import Verdict
from atrl_envs.checks import corrupt
from atrl_envs.tasks.math import MATH, SAMPLE
from tests.envs.tasks.test_tables import WRITERS
from tests.envs.toy import play

RECORDS = [
    {
        "problem": "How many $x$ with $x^2=4$?",
        "level": "Level 2",
        "type": "Algebra",
        "solution": "First $\\boxed{1}$, no: $x=\\pm 2$, so $\\boxed{2}$.",
    },
    {
        "problem": "Half of $\\sqrt{3}$?",
        "level": "Level 5",
        "type": "Counting & Probability",
        "solution": "It is $\\boxed{\\frac{\\sqrt{3}}{2}}$.",
    },
    {"problem": "One?", "level": "Level ?", "type": "Geometry", "solution": "It is $\\boxed 1$."},
]


def problems(path: Path | str, **options: Any) -> list[atrl_envs.Problem]:
    return MATH(path=str(path), **options).problems()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_the_schema(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"data{suffix}"
    WRITERS[suffix](path, RECORDS)
    found = problems(path)
    assert [(p.answer, p.difficulty) for p in found] == [("2", 2), ("\\frac{\\sqrt{3}}{2}", 5), ("1", 0)]
    assert found[0].prompt == "How many $x$ with $x^2=4$?\n"
    assert found[0].gold_response("boxed") == RECORDS[0]["solution"]
    assert found[0].gold_response("gsm8k_hash") == RECORDS[0]["solution"] + "\n#### 2"
    assert found[2].gold_response("boxed") == "It is $\\boxed 1$.\n\\boxed{1}"


def test_a_folder_of_one_file_a_problem(tmp_path: Path) -> None:
    places = ["train/algebra/1.json", "train/counting_and_probability/12.json", "test/geometry/3.json"]
    for place, record in zip(places, RECORDS, strict=True):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(json.dumps(record))
    assert {p.answer: p.split for p in problems(tmp_path)} == {
        "2": "train",
        "\\frac{\\sqrt{3}}{2}": "train",
        "1": "test",
    }
    assert [p.answer for p in problems(tmp_path / "train")] == ["2", "\\frac{\\sqrt{3}}{2}"]


def test_subjects(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    WRITERS[".jsonl"](path, RECORDS)
    for words, answers in (
        ("algebra", ["2"]),
        ("counting_and_probability, GEOMETRY", ["\\frac{\\sqrt{3}}{2}", "1"]),
        ("Counting & Probability", ["\\frac{\\sqrt{3}}{2}"]),
        ("", ["2", "\\frac{\\sqrt{3}}{2}", "1"]),
    ):
        assert [p.answer for p in problems(path, subject=words)] == answers
    with pytest.raises(
        ValueError, match="no problem of subject topology; it has Algebra, Counting & Prob.*Geometry"
    ):
        problems(path, subject="algebra, topology")


def test_a_field_for_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    record = {"problem": "6*7?", "answer": 42, "subject": "Prealgebra", "level": 1}
    WRITERS[".jsonl"](path, [record, {**record, "problem": "6*8?", "solution": "I know.", "answer": "48"}])
    found = problems(path, subject="prealgebra")
    assert [(p.answer, p.difficulty) for p in found] == [("42", 1), ("48", 1)]
    assert [p.gold_response("boxed") for p in found] == ["\\boxed{42}", "I know.\n\\boxed{48}"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"problem": "?", "solution": "it is 5"},
            r"line 1: no \\boxed\{\} in 'solution', and no field 'answer'",
        ),
        ({"question": "?", "solution": "\\boxed{5}"}, "line 1: no field 'problem'"),
        ({"problem": "?", "solution": "\\boxed{5}{}", "answer": None}, None),
        ({"problem": "?", "answer": " "}, "line 1: 'answer' is empty"),
    ],
)
def test_malformed_records_are_named(record: dict[str, Any], message: str | None, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    WRITERS[".jsonl"](path, [record])
    if message is None:
        assert problems(path)[0].answer == "5"
        return
    with pytest.raises(ValueError, match=message):
        problems(path)


def test_the_sample_pays_with_the_host_and_its_corruptions_do_not() -> None:
    lines = Path(SAMPLE).read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 40
    assert {record["level"] for record in records} == {f"Level {n}" for n in range(1, 6)}
    assert len({record["type"] for record in records}) == 7
    env = atrl_envs.make("atrl/MATH-v0", num_envs=40, block_size=1024, test_fraction=0.0)
    assert sum(not answer.lstrip("-").isdigit() for answer in env.bank.answer_texts) >= 10
    golds = play(env, 40)
    assert {e.verdict for e in golds.values()} == {Verdict.CORRECT}

    def wrong(env: Any, group: int, member: int, problem: int) -> list[int]:
        before, _, after = env.bank.response_texts[problem].rpartition(env.bank.answer_texts[problem])
        return [*env.vocab.encode(before + corrupt(env.bank.answer_texts[problem]) + after), env.vocab.eos_id]

    env.set_seed(0)
    wrongs = play(env, 40, write=wrong)
    assert Verdict.CORRECT not in {e.verdict for e in wrongs.values()}
    env.close()
