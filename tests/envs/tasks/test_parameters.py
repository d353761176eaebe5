"""Parameters that make no sense are refused by name, and every task is sound under the ones that it comes with."""

from __future__ import annotations

from typing import Any

import pytest

import atrl_envs
from atrl_envs import check_task
from atrl_envs.streams import generator

NAMES = [
    "Carries", "Decimals", "Fractions", "Brackets", "LinearEquation", "GcdLcm", "Modular", "BaseConversion",
    "Comparison", "Sorting", "Statistics", "Countdown", "WordProblems",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_sound(name: str) -> None:
    check_task(f"atrl/{name}-v0", sample=100, bank_size=100).raise_if_failed()


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("Carries", {"digits": 0}, "Carries wants digits in 1..100, got digits=0"),
        (
            "Carries",
            {"operations": "+*"},
            r"Carries wants operations to be one or more of \+ -, .*got '\+\*'",
        ),
        ("Carries", {"operations": ""}, "Carries wants operations to be one or more"),
        ("Decimals", {"places": 10}, "Decimals wants places in 1..9, got places=10"),
        ("Decimals", {"operations": "++"}, "each at most once"),
        ("Decimals", {"operations": "+,-"}, "without anything between them"),
        ("Fractions", {"high": 1}, "Fractions wants high in 2..1000000, got high=1"),
        ("Brackets", {"depth": -1}, "Brackets wants depth in 0..20, got depth=-1"),
        ("Brackets", {"terms": 1}, "Brackets wants terms in 2..20"),
        ("LinearEquation", {"hardest": 4}, "LinearEquation wants hardest in 0..3, got hardest=4"),
        ("GcdLcm", {"high": 0}, "GcdLcm wants high in 1"),
        ("Modular", {"modulus": 2}, "Modular wants modulus in 3"),
        ("BaseConversion", {"high_base": 37}, "BaseConversion wants high_base in 3..36, got high_base=37"),
        ("BaseConversion", {"low_base": 16}, "BaseConversion wants low_base in 2..15, got low_base=16"),
        ("Comparison", {"high": 1}, "Comparison wants high in 2"),
        ("Sorting", {"most": 1}, "Sorting wants most in 2..100"),
        ("Sorting", {"low": 5, "high": 4}, "low <= high"),
        ("Statistics", {"most": 2}, "Statistics wants most in 3..100"),
        ("Countdown", {"numbers": 7}, "Countdown wants numbers in 2..6, got numbers=7"),
        ("Countdown", {"high": 501}, "Countdown wants high in 2..500"),
        ("WordProblems", {"steps": 4}, "WordProblems wants steps in 1..3, got steps=4"),
    ],
)
def test_bad_parameters_are_named(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        atrl_envs.make(f"atrl/{name}-v0", **parameters)


def test_a_hopeless_countdown_says_so() -> None:
    """Two numbers up to 2 have no difference other than 1, which is among them."""
    task = atrl_envs.get_spec("atrl/Countdown-v0").build_task(numbers=2, high=2, operations="-")
    with pytest.raises(
        ValueError, match=r"no target in 2000 expressions with numbers=2, high=2.*widen one of them"
    ):
        task.problem(generator(0, "train", 0))


@pytest.mark.parametrize("name", ["BaseConversion", "Comparison", "Sorting", "Countdown"])
def test_answers_that_are_no_numbers_refuse_a_style_of_numbers(name: str) -> None:
    with pytest.raises(ValueError, match="style 'last_number'"):
        atrl_envs.make(f"atrl/{name}-v0", style="last_number", bank_size=20)


@pytest.mark.parametrize("name", NAMES)
def test_prompts_stay_short(name: str) -> None:
    longest = {"WordProblems": 200}.get(name, 40)
    assert atrl_envs.make(f"atrl/{name}-v0", bank_size=300).max_prompt_length <= longest
