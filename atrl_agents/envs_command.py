"""`atrl envs` lists what can be trained on; `atrl check ID` tests one environment's whole contract.

atrl envs --import my_package
atrl check my_package:my/Doubling-v0 --set limit=1000
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from typing import Annotated, Any

import tyro

from .arguments import parse
from .config import PARAMETERS, EnvConfig
from .config_check import check_env, import_modules, with_typed_parameters

Imports = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(name="import")]


@dataclass(frozen=True)
class ListConfig:
    """List the registered environments, their parameters and defaults."""

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
    """Print a table of ids; plain lines `id<tab>doc` when the output is no terminal."""
    config = parse(ListConfig, words, "atrl envs")
    import_modules(config.imports)
    rows = list(listing())
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(row))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "what it asks", "parameters", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    return 0


def listing() -> list[tuple[str, str, str]]:
    """(id, first line of the task's docstring, parameters with their defaults) of every registered id."""
    from atrl_envs import get_spec, list_envs

    rows = []
    for id in list_envs():
        spec = get_spec(id)
        doc = (inspect.getdoc(spec.task_class()) or "").partition("\n")[0]
        shown = (name if value is MISSING else f"{name}={value}" for name, value in spec.parameters().items())
        rows.append((id, doc, " ".join(shown)))
    return rows


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
