"""Where listed problems come from, and which are for tests: a file, a folder, or a data set that `datasets` loads.

    for where, record, split in read_source("train.jsonl", "test.jsonl"): ...     # split: "train", "test", or ""
    read_source("gsm8k/main")               # a folder with train* and test* in it: both splits
    read_source("hub:openai/gsm8k:main")    # hub:NAME[:CONFIG][@SPLIT], by `datasets`; needs a network or its cache

Where the source itself has a train and a test part, they stay what they are. Elsewhere split is "", and a hash of the
prompt decides. `problems_of` makes a list of problems of it, in which no prompt comes twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from atrl_envs.task import Problem
from atrl_envs.tasks.tables import MissingPackageError, Record, check_table, need, read_table

HUB = "hub:"
_HUB_FORM = re.compile(r"hub:(?P<name>[^:@]+)(:(?P<config>[^:@]+))?(@(?P<split>.+))?")
_BOTH = ("train", "test")

Parts = dict[str, Callable[[], Iterator[Record]]]  # how to read each part: train and test, or all under ""


def check_source(path: str, test_path: str = "") -> None:
    """Whether `read_source` would know how to read this, without reading: ValueError, FileNotFoundError."""
    for source in filter(None, (path, test_path)):
        if source.startswith(HUB):
            _hub_parts(source)
            need("datasets", source)
        else:
            check_table(source)


def read_source(path: str, test_path: str = "") -> Iterator[tuple[str, dict[str, Any], str]]:
    """(where, record, split) of every record.

    With a `test_path`, `path` (its train part, if it has parts) is for training and `test_path` (its test part, if it
    has parts) for tests.
    """
    for split, source in zip(_BOTH, (path, test_path), strict=True) if test_path else (("", path),):
        parts = _parts(source)
        for name in [split] if split in parts else list(parts):
            yield from ((where, record, split or name) for where, record in parts[name]())


def problems_of(
    path: str,
    test_path: str,
    state: Callable[[str, dict[str, Any]], Problem],
    *,
    keep_first: bool = False,
) -> list[Problem]:
    """The problems that `state` (where, record) makes of the records.

    A prompt that comes again counts once, as a test problem if it is one anywhere. With another answer it is a
    ValueError, unless `keep_first`.
    """
    found: dict[str, Problem] = {}
    for where, record, split in read_source(path, test_path):
        problem = replace(state(where, record), split=split)
        first = found.setdefault(problem.prompt, problem)
        if first.answer != problem.answer and not keep_first:
            raise ValueError(
                f"{where}: the prompt of {first.source} again, but with answer {problem.answer!r} instead of "
                f"{first.answer!r}; keep one of the two"
            )
        if split == "test" and first.split == "train":
            found[problem.prompt] = problem
    if not found:
        raise ValueError(f"{path}: no problems in it")
    return list(found.values())


def _parts(source: str) -> Parts:
    if source.startswith(HUB):
        return _hub_reading(source)
    if Path(source).is_dir():
        inside = {split: _named(Path(source), split) for split in _BOTH}
        if all(inside.values()):
            return {split: partial(_each, paths) for split, paths in inside.items()}
    return {"": partial(read_table, source)}


def _named(folder: Path, split: str) -> list[str]:
    """What in a folder is called by a split: train.jsonl, train-00000-of-00002.parquet, a folder train."""
    pattern = re.compile(rf"{split}(?![a-z])", re.IGNORECASE)
    return [str(path) for path in sorted(folder.iterdir()) if pattern.match(path.name) and _is_table(path)]


def _is_table(path: Path) -> bool:
    try:
        check_table(str(path))
    except MissingPackageError:  # it is one, and reading it will say what to install
        return True
    except ValueError:
        return False
    return True


def _each(paths: list[str]) -> Iterator[Record]:
    for path in paths:
        yield from read_table(path)


def _hub_parts(source: str) -> tuple[str, str | None, str | None]:
    """Name, configuration and split of "hub:NAME:CONFIG@SPLIT"."""
    match = _HUB_FORM.fullmatch(source)
    if match is None:
        raise ValueError(
            f"{source}: a data set is written hub:NAME[:CONFIG][@SPLIT], as in hub:openai/gsm8k:main"
        )
    return match["name"], match["config"], match["split"]


def _hub_reading(source: str) -> Parts:
    name, config, split = _hub_parts(source)
    need("datasets", source)
    import datasets

    try:
        loaded = datasets.load_dataset(name, config, split=split)
    except Exception as error:  # of many kinds: no network, no such name, no such configuration
        said = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{source}: `datasets` cannot load it: {type(error).__name__}: {said} -- it needs a network, or its own "
            "cache; without them get the data set's files another way and give their path: a .jsonl, .csv or .parquet "
            "file, or a folder of them"
        ) from error
    if not isinstance(loaded, dict):
        return {"": partial(_rows, source, loaded)}
    if set(_BOTH) <= set(loaded):
        return {split: partial(_rows, f"{source}@{split}", loaded[split]) for split in _BOTH}
    if len(loaded) > 1:
        raise ValueError(
            f"{source}: it has the splits {', '.join(loaded)}; choose one, as in {source}@{min(loaded)}"
        )
    return {"": partial(_rows, source, next(iter(loaded.values())))}


def _rows(source: str, dataset: Any) -> Iterator[Record]:
    for number, record in enumerate(dataset, start=1):
        yield f"{source}, row {number}", record
