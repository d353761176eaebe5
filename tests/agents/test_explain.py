"""A verdict in words says what was found in a response, and as what it was read."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrl_agents.explain import explain, number_in


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", "42"),
        (" 1,042.50 ", "1042.5"),
        ("-1,234", "-1234"),
        ("1/2", "0.5"),
        ("\\frac{2}{6}", "1/3"),
        ("1 3/4", "1.75"),
        ("-0.0", "0"),
        ("12%", "12%"),
        ("3e5", "300000"),
        ("1e-3", "0.001"),
        ("1e40", "0.1e41"),
        ("$18", "18"),
        ("2\\pi", ""),
        ("1, 2", ""),
        ("", ""),
    ],
)
def test_numbers(text: str, value: str) -> None:
    assert number_in(text) == value


@given(st.integers(-(10**12), 10**12), st.integers(0, 6))
def test_decimals_are_shown_with_their_value(digits: int, places: int) -> None:
    text = f"{digits}e-{places}"
    assert Fraction(number_in(text)) == Fraction(digits, 10**places)


@pytest.mark.parametrize(
    ("verdict", "response", "gold", "style", "by", "said"),
    [
        ("CORRECT", "46", "46", "plain", "value", "it equals 46"),
        ("CORRECT", "6*4", "8*3", "plain", "rules", "a right answer is 8*3"),
        (
            "WRONG",
            "so \\boxed{0.50}",
            "1/4",
            "boxed",
            "value",
            "the answer is 1/4; yours was found as '0.50' and read as the number 0.5",
        ),
        (
            "WRONG",
            "#### 7 or 8",
            "7",
            "gsm8k_hash",
            "value",
            "the answer is 7; yours was found as '7 or 8', which is not one plain number",
        ),
        (
            "WRONG",
            "b a",
            "a b",
            "plain",
            "text",
            "the answer is a b; yours was found as 'b a' and compared as a text",
        ),
        (
            "WRONG",
            "7",
            "",
            "plain",
            "rules",
            "the task has no answer of its own to show; yours was found as '7' and checked by the rules of the task",
        ),
        (
            "MISSING",
            "42",
            "42",
            "boxed",
            "value",
            "no answer was found; write it as \\boxed{ANSWER}; the answer is 42",
        ),
        (
            "MISSING",
            " ",
            "42",
            "plain",
            "value",
            "no answer was found; write the answer alone; the answer is 42",
        ),
        (
            "UNDECIDED",
            "<answer>\\sqrt{2}</answer>",
            "1.5",
            "answer_tag",
            "value",
            "an answer of this form cannot be judged; yours was found as '\\\\sqrt{2}', which is not one plain number; "
            "the answer is 1.5",
        ),
    ],
)
def test_sentences(verdict: str, response: str, gold: str, style: str, by: str, said: str) -> None:
    assert explain(verdict, response, gold, style, by=by) == said
