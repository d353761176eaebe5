"""`atrl envs`: what it lists, in which words, and what it leaves for when it is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from atrl_agents import cli

ROOT = Path(__file__).resolve().parents[2]


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    assert cli.main(["envs", *words]) == 0
    return [line.split("\t") for line in capsys.readouterr().out.splitlines()]


def test_id_style_and_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    listed = rows(capsys)
    assert ["atrl/Addition-v0", "plain", "Add whole numbers."] in listed
    assert ["atrl/MATH-v0", "boxed"] in [row[:2] for row in listed]
    assert all(len(row) == 3 for row in listed)


def test_a_family_is_one_row_until_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("reasoning_gym")
    (family,) = [row for row in rows(capsys) if row[0].startswith("reasoning_gym/")]
    assert family == ["reasoning_gym/...", "", "105 tasks; `atrl envs reasoning_gym` lists them"]
    listed = rows(capsys, "reasoning_gym")
    assert len(listed) == 105
    assert ["reasoning_gym/gcd-v0", "plain"] in [row[:2] for row in listed]
    assert all(row[2] for row in listed)
    assert not any("base class" in row[2] for row in listed)


def test_parameters_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(capsys, "atrl/Addition", "--parameters")
    assert row == ["atrl/Addition-v0", "plain", "Add whole numbers.", "operands=2 low=10 high=99"]


def test_case_does_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    assert [row[0] for row in rows(capsys, "ADDition")] == ["atrl/Addition-v0"]


def test_a_word_that_nothing_contains(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["envs", "atrl/Additon"]) == 2
    assert "no id contains it; did you mean atrl/Addition-v0" in capsys.readouterr().err
    assert cli.main(["envs", "qqqq"]) == 2
    assert "no id contains it; `atrl envs` lists what there is" in capsys.readouterr().err


def test_the_list_loads_neither_torch_nor_a_family() -> None:
    code = (
        "import sys; from atrl_agents.envs_command import listing; listing()\n"
        "print([m for m in ('torch', 'reasoning_gym') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_package_the_family_says_what_to_install() -> None:
    code = """
import importlib.util
from atrl_agents.cli import main
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "reasoning_gym" else real(name, *a)
print(main(["envs"]), main(["envs", "reasoning_gym"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    *_, family, codes = done.stdout.splitlines()
    said = "105 tasks that need the package reasoning-gym: pip install 'reasoning-gym>=0.1.25,<0.2'"
    assert family == f"reasoning_gym/...\t\t{said}"
    assert codes == "0 2"
    assert done.stderr == f"atrl: got reasoning_gym; it stands for {said}\n"
