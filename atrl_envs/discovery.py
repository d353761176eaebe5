"""Ids that nothing has registered yet: tasks that installed distributions bring, and families of tasks.

    find("doubling/Doubling-v0")       # registers it, where a distribution or a family has it
    known()                            # such ids, without loading what is behind them

A distribution brings a task by an entry point in the group `atrl.tasks`, best named by the id:

    [project.entry-points."atrl.tasks"]
    "doubling/Doubling-v0" = "doubling"             # importing the module registers the id
    "doubling/Halving-v0" = "doubling:Halving"      # or the task's class itself

Under another name an entry point is a module that registers what it likes; it is loaded when an unknown id is looked up
and when ids are listed, and Gymnasium learns of its ids only then. What cannot be loaded is a warning that names its
distribution, and disturbs nobody else.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import warnings
from importlib.metadata import EntryPoint

from atrl_envs import registry

GROUP = "atrl.tasks"
# The first part of an id, and the module that knows the rest of the family. It has `names() -> list[str]`, quick;
# `missing() -> str`, what to install where that list is empty; and `spec_of(name) -> TaskSpec`, UnknownEnvError for a
# name that it does not have.
FAMILIES = {"reasoning_gym": "atrl_envs.tasks.reasoning_gym"}
_ID = re.compile(r"([\w-]+/)?[\w.-]+-v\d+")

_loaded: set[tuple[str, str]] = set()
_failed: dict[str, str] = {}  # id: why its entry point did not load


def find(id: str) -> None:
    """Register `id` if an installed distribution or a family has it; UnknownEnvError from a family that has not."""
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.name == id or not _ID.fullmatch(entry.name):
            _load(entry)
    family, _, name = id.partition("/")
    if family in FAMILIES and not registry.is_registered(id):
        registry.add(importlib.import_module(FAMILIES[family]).spec_of(name))


def known() -> list[str]:
    """Ids that `find` would register. Entry points that are not named by an id are loaded for this."""
    for entry in importlib.metadata.entry_points(group=GROUP):
        if not _ID.fullmatch(entry.name):
            _load(entry)
    return _by_name()


def announce() -> None:
    """Tell Gymnasium the ids that are known by name, so that `gymnasium.make` finds them like registered ones."""
    for id in _by_name():
        if not registry.is_registered(id):
            registry.tell_gymnasium(id, "atrl_envs")


def failure(id: str) -> str:
    """Why the entry point of an id did not load; empty where there is none, or it did."""
    return _failed.get(id, "")


def _by_name() -> list[str]:
    entries = importlib.metadata.entry_points(group=GROUP)
    ids = [entry.name for entry in entries if _ID.fullmatch(entry.name) and entry.name not in _failed]
    for family, module in FAMILIES.items():
        ids += [f"{family}/{name}-v0" for name in importlib.import_module(module).names()]
    return ids


def _load(entry: EntryPoint) -> None:
    """Load an entry point once; a failure is a warning."""
    if (entry.name, entry.value) in _loaded:
        return
    _loaded.add((entry.name, entry.value))
    is_id = _ID.fullmatch(entry.name) is not None
    try:
        found = entry.load()
        if is_id and entry.attr:
            registry.register(entry.name, found)
        elif is_id and not registry.is_registered(entry.name):
            raise LookupError(f"importing {entry.module} registers no such id")
    except Exception as error:  # whatever somebody else's code may raise
        distribution = entry.dist.name if entry.dist is not None else "?"
        said = (
            f"the distribution {distribution!r} says that it brings the task {entry.name!r}, but its entry point "
            f"{entry.value!r} does not load: {type(error).__name__}: {error}; update or uninstall it"
        )
        if is_id:
            _failed[entry.name] = said
        warnings.warn(said, RuntimeWarning, stacklevel=3)
