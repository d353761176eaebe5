"""Problems from a file of your own: a JSONL line {"prompt": "7*6=", "answer": "42"}, or a CSV row."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from atrl_envs.task import Problem, Task

SAMPLE = str(Path(__file__).with_name("sample.jsonl"))
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_LINES = (".jsonl", ".ndjson")


class File(Task):
    """Prompts and answers from a JSONL or CSV file.

    Example: with the line {"prompt": "Ann has 3 apples and buys 4 more. How many now? ", "answer": "7"} the
        response "7" and its end pay 1.0, anything else pays 0.

    Description: every line or row is a problem; the splits are made by a hash of the prompt. Repeated prompts count
        once; the same prompt with another answer is an error.
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. The style is `plain` unless `make(..., style=)` says
        otherwise: boxed, gsm8k_hash, answer_tag, last_number.
    Start: the prompt. End: end of sequence (terminated) or the length limit (truncated; 64 tokens unless
        `make(..., max_new_tokens=)` says otherwise).
    Arguments: path (a small sample that comes with the package), prompt_field ("prompt"), answer_field ("answer"),
        response_field (""): a field of worked-out gold responses for the warm start, if the file has one.
    Versions: v0.
    """

    path: str = SAMPLE
    prompt_field: str = "prompt"
    answer_field: str = "answer"
    response_field: str = ""

    def __post_init__(self) -> None:
        suffix = Path(self.path).suffix.lower()
        if suffix not in (*_LINES, *_SEPARATORS):
            raise ValueError(f"{self.path}: wanted a file named .jsonl, .ndjson, .csv or .tsv")
        if not Path(self.path).is_file():
            raise FileNotFoundError(f"{self.path}: no such file (looked in {Path.cwd()})")

    def problems(self) -> list[Problem]:
        """All problems in file order; ValueError with file and line for anything malformed."""
        return self._problems

    @cached_property
    def _problems(self) -> list[Problem]:
        suffix = Path(self.path).suffix.lower()
        records = (
            _csv_records(self.path, _SEPARATORS[suffix])
            if suffix in _SEPARATORS
            else _json_records(self.path)
        )
        found: dict[str, Problem] = {}
        for where, record in records:
            problem = self._problem(where, record)
            first = found.setdefault(problem.prompt, problem)
            if first.answer != problem.answer:
                raise ValueError(
                    f"{where}: the prompt of {first.source} again, but with answer {problem.answer!r} instead of "
                    f"{first.answer!r}; keep one of the two"
                )
        if not found:
            raise ValueError(f"{self.path}: no problems in it")
        return list(found.values())

    def _problem(self, where: str, record: dict[str, Any]) -> Problem:
        prompt = _text(where, record, self.prompt_field, "prompt_field")
        answer = _text(where, record, self.answer_field, "answer_field")
        response = _text(where, record, self.response_field, "response_field") if self.response_field else ""
        return Problem(prompt, answer, response, source=where)


def _text(where: str, record: dict[str, Any], name: str, option: str) -> str:
    """A field as text: a string or a number that is there and not blank."""
    if name not in record:
        raise ValueError(
            f"{where}: no field {name!r}; it has {', '.join(map(repr, record)) or 'none'} (choose with {option}=)"
        )
    value = record[name]
    if value is None:
        raise ValueError(f"{where}: the value of {name!r} is missing; fill it in, or leave the line out")
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(
            f"{where}: {name!r} must be a text or a number, got {value!r} ({type(value).__name__})"
        )
    text = str(value)
    if not text.strip():
        raise ValueError(f"{where}: {name!r} is empty")
    if half := next((character for character in text if "\ud800" <= character <= "\udfff"), None):
        raise ValueError(f"{where}: {name!r} holds {half!r}, half of a character; write the character itself")
    return text


def _read(path: str) -> str:
    """The whole text; ValueError with file and line for bytes that are no UTF-8."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = bytes(error.object[: error.start])
        line = 1 + before.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")
        byte = error.object[error.start]
        raise ValueError(f"{path}, line {line}: not UTF-8 (byte 0x{byte:02x}); save it as UTF-8") from error


def _json_records(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(io.StringIO(_read(path), newline=None), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            # A number keeps the digits that the file gives it.
            record = json.loads(line, parse_float=str)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not JSON: {error.msg} at column {error.colno}") from error
        except ValueError as error:  # Python reads no integer of so many digits
            raise ValueError(f"{where}: a number is too long; write it in fewer digits: {error}") from error
        except RecursionError as error:
            raise ValueError(f"{where}: nested too deeply; write one flat object a line") from error
        if not isinstance(record, dict):
            got = line.strip()[:60]
            raise ValueError(f'{where}: wanted an object like {{"prompt": ..., "answer": ...}}, got {got}')
        yield where, record


def _csv_records(path: str, separator: str) -> Iterator[tuple[str, dict[str, Any]]]:
    header: list[str] = []
    for where, row in _csv_rows(path, separator):
        if not header:
            header = row
        elif len(row) > len(header):
            raise ValueError(f"{where}: more columns than the header; quote fields that hold {separator!r}")
        else:
            yield where, dict(itertools.zip_longest(header, row))


def _csv_rows(path: str, separator: str) -> Iterator[tuple[str, list[str]]]:
    """The rows that are not blank, each with the line that it starts in: a quoted field may run over several."""
    reader = csv.reader(io.StringIO(_read(path), newline=""), delimiter=separator, strict=True)
    while True:
        where = f"{path}, line {reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise ValueError(f"{where}: not CSV: {error}") from error
        if row is None:
            return
        if row:
            yield where, row
