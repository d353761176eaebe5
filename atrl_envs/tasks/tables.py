"""Tables of records in files: JSONL, JSON, CSV, TSV, Parquet, or a folder of these.

    for where, record in read_table("sums.jsonl"): ...      # ("sums.jsonl, line 3", {"prompt": "7*6=", "answer": 42})
    read_table("MATH/train")                                # a folder: every such file in it, in order of their names

A record is a dict of plain values; `where` names it in errors. Numbers of a JSON file keep the digits that it gives.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

Record = tuple[str, dict[str, Any]]


class MissingPackageError(ImportError, ValueError):
    """An optional package is not installed; the message names it, and what to install."""


def need(package: str, what: str, install: str = "") -> None:
    """MissingPackageError unless the package can be imported; `what` needs it."""
    if importlib.util.find_spec(package) is None:
        raise MissingPackageError(f"{what} needs {install or package}: pip install {install or package}")


def check_table(path: str) -> None:
    """Whether `read_table` would know how to read this, without reading: ValueError, FileNotFoundError."""
    place = Path(path)
    if place.is_dir():
        if next(_files(place), None) is None:
            raise ValueError(f"{path}: the folder holds no file named {_known()}")
        return
    suffix = place.suffix.lower()
    if suffix not in _READERS:
        raise ValueError(f"{path}: wanted a file named {_known()}, or a folder of such files")
    if not place.is_file():
        raise FileNotFoundError(f"{path}: no such file (looked in {Path.cwd()})")
    if suffix == ".parquet":
        need("pyarrow", f"reading {path}")


def read_table(path: str) -> Iterator[Record]:
    """Every record of a file, or of all files of a folder, in order; ValueError, naming the place, if malformed."""
    check_table(path)
    place = Path(path)
    for file in _files(place) if place.is_dir() else [place]:
        yield from _READERS[file.suffix.lower()](str(file))


def text_of(where: str, record: dict[str, Any], name: str, option: str = "") -> str:
    """A field as text: a string or a number that is there and not blank.

    ValueError, naming the place, for anything else; `option` is the parameter that chooses the field.
    """
    if name not in record:
        choose = f" (choose with {option}=)" if option else ""
        raise ValueError(
            f"{where}: no field {name!r}; it has {', '.join(map(repr, record)) or 'none'}{choose}"
        )
    value = record[name]
    if value is None:
        raise ValueError(f"{where}: the value of {name!r} is missing; fill it in, or leave the line out")
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        raise ValueError(
            f"{where}: {name!r} must be a text or a number, got {value!r} ({type(value).__name__})"
        )
    text = str(value)
    if not text.strip():
        raise ValueError(f"{where}: {name!r} is empty")
    if half := next((character for character in text if "\ud800" <= character <= "\udfff"), None):
        raise ValueError(f"{where}: {name!r} holds {half!r}, half of a character; write the character itself")
    return text


def _known() -> str:
    *names, last = _READERS
    return f"{', '.join(names)} or {last}"


def _files(folder: Path) -> Iterator[Path]:
    """Files of known kinds below a folder, hidden ones left out; 2.json comes before 10.json."""
    inside = (path for path in folder.rglob("*") if path.suffix.lower() in _READERS and path.is_file())
    shown = (path for path in inside if not any(p.startswith(".") for p in path.relative_to(folder).parts))
    return iter(sorted(shown, key=_natural))


def _natural(path: Path) -> list[tuple[str | int, ...]]:
    pieces = (re.split(r"(\d+)", part) for part in path.parts)
    return [tuple(int(p) if i % 2 else p for i, p in enumerate(piece)) for piece in pieces]


def _read_text(path: str) -> str:
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


def _from_json(where: str, text: str) -> Any:
    try:
        return json.loads(text, parse_float=str)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ValueError(f"{where}: not JSON: {error.msg} at {line}column {error.colno}") from error
    except ValueError as error:  # Python reads no integer of so many digits
        raise ValueError(f"{where}: a number is too long; write it in fewer digits: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{where}: nested too deeply; write flat objects") from error


def _object(where: str, record: Any, text: str) -> Record:
    if not isinstance(record, dict):
        raise ValueError(f'{where}: wanted an object like {{"prompt": ..., "answer": ...}}, got {text[:60]}')
    return where, record


def _json_lines(path: str) -> Iterator[Record]:
    for number, line in enumerate(io.StringIO(_read_text(path), newline=None), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield _object(where, _from_json(where, line.rstrip()), line.strip())


def _json_whole(path: str) -> Iterator[Record]:
    """One object, or a list of objects."""
    found = _from_json(path, _read_text(path))
    if not isinstance(found, list):
        yield _object(path, found, str(found))
        return
    for number, record in enumerate(found, start=1):
        yield _object(f"{path}, item {number}", record, str(record))


def _csv_records(path: str) -> Iterator[Record]:
    separator = "\t" if path.lower().endswith(".tsv") else ","
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
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), delimiter=separator, strict=True)
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


def _parquet_rows(path: str) -> Iterator[Record]:
    need("pyarrow", f"reading {path}")
    import pyarrow
    import pyarrow.parquet

    try:
        number = 0
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", record
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path}: not Parquet: {error}") from error


_READERS: dict[str, Callable[[str], Iterator[Record]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_whole,
    ".csv": _csv_records,
    ".tsv": _csv_records,
    ".parquet": _parquet_rows,
}
