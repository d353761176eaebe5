"""Tables of every kind give the same records, and every mistake its place; sources keep their own splits."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import atrl_envs
from atrl_envs.task import Problem
from atrl_envs.tasks.sources import check_source, problems_of, read_source
from atrl_envs.tasks.tables import MissingPackageError, check_table, read_table, text_of

RECORDS = [{"prompt": "7*6=", "answer": "42"}, {"prompt": 'say "é",\ntwice', "answer": "-3"}]


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def write_json(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(records), encoding="utf-8")


def write_separated(path: Path, records: list[dict[str, Any]]) -> None:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(records)


def write_parquet(path: Path, records: list[dict[str, Any]]) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path, row_group_size=1)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    ".jsonl": write_jsonl,
    ".ndjson": write_jsonl,
    ".json": write_json,
    ".csv": write_separated,
    ".tsv": write_separated,
    ".parquet": write_parquet,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_kind_of_file_gives_the_same_records(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"data{suffix}"
    WRITERS[suffix](path, RECORDS)
    found = list(read_table(str(path)))
    assert [record for _, record in found] == RECORDS
    assert all(where.startswith(f"{path}, ") for where, _ in found)
    assert len({where for where, _ in found}) == 2


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_file_task_reads_them(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"data{suffix}"
    WRITERS[suffix](path, [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(5)])
    bank = atrl_envs.make("atrl/File-v0", path=str(path), test_fraction=0.0).bank
    assert bank.answer_texts == ["1", "2", "3", "4", "5"]


def test_numbers_of_a_parquet_file(tmp_path: Path) -> None:
    from decimal import Decimal

    path = tmp_path / "data.parquet"
    write_parquet(
        path, [{"prompt": "a=", "answer": Decimal("0.10")}, {"prompt": "b=", "answer": Decimal("7.25")}]
    )
    assert [text_of("here", record, "answer") for _, record in read_table(str(path))] == ["0.10", "7.25"]


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / ".cache").mkdir()
    for name in ("10.json", "2.json", "deep/1.json", ".cache/0.json"):
        (tmp_path / name).write_text(json.dumps({"n": name}))
    (tmp_path / "README.md").write_text("no table")
    assert [record["n"] for _, record in read_table(str(tmp_path))] == ["2.json", "10.json", "deep/1.json"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"[1, 2]", r"a.json, item 1: wanted an object"),
        ("a.json", b'[{"n": 1},\n{"n": 2]', r"a.json: not JSON: .* at line 2, column \d+"),
        ("a.json", b'{"n": "\xff"}', "a.json, line 1: not UTF-8"),
        ("a.parquet", b"PAR1 it is not", "a.parquet: not Parquet"),
        ("a.xlsx", b"", r"wanted a file named .jsonl, .ndjson, .json, .csv, .tsv or .parquet, or a folder"),
    ],
)
def test_malformed_files_are_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_table(str(tmp_path / name)))


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the folder holds no file named"):
        check_table(str(tmp_path))


def test_a_missing_reader_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.parquet"
    write_parquet(path, RECORDS)
    real = importlib.util.find_spec
    hidden = ("pyarrow", "datasets")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in hidden else real(name, *a)
    )
    with pytest.raises(MissingPackageError, match=r"data.parquet needs pyarrow: pip install pyarrow"):
        atrl_envs.make("atrl/File-v0", path=str(path))
    with pytest.raises(ImportError, match=r"hub:openai/gsm8k:main needs datasets: pip install datasets"):
        atrl_envs.make("atrl/GSM8K-v0", path="hub:openai/gsm8k:main")


# Splits


def state(where: str, record: dict[str, Any]) -> Problem:
    return Problem(record["prompt"], record["answer"], source=where)


def numbered(*numbers: int) -> list[dict[str, Any]]:
    return [{"prompt": f"{n}=", "answer": str(n)} for n in numbers]


def splits_of(path: Path, test_path: Path | str = "") -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for problem in problems_of(str(path), str(test_path), state):
        found.setdefault(problem.split, []).append(problem.answer)
    return found


def test_a_file_of_tests_stays_one(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", numbered(*range(20)))
    write_jsonl(tmp_path / "b.jsonl", numbered(*range(18, 40)))
    found = splits_of(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert found["train"] == [str(n) for n in range(18)]  # 18 and 19 are test problems
    assert sorted(map(int, found["test"])) == list(range(18, 40))
    for split, count in (("train", 18), ("test", 22)):
        options = {"path": str(tmp_path / "a.jsonl"), "test_path": str(tmp_path / "b.jsonl")}
        assert len(atrl_envs.make("atrl/File-v0", split=split, **options).bank) == count


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train.jsonl", "test.jsonl"),
        ("train-00000-of-00001.jsonl", "test-00000-of-00001.jsonl"),
        ("train/algebra/1.jsonl", "test/algebra/1.jsonl"),
    ],
)
def test_a_folder_with_both_parts_keeps_them(train: str, test: str, tmp_path: Path) -> None:
    for name, numbers in ((train, (1, 2, 3)), (test, (3, 4)), ("validation.jsonl", (9,))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_jsonl(tmp_path / name, numbered(*numbers))
    assert splits_of(tmp_path) == {"train": ["1", "2"], "test": ["3", "4"]}
    other = tmp_path / "other.jsonl"
    write_jsonl(other, numbered(5))
    assert splits_of(tmp_path, other) == {"train": ["1", "2", "3"], "test": ["5"]}
    assert splits_of(other, tmp_path) == {"train": ["5"], "test": ["3", "4"]}


def test_a_folder_with_one_part_is_split_by_the_hash(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", numbered(1, 2))
    write_jsonl(tmp_path / "testing_more.jsonl", numbered(3))
    write_jsonl(tmp_path / "trained.jsonl", numbered(4))
    assert splits_of(tmp_path) == {"": ["3", "1", "2", "4"]}


def test_another_answer_to_the_same_prompt(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_jsonl(path, [*numbered(1), {"prompt": "1=", "answer": "one"}])
    with pytest.raises(ValueError, match="line 2: the prompt of .*line 1 again, but with answer 'one'"):
        problems_of(str(path), "", state)
    assert [p.answer for p in problems_of(str(path), "", state, keep_first=True)] == ["1"]


# `datasets`


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that `datasets` loads as it loads a name of the hub; nothing is looked for elsewhere."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    folder = tmp_path / "set"
    folder.mkdir()
    return folder


def test_a_data_set_with_both_splits(hub: Path) -> None:
    write_jsonl(hub / "train.jsonl", numbered(1, 2, 3))
    write_jsonl(hub / "test.jsonl", numbered(3, 4))
    name = f"hub:{hub}"
    found = [(record["prompt"], split) for _, record, split in read_source(name)]
    assert found == [("1=", "train"), ("2=", "train"), ("3=", "train"), ("3=", "test"), ("4=", "test")]
    assert next(read_source(name))[0] == f"{name}@train, row 1"
    assert [split for _, _, split in read_source(f"{name}@test")] == ["", ""]
    bank = atrl_envs.make("atrl/File-v0", path=name, split="test").bank
    assert bank.prompt_texts == ["3=", "4="]


def test_a_data_set_with_other_splits(hub: Path) -> None:
    write_jsonl(hub / "train.jsonl", numbered(1, 2))
    write_jsonl(hub / "validation.jsonl", numbered(5))
    with pytest.raises(
        ValueError, match="it has the splits train, validation; choose one, as in hub:.*@train"
    ):
        list(read_source(f"hub:{hub}"))
    assert [record["answer"] for _, record, _ in read_source(f"hub:{hub}@validation")] == ["5"]


def test_a_data_set_that_cannot_be_reached(hub: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot load it: .* needs a network.*give their path: a \.jsonl"):
        list(read_source("hub:nobody/nothing-of-that-name:main@train"))
    with pytest.raises(ValueError, match=r"a data set is written hub:NAME\[:CONFIG\]\[@SPLIT\]"):
        check_source("hub:")


def test_nothing_heavy_is_imported_for_a_plain_file() -> None:
    import subprocess

    code = (
        "import sys; from atrl_envs.tasks.gsm8k import GSM8K; GSM8K().problems()\n"
        "print([m for m in ('torch', 'pyarrow', 'datasets', 'pandas') if m in sys.modules])"
    )
    root = Path(atrl_envs.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
