"""Labelled expressions and the machines made of them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from atrl_envs.verify.automaton import (
    END,
    SKIP,
    Machine,
    alt,
    compile_rules,
    one,
    opt,
    plus,
    seq,
    star,
    text,
    texts,
    words,
)
from atrl_envs.verify.compaction import squeeze, squeeze_before
from atrl_envs.verify.grammar import answer_machine
from atrl_envs.verify.labels import NONE, PART
from atrl_envs.verify.masks import along
from atrl_envs.verify.scanner import scanner_machine
from atrl_envs.verify.walk import machine_tables, read

A, B = 1, 2


def test_labels_and_codes() -> None:
    number = seq(opt(text("-", label=B)), plus(one("0123456789", label=A)))
    machine = compile_rules({5: number, 7: star(one("ab"))})
    assert machine.read(b"-12") == ([B, A, A], 5)
    assert machine.read(b"abba") == ([0, 0, 0, 0], 7)
    assert machine.read(b"-")[1] == machine.read(b"1a")[1] == 0
    assert machine.read(b"")[1] == 7


def test_the_smaller_code_wins() -> None:
    machine = compile_rules({3: star(one("0123456789")), 2: text("42")})
    assert machine.read(b"42")[1] == 2
    assert machine.read(b"43")[1] == 3


def test_two_readings_of_a_byte_are_an_error() -> None:
    with pytest.raises(ValueError, match="ambiguous rules: byte 'X' read as"):
        compile_rules({1: alt(seq(text("x", label=A), text("y")), seq(text("x", label=B), text("z")))})


def test_words() -> None:
    machine = compile_rules({1: words(["over", "million"], ["cm", "m"], label=A)})
    for word in ("cm", "m", "CM", "apples", "overs", "ove", "millions"):
        assert machine.read(word.encode())[1] == 1, word
    for word in ("x", "ab", "over", "Million", "mi", ""):
        assert machine.read(word.encode())[1] == 0, word
    only = compile_rules({1: words((), ["cm", "km"], least=0)})
    assert [only.read(word)[1] for word in (b"cm", b"km", b"cmk", b"apples")] == [1, 1, 0, 0]


def test_fill_bytes_change_nothing() -> None:
    machine = compile_rules({1: texts("12", "3")})
    assert machine.read(bytes([SKIP, ord("1"), SKIP, ord("2"), END, END]))[1] == 1


def test_walk_on_tensors_equals_walk_on_the_host() -> None:
    machine, tables = answer_machine(), machine_tables(answer_machine)
    rng = random.Random(0)
    bits = ["1", "23", ",456", ".5", "\\frac{1}{2}", " cm", "$", "x = ", "-", "e5", "\\text{ m}", "４", " "]
    raw = ["".join(rng.choices(bits, k=rng.randint(1, 5))).encode() for _ in range(300)]
    width = max(map(len, raw))
    letters = torch.tensor([list(row.ljust(width, bytes([END]))) for row in raw], dtype=torch.uint8)
    found, code = read(letters.t(), tables)
    for i, row in enumerate(raw):
        labels, accepted = machine.read(row)
        assert found[: len(row), i].tolist() == labels
        assert int(code[i]) == accepted


@pytest.mark.parametrize("machine_of", [answer_machine, scanner_machine])
def test_runs_may_be_shortened(machine_of: Callable[[], Machine]) -> None:
    """The fifth digit of a run and the third blank leave the machine where it was, and are read like the last one."""
    machine = machine_of()
    cells = {char: machine.classes[ord(char)] for char in "0123456789 "}
    for state in range(len(machine.accept)):
        for first in "05":
            here = state * machine.width
            for digit in (first, "0", "5", "5"):
                label, here = machine.emit[here + cells[digit]], machine.step[here + cells[digit]]
            for digit in "0123456789":
                index = here + cells[digit]
                assert machine.step[index] == here
                assert machine.emit[index] == label
        here = machine.step[machine.step[state * machine.width + cells[" "]] + cells[" "]]
        assert machine.step[here + cells[" "]] == here
        assert machine.emit[here + cells[" "]] in (NONE, PART)


def test_shortened_and_restored() -> None:
    text_ = b"x = 12" + b"3" * 200 + b"     ." + b" " * 30 + b"5"
    letters = torch.tensor([list(text_.ljust(300, bytes([END])))], dtype=torch.uint8).t()
    short, home, crowded = squeeze(letters, 96)
    assert home is not None
    assert bytes(short[:, 0].tolist()).rstrip(bytes([END])) == b"x = 1233  .  5"
    assert not crowded
    restored = along(short, home)[: len(text_), 0].tolist()
    assert bytes(restored) == text_
    _, _, crowded = squeeze(torch.full((97, 1), ord("a"), dtype=torch.uint8), 96)
    assert bool(crowded)


def test_shortened_before_a_byte() -> None:
    raw = b"so 123456789 and 987654321"
    letters = torch.tensor(
        [list(raw + b"!?" + bytes([END] * 5)), list(b"7." + bytes([END] * 31))], dtype=torch.uint8
    ).t()
    last = torch.tensor([len(raw) - 1, 0])
    short, home = squeeze_before(letters, last, before=9, behind=3)
    assert bytes(short[:, 0].tolist()) == b" and 9876!?" + bytes([END])
    assert bytes(short[:, 1].tolist()).strip(bytes([END])) == b"7."
    assert home[: len(raw), 0].lt(0).sum() == raw.index(b" and")
    kept = home[raw.index(b"9876") : len(raw), 0]
    assert kept.tolist() == [5, 6, 7, 8, 8, 8, 8, 8, 8]
