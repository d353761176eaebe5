"""Every data set of reasoning-gym as a task: reasoning_gym/NAME-v0, with the data set's own parameters.

    env = atrl_envs.make("reasoning_gym/chain_sum-v0", max_terms=3)
    names()                                     # of the data sets, without importing the package
    reasoning_gym.chain_sum                     # the task's class, made when it is first asked for

reasoning-gym itself draws item i of a data set with the seed `seed + i`, so that neighbouring seeds give nearly the
same items. Here each item has a seed of its own, out of the task's random generator.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import difflib
import functools
import importlib.util
import inspect
import typing
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy

from atrl_envs.registry import TaskSpec, UnknownEnvError, env_options
from atrl_envs.task import Problem, Task
from atrl_envs.tasks.reasoning_gym_table import (
    BEYOND_ASCII,
    DATA_SETS,
    FLAWS,
    HASHED,
    LIMITS,
    SLOW,
    Judge,
    judged_by,
)

if TYPE_CHECKING:
    from atrl_envs.host import HostPool
    from atrl_envs.vocab import Vocab

PACKAGE = "reasoning-gym>=0.1.25,<0.2"
_ITEMS = "atrl_envs.tasks.reasoning_gym_items"
_ATTEMPTS = 100  # at an item: a data set may give up on a seed, or have no answer for it
_PLAIN = (bool, int, float, str)


def missing() -> str:
    """What to do where the package is not installed; empty where it is."""
    if importlib.util.find_spec("reasoning_gym") is not None:
        return ""
    return f"{len(DATA_SETS)} tasks that need the package reasoning-gym: pip install '{PACKAGE}'"


def names() -> list[str]:
    """Names of the data sets, without importing the package; none where it is not installed."""
    return [] if missing() else sorted(DATA_SETS)


def spec_of(name: str) -> TaskSpec:
    """The registration of "NAME-v0"; UnknownEnvError for a name that reasoning-gym does not have, or without it."""
    id, data_set = f"reasoning_gym/{name}", name.removesuffix("-v0")
    if lacking := missing():
        raise UnknownEnvError(f"{id!r} is one of {lacking}")
    from reasoning_gym.factory import DATASETS

    if data_set not in DATASETS or data_set == name:
        close = difflib.get_close_matches(data_set, DATASETS, n=3, cutoff=0.5)
        near = ", ".join(f"reasoning_gym/{found}-v0" for found in close)
        hint = f"near: {near}" if near else "`atrl envs reasoning_gym` lists what it has"
        raise UnknownEnvError(
            f"no environment is registered as {id!r}: reasoning-gym has no such data set; {hint}"
        )
    # Without a gold answer there is none to measure the longest response by.
    longest = 512 if "no gold answer" in LIMITS.get(data_set, "") else None
    return TaskSpec(id, f"{__name__}:{data_set}", "atrl_envs", max_new_tokens=longest)


class ReasoningGym(Task):
    """A data set of reasoning-gym. Its parameters are those of the subclass made for it."""

    data_set: ClassVar[str] = ""
    theirs: ClassVar[dict[str, str]] = {}  # our name of a parameter, and the data set's
    judge: ClassVar[Judge] = Judge.OWN

    def __post_init__(self) -> None:
        from atrl_envs.tasks.reasoning_gym_items import configuration

        configuration(self.data_set, self._settings)  # complains of what the data set refuses

    def problem(self, rng: numpy.random.Generator) -> Problem:
        from atrl_envs.tasks.reasoning_gym_items import gold_of

        failure: Exception | None = None
        for _ in range(_ATTEMPTS):
            seed = int(rng.integers(2**32))
            try:
                entry = self._draw(seed)
            except (ValueError, RuntimeError) as error:  # the data set found nothing for this seed
                failure = error
                continue
            answer = gold_of(self.data_set, entry)
            if answer is not None:
                where = f"reasoning_gym/{self.data_set}, seed {seed}"
                data = entry if self.judge is Judge.OWN else None
                return Problem(f"{entry['question'].rstrip()}\n", answer, source=where, data=data)
        raise ValueError(
            f"reasoning_gym/{self.data_set} gave no item in {_ATTEMPTS} attempts: {failure}"
        ) from failure

    def verifier(self, vocab: Vocab, style: str) -> Any:
        """The tensor program that does what the data set's scorer does, or one that leaves the rest to it."""
        from atrl_envs.verify import ExactVerifier, MathVerifier
        from atrl_envs.verify.alone import Alone
        from atrl_envs.verify.scored import ScoredVerifier

        if self.judge is Judge.NUMBER:
            return Alone(MathVerifier(vocab, style=style))
        if self.judge is Judge.OWN:
            return ScoredVerifier(vocab, style, f"{_ITEMS}:score", (self.data_set, self._settings))
        return ExactVerifier(vocab, style=style, ignore_case=self.judge is Judge.ANY_CASE)

    def _draw(self, seed: int) -> dict[str, Any]:
        from atrl_envs.tasks.reasoning_gym_items import draw

        if self.data_set not in HASHED:
            return draw(self.data_set, self._settings, seed)
        host = _orderly_host()
        ticket = host.submit(f"{_ITEMS}:draw_in_order", self.data_set, self._settings, seed)
        while True:  # every job of the pool has its limits
            for outcome in host.collect(wait=60.0):
                if outcome.ticket != ticket:
                    continue  # of a draw that was interrupted
                if outcome.status != "ok":
                    raise RuntimeError(outcome.error)
                return dict(outcome.value)

    @functools.cached_property
    def _settings(self) -> dict[str, Any]:
        """The data set's parameters by its own names, in the kinds of values that it expects."""
        defaults = self.parameters()
        return {name: _in_kind(getattr(self, ours), defaults[ours]) for ours, name in self.theirs.items()}

    def __getstate__(self) -> dict[str, Any]:
        # What is cached stays behind.
        return {name: self.__dict__[name] for name in self.theirs}


