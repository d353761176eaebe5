"""Notation and numbers: one spelling for many, and exact values."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_envs.verify.formulas.notation import balanced, key, tidy
from atrl_envs.verify.formulas.rationals import read_number
from atrl_envs.verify.formulas.shapes import Malformed, shape
from atrl_envs.verify.formulas.units import split_unit

ALIKE = [
    (r"\dfrac12", r"\frac{1}{2}"), (r"\frac1{23}", r"\frac{1}{23}"), (r"\tfrac{a}b", r"\frac{a}{b}"),
    (r"\frac\pi2", r"\frac{\pi}{2}"), (r"\binom52", r"\binom{5}{2}"), (r"\sqrt2", r"\sqrt{2}"),
    ("x^23", "x^{23}"), ("x²", "x^{2}"), ("x^(1/2)", "x^{1/2}"), (r"\left( 1 , 2 \right]", "(1,2]"),
    (r"\left.x\right|", "x|"), (r"x \le 5", r"x\leq 5"), ("x ≥ 5", r"x\geq5"), (r"\mathrm{e}^x", "e^x"),
    (r"\operatorname{sin} x", r"\sin x"), (r"\mathbf{x}", "x"), (r"\mbox{ cm}", r"\text{ cm}"),
    (r"90^\circ", "90°"), ("1{,}000", "1,000"), (r"\$5\,\%", "5%"), ("２０", "20"), ("−5", "-5"),
    (r"\begin{pmatrix}1\\ 2\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\boxed{\boldsymbol{x+1}}", "x+1"), ("(A)", "A"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_spellings_of_one_thing(one: str, other: str) -> None:
    assert key(tidy(one)) == key(tidy(other))


@given(st.text(alphabet="\\{}()[]^_ 12x,.frac~$*/-", max_size=24))
def test_tidying_raises_nothing_and_keeps_what_is_balanced(text: str) -> None:
    tidied = tidy(text)
    if not balanced(tidied):
        with pytest.raises(Malformed):
            shape(tidied)


NUMBERS = [
    ("1,234.50", "2469/2"), ("1 000", "1000"), ("1,23", None), (".5", "1/2"), ("5.", "5"), ("-1 3/4", "-7/4"),
    (r"2\frac{1}{2}", "5/2"), (r"2\frac{3}{2}", None), (r"\frac{1.5}{-2}", "-3/4"), ("2.5e-3", "1/400"), ("2x", None),
    (r"1.2\cdot 10^{3}", "1200"), (r"0.1\overline{6}", "1/6"), ("1.5 million", "1500000"), ("--5", None), ("", None),
    (r"2\text{ thousand}", "2000"), ("-", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_numbers(text: str, value: str | None) -> None:
    assert read_number(text) == (None if value is None else Fraction(value))


UNITS = [
    (r"5\sqrt{2}\text{ cm}^{2}", r"5\sqrt{2}", "cm"), ("5 m/s^{2}", "5", "m s"), ("42 apples", "42", "apple"),
    ("28%", "28", "%"), ("90^{\\circ}", "90", "degree"), ("5 million", "5 million", ""), ("n odd", "n odd", ""),
    ("2x apples", "2x apples", ""), ("42 or", "42 or", ""), ("12 km per hour", "12", "km hour"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rest", "unit"), UNITS)
def test_units(text: str, rest: str, unit: str) -> None:
    assert split_unit(text) == (rest, unit)
