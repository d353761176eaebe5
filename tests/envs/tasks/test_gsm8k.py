"""GSM8K-shaped data: what is the gold, what are the steps, and the sample that comes with the package."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import atrl_envs
from atrl_envs import Verdict
from atrl_envs.tasks.gsm8k import GSM8K, SAMPLE
from tests.envs.tasks.test_tables import WRITERS
from tests.envs.toy import play

RECORDS = [
    {
        "question": "A shop sells 48 caps in May and half as many in June. How many in all?",
        "answer": "In June 48/2 = <<48/2=24>>24 caps.\nIn all 48+24 = <<48+24=72>>72.\n#### 72",
    },
    {
        "question": "What is left of $3,000 after $1,250?",
        "answer": "$3,000-$1,250=$<<3000-1250=1750>>1,750\n#### 1,750",
    },
    {"question": "And of -2 after 3.5?", "answer": "#### -5.5"},
]


def problems(path: Path, **options: Any) -> list[atrl_envs.Problem]:
    return GSM8K(path=str(path), **options).problems()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_the_schema(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"data{suffix}"
    WRITERS[suffix](path, RECORDS)
    found = problems(path)
    assert [p.answer for p in found] == ["72", "1750", "-5.5"]
    assert found[0].prompt == "A shop sells 48 caps in May and half as many in June. How many in all?\n"
    assert found[0].gold_response("gsm8k_hash") == "In June 48/2 = 24 caps.\nIn all 48+24 = 72.\n#### 72"
    assert found[1].gold_response("gsm8k_hash") == "$3,000-$1,250=$1,750\n#### 1750"
    assert found[2].gold_response("gsm8k_hash") == "#### -5.5"


@pytest.mark.parametrize("style", ["gsm8k_hash", "boxed", "answer_tag", "last_number", "plain"])
def test_gold_responses_pay_in_every_style(style: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    WRITERS[".jsonl"](path, RECORDS)
    env = atrl_envs.make("atrl/GSM8K-v0", path=str(path), test_fraction=0.0, style=style, num_envs=3)
    assert {episode.verdict for episode in play(env, 3).values()} == {Verdict.CORRECT}
    assert ("caps." in env.bank.response_texts[0]) is (style != "plain")


def test_separators_of_thousands_only() -> None:
    for text, gold in (
        ("12,345,678.9", "12345678.9"),
        ("1,2,3", "1,2,3"),
        ("$2,400", "$2400"),
        ("1,20", "1,20"),
    ):
        assert GSM8K()._problem("here", {"question": "?", "answer": f"#### {text}"}).answer == gold


def test_a_template(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    WRITERS[".jsonl"](path, [{"question": "Is {} a set of {1}?", "answer": "#### 1"}])
    assert problems(path, template="Q: {}\nA: ")[0].prompt == "Q: Is {} a set of {1}?\nA: "
    with pytest.raises(ValueError, match=r"template wants \{\} once.*got 'Q: '"):
        problems(path, template="Q: ")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"question": "?", "answer": "it is 5"},
            "line 1: 'answer' must end in '#### ' and the number, got .*it is 5",
        ),
        ({"question": "?", "answer": "it is ####  "}, "line 1: 'answer' must end in '#### '"),
        ({"prompt": "?", "answer": "#### 5"}, "line 1: no field 'question'; it has 'prompt', 'answer'"),
    ],
)
def test_malformed_records_are_named(record: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    WRITERS[".jsonl"](path, [record])
    with pytest.raises(ValueError, match=message):
        problems(path)


def test_own_test_problems_stay_test_problems(tmp_path: Path) -> None:
    train, test = tmp_path / "train.jsonl", tmp_path / "other.jsonl"
    WRITERS[".jsonl"](train, RECORDS)
    WRITERS[".jsonl"](test, RECORDS[:1])
    options = {"path": str(train), "test_path": str(test)}
    banks = [atrl_envs.make("atrl/GSM8K-v0", split=split, **options).bank for split in ("train", "test")]
    assert [bank.answer_texts for bank in banks] == [["1750", "-5.5"], ["72"]]
    with pytest.raises(FileNotFoundError, match="nothing.jsonl: no such file"):
        atrl_envs.make("atrl/GSM8K-v0", path=str(train), test_path=str(tmp_path / "nothing.jsonl"))


def test_the_sample_adds_up() -> None:
    lines = Path(SAMPLE).read_text(encoding="utf-8").splitlines()
    assert len(lines) == 40
    for line in lines:
        record = json.loads(line)
        notes = re.findall(r"<<([^<>=]+)=([^<>]+)>>", record["answer"])
        assert notes, line
        for expression, value in notes:
            assert re.fullmatch(r"[-+*/(). 0-9]+", expression)
            exact = re.sub(r"(\d+\.?\d*)", r"Fraction('\1')", expression)
            assert eval(exact) == Fraction(value), line
        gold = record["answer"].rpartition("####")[2].replace(",", "").strip()
        last = record["answer"].rpartition("\n####")[0]
        assert re.search(rf"(?<![\d.]){re.escape(gold)}\b", last.replace(",", "")), line
