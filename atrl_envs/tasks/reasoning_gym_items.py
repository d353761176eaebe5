"""Items of reasoning-gym's data sets and the marks of their scorers: plain functions, for this process and the host's.

    entry = draw("gcd", {"max_numbers": 3}, seed=7)         # {"question": ..., "answer": ..., "metadata": ...}
    score("countdown", {}, "3*(4+1)", entry)                # 0 or 1, an int of Verdict: only full marks are CORRECT

Some scorers evaluate the answer as a Python expression; they get only what `ALSO` has found to be a formula.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy

from atrl_envs.host import prepared_by
from atrl_envs.tasks.reasoning_gym_strict import ALSO, nothing
from atrl_envs.tasks.reasoning_gym_table import RESEEDED
from atrl_envs.verify.verdict import Verdict

Entry = dict[str, Any]


def _load() -> None:
    """What a process of the host does once, outside of any job's time."""
    import reasoning_gym  # noqa: F401


def draw(name: str, parameters: Mapping[str, Any], seed: int) -> Entry:
    """The item of a seed in [0, 2**32): question, answer (a text or None) and metadata."""
    with _own_randomness(seed):
        if name not in RESEEDED:
            return make_data_set(name, parameters, seed)[0]
        data_set = _kept(name, _AsWritten(parameters))
        data_set.seed = data_set.config.seed = seed
        return data_set[0]


@prepared_by(_load)
def draw_in_order(name: str, parameters: Mapping[str, Any], seed: int) -> Entry:
    """`draw`, for a process of the host pool, in which every set of strings has one order."""
    return draw(name, parameters, seed)


def make_data_set(name: str, parameters: Mapping[str, Any], seed: int = 0) -> Any:
    """A data set of one item; ValueError for parameters that it refuses."""
    from reasoning_gym.factory import DATASETS

    return DATASETS[name][0](configuration(name, parameters, seed))


def configuration(name: str, parameters: Mapping[str, Any], seed: int = 0) -> Any:
    """The configuration of a data set of one item, checked, which is quick; ValueError for what it refuses."""
    from reasoning_gym.factory import DATASETS

    try:
        made = DATASETS[name][1](**parameters, seed=seed, size=1)
        if hasattr(made, "validate"):
            made.validate()
    except AssertionError as error:
        raise ValueError(f"reasoning_gym/{name}: {error}") from error
    return made


@prepared_by(_load)
def score(name: str, parameters: Mapping[str, Any], answer: str, entry: Entry) -> int:
    """CORRECT for an answer with full marks, else WRONG; an answer that makes the scorer fail is WRONG, too."""
    data_set = _kept(name, _AsWritten(parameters))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            right = ALSO.get(name, nothing)(answer, entry) and data_set.score_answer(answer, entry) >= 1.0
    except Exception:
        right = False
    return int(Verdict.CORRECT if right else Verdict.WRONG)


def gold_of(name: str, entry: Entry) -> str | None:
    """The gold answer of an item, empty where there is none to be had; None: leave the item out.

    Where an item has many right answers, and none of its own, one of them stands in its metadata.
    """
    if name in _GOLDS:
        answer = _GOLDS[name](entry["metadata"])
        trivial = name == "propositional_logic" and score(name, {}, answer, entry) != Verdict.CORRECT
        return None if trivial else answer
    unsolved = "Integral(" in str(entry["answer"])
    return None if entry["answer"] in (None, "") or unsolved else str(entry["answer"])


_GOLDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "boxnet": lambda metadata: "",
    "graph_color": lambda metadata: json.dumps(metadata["possible_answer"]),
    "propositional_logic": lambda metadata: str(metadata["example_answer"]),
    "rubiks_cube": lambda metadata: str(metadata["example_correct_answer"]),
    "rush_hour": lambda metadata: "",
}


class _AsWritten:
    """Parameters as the key of a cache: the same where they are written alike."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters, self._text = parameters, repr(parameters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AsWritten) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@functools.lru_cache(maxsize=8)
def _kept(name: str, parameters: _AsWritten) -> Any:
    return make_data_set(name, parameters.parameters)


@contextlib.contextmanager
def _own_randomness(seed: int) -> Iterator[None]:
    """The global generators seeded for one item, and as before behind it; what is printed meanwhile is dropped."""
    python, legacy = random.getstate(), numpy.random.get_state()
    random.seed(seed)
    numpy.random.seed(seed)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # a compiler in there prints dots
            yield
    finally:
        random.setstate(python)
        numpy.random.set_state(legacy)
