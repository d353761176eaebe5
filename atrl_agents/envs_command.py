"""`atrl envs` lists what can be trained on; `atrl check ID` tests one environment's whole contract.

atrl envs --import my_package
atrl envs gcd --parameters
atrl check my_package:my/Doubling-v0 --set limit=1000
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from typing import Annotated, Any

import tyro

from .arguments import parse
from .complaints import ConfigError
from .config import PARAMETERS, EnvConfig
from .config_check import check_env, import_modules, with_typed_parameters

Imports = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(name="import")]


@dataclass(frozen=True)
class ListConfig:
    """List the environments: id, style of the answers, and what is asked."""

    words: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="WORD")] = ""
    """Only ids that contain this, in any case; families, such as reasoning_gym, are then listed in full."""
    parameters: bool = False
    """Also the parameters of each task, with their defaults."""
    imports: Imports = ()
    """A module of yours to import first, since importing it registers your tasks."""


@dataclass(frozen=True)
class CheckConfig:
    """Test an environment: specs, Gymnasium's contract, seeds, splits, and that gold answers score."""

    id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")]
    """A registered id, or `module:id`."""
    kwargs: Annotated[dict[str, Any], PARAMETERS, tyro.conf.arg(name="set")] = field(default_factory=dict)
    """Parameters of the task, as in `--set high=9`."""
    imports: Imports = ()
    """A module of yours to import first, since importing it registers your tasks."""


def list_main(words: Sequence[str]) -> int:
    """Print a table of ids; lines of `id<tab>style<tab>doc` when the output is no terminal."""
    config = parse(ListConfig, words, "atrl envs")
    import_modules(config.imports)
    rows = listing(config.words)
    if config.words and not rows:
        raise ConfigError(f"got {config.words}; {_why_none(config.words)}")
    shown = [row if config.parameters else row[:3] for row in rows]
    if not sys.stdout.isatty():
        for row in shown:
            print("\t".join(row))
        return 0
    from rich.console import Console
    from rich.table import Table

    heads = ("id", "style", "what it asks", "parameters")[: 3 + config.parameters]
    table = Table(*heads, box=None, header_style="bold", padding=(0, 2, 0, 0))
    for row in shown:
        table.add_row(*row)
    Console().print(table)
    return 0


def listing(words: str = "") -> list[tuple[str, str, str, str]]:
    """(id, style, first line of the docstring, parameters) of each id that contains `words`, in any case; without
    words, a family of many ids is one row."""
    from atrl_envs import list_envs
    from atrl_envs.discovery import FAMILIES

    if words:
        return [row for id in list_envs() if words.lower() in id.lower() and (row := _row(id))]
    sizes: Counter[str] = Counter()
    rows = []
    for id in list_envs():
        family = id.partition("/")[0]
        if family in FAMILIES:
            sizes[family] += 1
        elif row := _row(id):
            rows.append(row)
    for family, module in FAMILIES.items():
        absent = importlib.import_module(module).missing()
        there = f"{sizes[family]} tasks; `atrl envs {family}` lists them"
        rows.append((f"{family}/...", "", absent or there, ""))
    return rows


def _why_none(words: str) -> str:
    from atrl_envs import list_envs
    from atrl_envs.discovery import FAMILIES

    for family, module in FAMILIES.items():
        absent = importlib.import_module(module).missing()
        if absent and words.startswith(family):
            return f"it stands for {absent}"
    close = difflib.get_close_matches(words, list_envs(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`atrl envs` lists what there is"
    return f"no id contains it; {hint}"


def _row(id: str) -> tuple[str, str, str, str] | None:
    """None, after a warning, for a task that an installed distribution promises and that does not load."""
    from atrl_envs import get_spec

    try:
        spec = get_spec(id)
        task = spec.task_class()
    except Exception as error:  # somebody else's code
        warnings.warn(f"{id} is left out, for it does not load: {error}", RuntimeWarning, stacklevel=2)
        return None
    doc = (inspect.getdoc(task) or "").partition("\n")[0]
    pairs = (name if value is MISSING else f"{name}={value}" for name, value in spec.parameters().items())
    return id, spec.style or task.style, doc, " ".join(pairs)


def check_main(words: Sequence[str]) -> int:
    """Print the report; exit code 1 when the environment breaks its contract."""
    config = parse(CheckConfig, words, "atrl check")
    env = EnvConfig(id=config.id, kwargs=config.kwargs, imports=config.imports)
    check_env(env, id_flag="", set_flag="--set")
    env = with_typed_parameters(env)
    from atrl_envs import check_task

    report = check_task(env.id, **env.kwargs)
    print(report)
    return 0 if report.passed else 1
