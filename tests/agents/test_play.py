"""Playing: answers of one line or several, cut ones, and what is said about each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import atrl_envs
from atrl_agents.play import play


def played(env: Any, *lines: str) -> tuple[tuple[int, int], list[str]]:
    """The score, and what was said; `lines` are typed in turn, an empty one ends it."""
    said: list[str] = []
    typed: Iterator[str] = iter([*lines, ""])
    return play(env, lambda prompt: next(typed), said.append), said


def test_what_was_found_and_how_it_was_read() -> None:
    env = atrl_envs.make(
        "atrl/Addition-v0", style="boxed", low=1, high=1, test_fraction=0, block_size=30, max_new_tokens=30
    )
    score, said = played(env, "\\boxed{2.00}", "it is \\boxed{3}", "2", "\\boxed{1+1}")
    assert score == (1, 4)
    said = [line for line in said if line and not line.startswith("1+1=")]
    assert said[0] == "CORRECT: it equals 2"
    assert said[1] == "WRONG: the answer is 2; yours was found as '3' and read as the number 3"
    assert said[2] == "MISSING: no answer was found; write it as \\boxed{ANSWER}; the answer is 2"
    assert said[3].startswith("UNDECIDED: an answer of this form cannot be judged; yours was found as '1+1'")
    env.close()


def test_a_cut_answer_is_judged_as_it_was_cut() -> None:
    env = atrl_envs.make("atrl/Addition-v0", low=1, high=1, test_fraction=0, block_size=3, max_new_tokens=3)
    _, said = played(env, "12345")
    assert "cut: the answer is 6 tokens long with its end, and 3 are allowed" in said
    assert said[-3] == "WRONG: the answer is 2; yours was found as '123' and read as the number 123"


def test_an_answer_of_several_lines() -> None:
    pytest.importorskip("reasoning_gym")
    board = {"min_rows": 3, "max_rows": 3, "min_cols": 3, "max_cols": 3}
    sizes = {"block_size": 20, "max_new_tokens": 20}
    env = atrl_envs.make("reasoning_gym/kakurasu-v0", bank_size=1, test_fraction=0, **sizes, **board)
    rows = env.bank.answer_texts[0].split("\n")
    score, said = played(env, *(f"{row}\\" for row in rows[:-1]), rows[-1])
    assert score == (1, 1)
    assert any(line.startswith("CORRECT: a right answer is") for line in said)
    env.close()
