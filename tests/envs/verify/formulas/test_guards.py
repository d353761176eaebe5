"""What is refused by its text, what by what it would become, and what is not refused."""

from __future__ import annotations

import pytest

from atrl_envs.verify.formulas.formula import Unreadable, evaluated
from atrl_envs.verify.formulas.guards import Refused, argument, depth, refuse_large
from atrl_envs.verify.formulas.rationals import read_number

LARGE = [
    "9^9^9", "9^{9^9}", "x^{x^{x^{x}}}", "10^{5000}", "2^{5!}", "99999!", "5!!", r"\binom{5000}{3}", r"\binom{9^9}{3}",
    "1e99999", r"\int\int x", "(" * 20 + ")" * 20, "1" * 200, "x" * 700, "n!" * 9, r"e^{2^{2^{2}}}",
]  # fmt: skip
HEAVY = ["((2^{1000})^{1000})^{1000}", "(10^{1999})^{1999}", "((100!)!)!", "e^{e^{100}}"]
LIGHT = [
    "2^{10}", "e^{x^{2}}", "2^{2^{3}}", "10^{1000}", r"10^{\frac{\sqrt{13}+5}{6}}", "2006!", r"\binom{1000}{3}",
    r"\frac{n!}{k!(n-k)!}", r"\sum_{k=1}^{n} k^{2}", r"\int_{0}^{1} x dx", "(((x+1)^{2}+1)^{2}+1)^{2}", "5!+4!",
]  # fmt: skip
STRANGE = ["", "=", r"\foo{1}", "x'", "1 2", "1011_2", r"\frac{1}{0}", "__import__('os')", "(x", "1--2"]


@pytest.mark.parametrize("text", LARGE)
def test_large_texts_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        refuse_large(text)


@pytest.mark.parametrize("text", HEAVY)
def test_heavy_values_are_refused_before_they_are_computed(text: str) -> None:
    with pytest.raises(Refused):
        evaluated(text)


@pytest.mark.parametrize("text", LIGHT)
def test_others_are_not(text: str) -> None:
    refuse_large(text)
    assert evaluated(text) is not None


@pytest.mark.parametrize("text", STRANGE)
def test_what_the_parser_must_not_see_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        evaluated(text)


def test_arguments_and_depth() -> None:
    assert (
        argument(r"\frac{a{b}}c", 5) == "{a{b}}"
        and argument("^ -12x", 1) == "-12"
        and argument(r"\pi x", 0) == r"\pi"
    )
    assert argument("{a", 0) == "{a" and argument("", 0) == ""
    assert depth("([{}])") == 3 and depth("}}}((") == 2


def test_numbers_of_too_many_digits() -> None:
    for text in ("1" * 5000, "1e5000", r"2 \times 10^{9999}"):
        with pytest.raises(Refused):
            read_number(text)
