"""`atrl new NAME`: a small package with a task of your own, a test of it, and a README that says how to train.

    write_package("doubling", Path("."))      # ./doubling/: README.md, pyproject.toml, doubling.py, tests/

Installed, the package is found by its entry point in the group `atrl.tasks`; see `atrl_envs.discovery`.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .complaints import ConfigError


@dataclass(frozen=True)
class NewConfig:
    """Write a small package with a task, a test and a README."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """The package's name, a Python module name such as `doubling`."""
    folder: Path = Path(".")
    """Where the package's folder is made."""


def main(words: Sequence[str]) -> int:
    """Write the package and print what to do next."""
    config = tyro.cli(NewConfig, args=list(words), prog="atrl new")
    made = write_package(config.name, config.folder)
    print(f"written: {made}\n")
    print("\n".join(["next:", f"  cd {made}", *(f"  {line}" for line in next_steps(config.name))]))
    return 0


def write_package(name: str, folder: Path) -> Path:
    """Write the package below `folder` and return its own folder. Errors: ConfigError for a bad or taken name."""
    if (
        not re.fullmatch(r"[a-z][a-z0-9_]*", name)
        or keyword.iskeyword(name)
        or name in sys.stdlib_module_names
    ):
        raise ConfigError(
            f"got name '{name}'; it cannot name a module of yours; use lower case letters, digits and _"
        )
    target = folder / name
    if not target.exists() and importlib.util.find_spec(name):
        raise ConfigError(
            f"got name '{name}'; a module of that name is installed, and yours would hide it; choose another name"
        )
    if target.exists():
        raise ConfigError(f"got name '{name}'; {target} exists already; choose another name, or --folder")
    values = {
        "NAME": name,
        "CLASS": class_name(name),
        "ID": env_id(name),
        "STEPS": "\n".join(next_steps(name)),
    }
    for file, text in _FILES.items():
        path = target / _fill(file, values)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_fill(text, values), encoding="utf-8")
    return target


def class_name(name: str) -> str:
    """`twice_a_number` as `TwiceANumber`."""
    return "".join(part.capitalize() for part in name.split("_") if part)


def env_id(name: str) -> str:
    """The id of the new package's task."""
    return f"{name}/{class_name(name)}-v0"


def next_steps(name: str) -> list[str]:
    """Commands that work in the new package's folder, the first of them first."""
    return [
        "pip install -e .",
        f"atrl check {env_id(name)}",
        f"atrl play {env_id(name)}",
        f"atrl train --env.id {env_id(name)}",
        "python -m pytest",
    ]


def _fill(text: str, values: dict[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda match: values[match[1]], text)


_TASK = '''"""@CLASS@: a task of yours. Change `problem`, keep the rest."""

from __future__ import annotations

import numpy

import atrl_envs


class @CLASS@(atrl_envs.Task):
    """Twice a number below `limit`."""

    limit: int = 100

    def problem(self, rng: numpy.random.Generator) -> atrl_envs.Problem:
        n = int(rng.integers(self.limit))
        return atrl_envs.Problem(prompt=f"2*{n}=", answer=str(2 * n))


atrl_envs.register("@ID@", @CLASS@, max_new_tokens=6)
'''

_TEST = '''"""The task keeps the whole contract of an environment, and its own promise."""

import numpy
from @NAME@ import @CLASS@

import atrl_envs


def test_the_contract() -> None:
    atrl_envs.check_task("@ID@").raise_if_failed()


def test_the_answer() -> None:
    problem = @CLASS@(limit=10).problem(numpy.random.default_rng(0))
    number = int(problem.prompt.removeprefix("2*").removesuffix("="))
    assert int(problem.answer) == 2 * number
'''

_PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "@NAME@"
version = "0.1.0"
dependencies = ["atrl"]

# What installing this package tells atrl: an id, and the module whose import registers it.
[project.entry-points."atrl.tasks"]
"@ID@" = "@NAME@"

[tool.setuptools]
py-modules = ["@NAME@"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

_README = """# @NAME@

A task for atrl: `@NAME@.py` states the problems, `tests/` checks them.

```sh
@STEPS@
```

Once it is installed, `@ID@` is an environment like any other: `atrl envs` lists it, and nobody has to import
`@NAME@`. Without installing, in this folder: `atrl check @NAME@:@ID@`.
"""

_FILES = {"@NAME@.py": _TASK, "tests/test_@NAME@.py": _TEST, "pyproject.toml": _PROJECT, "README.md": _README}
