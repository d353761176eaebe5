"""The fuzz job itself: its reader reads, its cases vary, and it finds a mistake that is put in its way."""

from __future__ import annotations

from fractions import Fraction

import pytest

from atrl_envs.verify import Verdict
from tests.fuzz.mutations import Writer
from tests.fuzz.run import Job, confirmed, main, shortened
from tests.fuzz.strict_reader import last_reading, reading

READ = {
    "42": 42, " -1,234.50\n": Fraction(-2469, 2), "x = 1{,}234\\text{ cm}^2": 1234, "\\frac{-1}{ 2}": Fraction(-1, 2),
    "1\\frac12": Fraction(3, 2), "-1 3/4": Fraction(-7, 4), "1 234 567": 1234567,
    "$2 \\times 10^{-3}$": Fraction(2, 1000),
    "5e3": 5000, "６": 6, "**7** apples.": 7, "6*7 = 42": 42, "\\theta = 42^\\circ": 42, "12/-4": -3,
    ".5": Fraction(1, 2),
    "28\\%": 28, "9.8 m/s^2": Fraction(98, 10), "1e999999999": (False, "1", 999999999), "\\left( 3 \\right)": 3,
}  # fmt: skip
UNREAD = [
    "", "x", "42 million", "1,23", "1,2,3", "4 2", "1 or 2", "2x = 42", "42!", "2^10", "1/0", "(1)(2)", "1{234}",
    "3\\pi", "5-3", "1 5/3", "not x = 4", "1..2", "--5", "\\frac{1}{2", "1 234/5", "42 dozen", "0,123",
]  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_what_it_reads(text: str) -> None:
    found = reading(text)
    assert found is not None
    assert found.value == READ[text]


@pytest.mark.parametrize("text", UNREAD)
def test_what_it_does_not_read(text: str) -> None:
    assert reading(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("not 10 but 1,000.", 1000), ("is -2.5%", Fraction(-5, 2)), ("5 is B2B", 5), ("2,000 a", 2000),
     ("42 or 43", None), ("3 million", None), ("\\frac{1}{2}", Fraction(1, 2)), ("1/2", Fraction(1, 2)),
     ("none", None), ("2 \\pi", None), ("20 ^ 2", None), ("101_{2}", None), ("x^-1", None), ("-$5 off", -5)],
)  # fmt: skip
def test_running_text(text: str, value: Fraction | None) -> None:
    found = last_reading(text)
    assert (found and found.value) == value


def test_cases_are_many_and_repeatable() -> None:
    cases = [Writer(3).case() for _ in range(2)]
    assert cases[0] == cases[1]
    writer = Writer(3)
    assert len({writer.case().raw for _ in range(500)}) > 400


def test_a_planted_mistake_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(seed=0)
    judge = job.plain["boxed"]
    monkeypatch.setattr(job.plain["boxed"].__class__, "__call__", lambda *_: [Verdict.CORRECT] * len(_[1]))
    job.batch("boxed", 20)
    assert judge is job.plain["boxed"]
    assert "paid: style boxed" in capsys.readouterr().out
    assert job.books.findings


def test_shortening() -> None:
    assert shortened(b"aaaXbbbYccc", lambda texts: [b"X" in t and b"Y" in t for t in texts]) == b"XY"
    assert confirmed(b"\\boxed{4}", "4", "boxed")
    assert not confirmed(b"\\boxed{4}", "5", "boxed")
    assert not confirmed(b"<think>\\boxed{4}", "4", "boxed")


def test_a_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--texts", "50"]) == 0
    assert "0 kinds of findings" in capsys.readouterr().out
