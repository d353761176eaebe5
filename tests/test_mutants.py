"""The mutants of mutants.py still mean something: what each of them replaces is there."""

from __future__ import annotations

from tests.mutants import MUTANTS, ROOT


def test_every_mutant_finds_its_text() -> None:
    gone = [(m.file, m.old) for m in MUTANTS if m.old not in (ROOT / m.file).read_text(encoding="utf-8")]
    assert not gone


def test_every_mutant_changes_something_and_has_tests() -> None:
    for mutant in MUTANTS:
        assert mutant.old != mutant.new and mutant.new not in mutant.old.split("\n")
        assert all((ROOT / path).is_file() for path in mutant.tests) and mutant.tests