@functools.lru_cache(maxsize=1)
def _orderly_host() -> HostPool:
    """One process, in which the order of sets is fixed; it ends with this one."""
    from atrl_envs.host import HostPool

    return HostPool(workers=1, cpu_seconds=600.0, wall_seconds=1200.0, memory_mb=0, retries=0)


def __getattr__(name: str) -> Any:
    """The task's class of a data set."""
    if name.startswith("_") or missing():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        raise AttributeError(f"reasoning-gym has no data set {name!r}")
    made = globals()[name] = _class_of(name, *DATASETS[name][:2])
    return made


def _class_of(name: str, kind: Any, config: Any) -> type[ReasoningGym]:
    """A task with the fields of a data set's configuration as its parameters."""
    from reasoning_gym.dataset import ProceduralDataset

    hints = typing.get_type_hints(config)
    annotations: dict[str, Any] = {}
    theirs: dict[str, str] = {}
    body: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        if field.name in ("seed", "size"):
            continue
        ours = field.name
        if ours in env_options() or hasattr(ReasoningGym, ours):
            ours += "_"  # taken
        default = field.default_factory() if callable(field.default_factory) else field.default
        annotations[ours], theirs[ours] = _type_of(hints[field.name], default), field.name
        if type(default).__hash__ is None:
            body[ours] = dataclasses.field(default_factory=functools.partial(copy.copy, default))
        elif default is not dataclasses.MISSING:
            body[ours] = default
    judge = judged_by(name, has_scorer=kind.score_answer is not ProceduralDataset.score_answer)
    body |= {"__module__": __name__, "__qualname__": name, "__annotations__": annotations}
    body |= {"data_set": name, "theirs": theirs, "judge": judge, "__doc__": _doc(name, kind, judge, theirs)}
    return type(name, (ReasoningGym,), body)


def _type_of(hint: Any, default: Any) -> Any:
    """A plain type, which is checked and read from words; anything else goes to the data set as it is."""
    if hint is int and isinstance(default, float):
        return float
    return hint if hint in _PLAIN else Any


def _in_kind(value: Any, default: Any) -> Any:
    """A value in the kind of its default: words know no tuples, dates and enumerations."""
    if isinstance(default, tuple) and isinstance(value, list):
        return tuple(value)
    if isinstance(value, str) and isinstance(default, (datetime.date, datetime.time)):
        return type(default).fromisoformat(value)
    if isinstance(value, str) and isinstance(default, Enum):
        return type(default)(value)
    return value


_HOW = {
    Judge.NUMBER: "by its value",
    Judge.TEXT: "by its text",
    Judge.ANY_CASE: "by its text, in capitals or not",
    Judge.OWN: "by the data set's own scorer on the host, unless it is the gold answer; only full marks count",
}


def _doc(name: str, kind: Any, judge: Judge, theirs: dict[str, str]) -> str:
    first = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0].strip()  # not the base class's
    notes = f" Limits: {LIMITS[name]}." if name in LIMITS else ""
    notes += f" Its own scorer gives full marks to {FLAWS[name]}." if name in FLAWS else ""
    notes += " Some prompts need a vocab with characters beyond ASCII." if name in BEYOND_ASCII else ""
    notes += f" An item takes about {SLOW[name]} ms: pass bank_size=." if name in SLOW else ""
    return f"""{first or f"The data set {name} of reasoning-gym."}

    Example: `atrl play reasoning_gym/{name}-v0` shows some.

    Description: the data set {name} of reasoning-gym, each item with a seed of its own.{notes}
    Action: a block of tokens. Observation: the prompt and the response so far.
    Reward: 1.0 at the end of a correct response, else 0. The answer is judged {_HOW[judge]}. The style is `plain`: the
        whole response is the answer.
    Start: the question and a line break. End: end of sequence (terminated) or the length limit (truncated).
    Arguments: those of the data set: {", ".join(theirs) or "none"}.
    Versions: v0.
    """
