"""The file task: a user's own JSONL or CSV, and mistakes with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import atrl_envs
from atrl_envs import Verdict
from tests.envs.toy import play


def jsonl(folder: Path, *records: Any) -> str:
    path = folder / "data.jsonl"
    path.write_text(
        "\n".join(r if isinstance(r, str) else json.dumps(r) for r in records) + "\n", encoding="utf-8"
    )
    return str(path)


def make(path: str, **options: Any) -> Any:
    return atrl_envs.make("atrl/File-v0", **{"path": path, "test_fraction": 0.0, **options})


def test_jsonl_with_named_fields(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"q": "7*6=", "a": 42}, "", {"q": "1/4=", "a": 0.250}, {"q": "7*6=", "a": "42"})
    bank = make(path, prompt_field="q", answer_field="a").bank
    assert bank.prompt_texts == ["7*6=", "1/4="]
    assert bank.answer_texts == ["42", "0.25"]


def test_numbers_keep_the_digits_of_the_file(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path,
        '{"prompt": "x=", "answer": 0.10000000000000000001}',
        '{"prompt": "y=", "answer": 12345678901234567890}',
    )
    assert make(path).bank.answer_texts == ["0.10000000000000000001", "12345678901234567890"]


def test_csv_with_quotes_and_tsv(tmp_path: Path) -> None:
    table = tmp_path / "data.csv"
    table.write_text('prompt,answer,note\n"How many, all\ntold? 3+4=",7,x\n2+2=,4,\n', encoding="utf-8-sig")
    assert make(str(table)).bank.prompt_texts == ["How many, all\ntold? 3+4=", "2+2="]
    tabs = tmp_path / "data.tsv"
    tabs.write_text("prompt\tanswer\n1,000+1=\t1001\n")
    assert make(str(tabs)).bank.prompt_texts == ["1,000+1="]


@pytest.mark.parametrize("style", ["plain", "boxed", "gsm8k_hash", "answer_tag", "last_number"])
def test_gold_answers_pay_in_every_style(tmp_path: Path, style: str) -> None:
    path = jsonl(tmp_path, *({"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(8)))
    episodes = play(make(path, style=style, num_envs=4), 8)
    assert {e.verdict for e in episodes.values()} == {Verdict.CORRECT}


def test_worked_out_responses_come_from_a_field(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"prompt": "2+2=", "answer": "4", "work": "2+2 is 4\n#### 4"})
    assert make(path, response_field="work", style="gsm8k_hash").bank.response_texts == ["2+2 is 4\n#### 4"]


def test_splits_of_the_sample_are_disjoint() -> None:
    banks = [atrl_envs.make("atrl/File-v0", split=split).bank for split in ("train", "test")]
    assert not set(banks[0].prompt_texts) & set(banks[1].prompt_texts)
    assert sum(map(len, banks)) == 60


GOOD = {"prompt": "1+1=", "answer": "2"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"prompt": "2+2="},
            r"data.jsonl, line 2: no field 'answer'; it has 'prompt' \(choose with answer_field=\)",
        ),
        ({"answer": "4"}, "data.jsonl, line 2: no field 'prompt'"),
        ({"prompt": "2+2=", "answer": None}, "line 2: the value of 'answer' is missing"),
        ('{"prompt": "2+2=", "answer": ' + "1" * 5000 + "}", "data.jsonl, line 2: a number is too long"),
        ("[" * 100_000 + "]" * 100_000, "data.jsonl, line 2: nested too deeply"),
        ('{"prompt": "\\ud800", "answer": "4"}', "data.jsonl, line 2: 'prompt' holds .* half of a character"),
        ({"prompt": "2+2=", "answer": " "}, "line 2: 'answer' is empty"),
        ({"prompt": "2+2=", "answer": ["4"]}, r"line 2: 'answer' must be a text or a number, got \['4'\]"),
        ({"prompt": "2+2=", "answer": True}, "line 2: 'answer' must be a text or a number, got True"),
        ({"prompt": "1+1=", "answer": "3"}, "line 2: the prompt of .*line 1 again, but with answer '3'"),
        ('{"prompt": "2+2=", "answer"', "line 2: not JSON: .* at column"),
        ("[1, 2]", "line 2: wanted an object"),
        ({"prompt": "2+2=", "answer": "4½"}, r"problem 1 \(.*data.jsonl, line 2\) .*'½'.* at position 1"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, record: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(jsonl(tmp_path, GOOD, record))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompt,answr\n1+1=,2\n", "data.csv, line 2: no field 'answer'; it has 'prompt', 'answr'"),
        ("prompt,answer\n1+1=,2\n2+2=\n", "data.csv, line 3: the value of 'answer' is missing"),
        ("\nprompt,answer\n\n1+1=,2\n\n\n2+2=\n", "data.csv, line 7: the value of 'answer' is missing"),
        ('prompt,answer\n"1\n+1=",2\n\n"2\n+2="\n', "data.csv, line 5: the value of 'answer' is missing"),
        ('prompt,answer\n1+1=,2\n\n"2+2="x,4\n', "data.csv, line 4: not CSV"),
        ("prompt,answer\n1+1=,2\n\n1+1=,3\n", "data.csv, line 4: the prompt of .*line 2 again"),
        ("prompt,answer\n1+1=,2,3\n", "data.csv, line 2: more columns than the header"),
        ('prompt,answer\n"1+1=,2\n', "data.csv, line 2: not CSV"),
        ("prompt,answer\n", "data.csv: no problems in it"),
    ],
)
def test_malformed_tables_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        make(str(path))


def test_wrong_paths_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.jsonl: no such file"):
        make(str(tmp_path / "nothing.jsonl"))
    with pytest.raises(ValueError, match=r"wanted a file named \.jsonl"):
        make(str(tmp_path / "data.xlsx"))


@pytest.mark.parametrize(("name", "line"), [("a.jsonl", 2), ("a.csv", 3), ("a.tsv", 3)])
def test_bytes_that_are_no_utf8_are_named(tmp_path: Path, name: str, line: int) -> None:
    path = tmp_path / name
    separator = "\t" if name.endswith("tsv") else ","
    rows = [f"prompt{separator}answer", f"1+1={separator}2", f"Zoë: 2+2={separator}4"]
    if name == "a.jsonl":
        rows = ['{"prompt": "1+1=", "answer": "2"}', '{"prompt": "Zoë: 2+2=", "answer": "4"}']
    path.write_bytes("\r\n".join(rows).encode("latin-1"))
    with pytest.raises(ValueError, match=rf"{name}, line {line}: not UTF-8 \(byte 0xeb\); save it as UTF-8"):
        make(str(path))
    path.write_bytes("\r\n".join(rows).encode("utf-16"))
    with pytest.raises(ValueError, match=rf"{name}, line 1: not UTF-8 .*save it as UTF-8"):
        make(str(path))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_any_editor_ends_them(tmp_path: Path, end: str) -> None:
    lines, table = tmp_path / "a.jsonl", tmp_path / "a.csv"
    lines.write_bytes(
        end.join(['{"prompt": "1=", "answer": "1"}', '{"prompt": "2=", "answer": "2"}']).encode()
    )
    table.write_bytes(end.join(["prompt,answer", "1=,1", "2=,2"]).encode())
    for path in (lines, table):
        assert make(str(path)).bank.prompt_texts == ["1=", "2="]
