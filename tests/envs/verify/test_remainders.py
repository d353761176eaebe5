"""Fractions are compared exactly, whatever their size, by remainders."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_envs.verify import Verdict, verify_texts
from atrl_envs.verify.remainders import FIGURES, MOST_FIGURES, MOST_SIDE, moduli, powers

C, W, U = Verdict.CORRECT, Verdict.WRONG, Verdict.UNDECIDED
sides = st.one_of(
    st.integers(1, 50), st.integers(1, 10**20), st.integers(10**60, 10**70), st.integers(10**200, 10**240)
)


def boxes(pairs: list[tuple[int, int]]) -> list[str]:
    return [f"\\boxed{{\\frac{{{top}}}{{{bottom}}}}}" for top, bottom in pairs]


def test_moduli() -> None:
    found = moduli()
    assert all(math.gcd(a, b) == 1 for i, a in enumerate(found) for b in found[:i])
    assert max(found) < 2**31
    # Larger than what is compared: a numerator or a mixed number times a side of the gold.
    assert math.prod(found) > 10 ** (MOST_FIGURES + 1 + MOST_SIDE)
    assert math.prod(found[:7]) > 10 ** (2 * FIGURES + 1 + FIGURES)
    # Sums of products of digits and powers are whole numbers that float64 holds.
    assert max(map(max, powers())) * 9 * MOST_FIGURES < 2**53


@settings(max_examples=100, deadline=None)
@given(top=sides, bottom=sides, factor=st.integers(1, 10**30), off=st.integers(1, 10**9))
def test_equal_and_almost_equal(top: int, bottom: int, factor: int, off: int) -> None:
    gold = str(Fraction(top, bottom))
    answers = boxes(
        [(top, bottom), (top * factor, bottom * factor), (top + off, bottom), (top, bottom + off)]
    )
    modulus = moduli()[0]
    answers += boxes([(top + modulus * bottom, bottom), (top * 10, bottom), (bottom, top)])
    right = [True, True, False, False, False, False, top == bottom]
    fits = [
        max(len(str(side)) for side in (top * f, bottom * f)) <= MOST_FIGURES for f in (1, factor, *[10] * 5)
    ]
    wanted = [(C if equal else W) if fit else U for equal, fit in zip(right, fits, strict=True)]
    assert verify_texts(answers, [gold] * len(answers)) == wanted


@settings(max_examples=50, deadline=None)
@given(whole=st.integers(1, 10**40), top=st.integers(1, 98), bottom=st.integers(2, 10**17))
def test_mixed_numbers(whole: int, top: int, bottom: int) -> None:
    if top >= bottom:
        return
    value = whole + Fraction(top, bottom)
    texts = [f"\\boxed{{{whole} {top}/{bottom}}}", f"\\boxed{{{whole}\\frac{{{top}}}{{{bottom}}}}}"]
    assert verify_texts(texts, [str(value)] * 2) == [C, C]
    assert verify_texts(texts, [str(value + 1)] * 2) == [W, W]
    assert verify_texts(texts, [f"-{value}"] * 2) == [W, W]


def test_edges() -> None:
    nines, zeros = "9" * 30, "0" * 30
    cases = [
        (f"1/{zeros}", "1", W), (f"{zeros}/{nines}", "0", C), (f"-{zeros}/{nines}", "0", C),
        (f"{zeros}/{zeros}", "0", W), (f"{nines}/{nines}", "1", C), (f"{nines}0/{nines}", "10", C),
        (f"{nines}1/{nines}", "10", W), (f"-{nines}/{nines}", "-1", C), (f"{nines}/-{nines}", "-1", C),
        (f"-{nines}/{nines}", "1", W), (f"0{nines}/{nines}{nines}", f"1/{10**30 + 1}", C),
        (f"1/{'3' * 40}", f"1/{'3' * 40}", C), (f"1{zeros}/3", f"1{zeros}/3", C), ("1/3", f"1{zeros}/3", W),
        (f"1/1{zeros}", "1e-30", C), ("1/4", "25e-2", C), (f"1/1{'0' * 300}", "1e-300", U),
        (f"{'1' * 330}/1", "1", U), (f"1/{'7' * 256}", f"1/{'7' * 257}", U),
    ]  # fmt: skip
    texts = [f"\\boxed{{{answer}}}" for answer, _, _ in cases]
    found = verify_texts(texts, [gold for _, gold, _ in cases])
    assert found == [verdict for _, _, verdict in cases]
