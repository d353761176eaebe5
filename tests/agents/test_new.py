"""A new package: what it tells installers, and what it tells its author."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

import atrl_envs
from atrl_agents.complaints import ConfigError
from atrl_agents.new import next_steps, write_package


def test_the_entry_point_is_the_id_that_the_module_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_package("quarter_turns", tmp_path)
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    (entry,) = project["project"]["entry-points"]["atrl.tasks"].items()
    assert entry == ("quarter_turns/QuarterTurns-v0", "quarter_turns")
    monkeypatch.syspath_prepend(str(folder))
    assert importlib.util.find_spec("quarter_turns") is not None
    spec = atrl_envs.get_spec("quarter_turns:quarter_turns/QuarterTurns-v0")
    assert spec.task_class().__module__ == "quarter_turns"
    del sys.modules["quarter_turns"]


def test_the_readme_has_the_next_steps(tmp_path: Path) -> None:
    readme = (write_package("quarters", tmp_path) / "README.md").read_text()
    steps = next_steps("quarters")
    assert steps[0].startswith("pip install")
    assert all(step in readme for step in steps)
    assert "@" not in readme


@pytest.mark.parametrize("name", ["Quarters", "1st", "a-b", "class", "json"])
def test_names_that_no_module_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it cannot name a module of yours"):
        write_package(name, tmp_path)
    assert not list(tmp_path.iterdir())
