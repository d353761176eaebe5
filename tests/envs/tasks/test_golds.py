"""Golds, worked steps and difficulties against an independent calculation, over seeds and parameters."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import atrl_envs
from atrl_envs import Problem, Task
from atrl_envs.streams import generator
from tests.envs.tasks.solvers import SOLVERS, value_of

SEEDS = st.integers(0, 10**9)
FAST = settings(max_examples=200, deadline=None)


def some_of(signs: str) -> st.SearchStrategy[str]:
    """Some of the signs, at least one, in any order."""
    return st.lists(st.sampled_from(signs), min_size=1, unique=True).map("".join)


# name: (strategies of the parameters, the difficulties that the defaults give)
NUMERIC: dict[str, tuple[dict[str, st.SearchStrategy[Any]], set[int]]] = {
    "Carries": ({"digits": st.integers(1, 30), "operations": some_of("+-")}, {0, 1, 2, 3}),
    "Decimals": (
        {"places": st.integers(1, 9), "high": st.integers(0, 10**9), "operations": some_of("+-*")},
        {0, 1, 2, 3},
    ),
    "Fractions": ({"high": st.integers(2, 10**6), "operations": some_of("+-*/")}, {0, 1, 2}),
    "Brackets": (
        {
            "depth": st.integers(0, 8),
            "terms": st.integers(2, 8),
            "high": st.integers(1, 10**9),
            "operations": some_of("+-*"),
        },
        {0, 1, 2},
    ),
    "LinearEquation": (
        {"hardest": st.integers(0, 3), "high": st.integers(2, 10**6), "fractions": st.booleans()},
        {0, 1, 2, 3},
    ),
    "GcdLcm": ({"high": st.integers(1, 10**9), "lcm": st.booleans()}, {0, 1, 2, 3, 4}),
    "Modular": (
        {"hardest": st.integers(0, 3), "high": st.integers(1, 10**6), "modulus": st.integers(3, 500)},
        {0, 1, 2, 3},
    ),
    "Statistics": (
        {"most": st.integers(3, 30), "low": st.integers(-50, 3), "high": st.integers(3, 10**6)},
        {0, 1, 2, 3, 4},
    ),
    "WordProblems": ({"steps": st.integers(1, 3), "high": st.integers(4, 10**6)}, {0, 1, 2}),
}


def task_of(name: str, **parameters: Any) -> Task:
    return atrl_envs.get_spec(f"atrl/{name}-v0").build_task(**parameters)


def drawn(task: Task, seed: int) -> Problem:
    return task.problem(generator(seed, "train", 0))


@pytest.mark.parametrize("name", NUMERIC)
def test_golds_and_difficulties(name: str) -> None:
    parameters, _ = NUMERIC[name]

    @FAST
    @given(st.fixed_dictionaries({}, optional=parameters), SEEDS)
    def check(chosen: dict[str, Any], seed: int) -> None:
        task = task_of(name, **chosen)
        problem = drawn(task, seed)
        value, difficulty = SOLVERS[name](problem.prompt)
        assert Fraction(problem.answer) == value
        assert problem.difficulty == difficulty
        check_steps(problem)

    check()


def check_steps(problem: Problem) -> None:
    """Every line of the gold response holds, and the last one gives the answer."""
    if not problem.response:
        return
    *lines, last = problem.response.split("\n")
    assert last == f"#### {problem.answer}"
    for line in lines:
        parts = line.split("=")
        if "x" in line:
            x = Fraction(problem.answer)
            parts = [re.sub(r"(?<=\d)(?=x)", "*", part) for part in parts]
            assert len({value_of(part, x=x) for part in parts}) == 1, line
        elif len(parts) > 1:
            assert len({value_of(part) for part in parts}) == 1, line


@pytest.mark.parametrize("name", NUMERIC)
def test_the_defaults_give_every_difficulty(name: str) -> None:
    task = task_of(name)
    levels = [drawn(task, seed).difficulty for seed in range(400)]
    assert set(levels) >= NUMERIC[name][1]
    for level in NUMERIC[name][1]:
        assert levels.count(level) >= 8


def test_reductions_of_brackets_keep_their_value() -> None:
    for seed in range(200):
        problem = drawn(task_of("Brackets", depth=4, operations="+-*"), seed)
        *lines, _ = problem.response.split("\n")
        texts = [problem.prompt.removesuffix("="), *lines]
        assert {str(value_of(text)) for text in texts} == {problem.answer}
        assert [text.count("(") for text in texts] == list(range(problem.difficulty, -1, -1))


def test_golds_of_fractions_are_in_lowest_terms() -> None:
    answers = [drawn(task_of("Fractions"), seed).answer for seed in range(300)]
    assert all(answer == str(Fraction(answer)) for answer in answers)


def test_golds_of_decimals_have_no_spare_zeros() -> None:
    answers = [drawn(task_of("Decimals"), seed).answer for seed in range(300)]
    assert all(re.fullmatch(r"-?(0|[1-9]\d*)(\.\d*[1-9])?", answer) for answer in answers)
    assert not {"-0"} & set(answers)


def test_whole_solutions_on_request() -> None:
    answers = [drawn(task_of("LinearEquation", fractions=False), seed).answer for seed in range(200)]
    assert all("/" not in answer and abs(int(answer)) <= 12 for answer in answers)
    assert any("/" in drawn(task_of("LinearEquation"), seed).answer for seed in range(50))


def test_remainders_are_the_least() -> None:
    for seed in range(300):
        problem = drawn(task_of("Modular"), seed)
        assert 0 <= int(problem.answer) < int(problem.prompt.split(" mod ")[1].removesuffix("="))


def test_values_in_stories_are_whole_and_positive() -> None:
    for seed in range(500):
        *lines, _ = drawn(task_of("WordProblems", high=7), seed).response.split("\n")
        for line in lines:
            assert all(int(number) > 0 for number in re.findall(r"-?\d+", line.replace("-", " - "))), line
            assert re.fullmatch(r"\d+[-+*/]\d+=\d+", line)


@FAST
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "low_base": st.integers(2, 9),
            "high_base": st.integers(10, 36),
            "high": st.integers(1, 10**18),
        },
    ),
    SEEDS,
)
def test_base_conversion(chosen: dict[str, int], seed: int) -> None:
    task = task_of("BaseConversion", **chosen)
    problem = drawn(task, seed)
    parts = re.fullmatch(r"(\w+) \(base (\d+)\) to base (\d+)=", problem.prompt)
    assert parts is not None
    source, target = int(parts[2]), int(parts[3])
    assert source != target
    assert task.low_base <= min(source, target) <= max(source, target) <= task.high_base  # type: ignore[attr-defined]
    assert int(problem.answer, target) == int(parts[1], source) <= task.high  # type: ignore[attr-defined]
    assert re.fullmatch(r"0|[1-9a-z][0-9a-z]*", problem.answer)
    assert problem.difficulty == len(problem.answer) - 1


@FAST
@given(
    st.fixed_dictionaries({}, optional={"hardest": st.integers(0, 3), "high": st.integers(2, 10**6)}), SEEDS
)
def test_comparison(chosen: dict[str, int], seed: int) -> None:
    problem = drawn(task_of("Comparison", **chosen), seed)
    texts = problem.prompt.removesuffix(": ").split(" ? ")
    left, right = map(Fraction, texts)
    assert problem.answer == ("<" if left < right else ">" if left > right else "=")
    kinds = {"fraction" if "/" in text else "decimal" if "." in text else "whole" for text in texts}
    assert kinds == [{"whole"}, {"decimal"}, {"fraction"}, {"fraction", "decimal"}][problem.difficulty]
    if problem.answer == "=" and problem.difficulty:
        assert texts[0] != texts[1]


def test_no_sign_of_a_comparison_is_a_good_guess() -> None:
    """Each sign with probability 1/3, whatever the kind: 900 draws stay within five standard deviations."""
    problems = [drawn(task_of("Comparison"), seed) for seed in range(900)]
    for sign in "<=>":
        assert abs(sum(problem.answer == sign for problem in problems) - 300) < 5 * (900 * 2 / 9) ** 0.5


@FAST
@given(
    st.fixed_dictionaries(
        {},
        optional={"most": st.integers(2, 30), "low": st.integers(-(10**9), 0), "high": st.integers(0, 10**9)},
    ),
    SEEDS,
)
def test_sorting(chosen: dict[str, int], seed: int) -> None:
    problem = drawn(task_of("Sorting", **chosen), seed)
    numbers = [int(word) for word in problem.prompt.removeprefix("sort ").removesuffix(": ").split(" ")]
    assert problem.answer == " ".join(map(str, sorted(numbers)))
    assert problem.difficulty == len(numbers) - 2


@FAST
@given(
    st.fixed_dictionaries(
        {"largest": st.integers(3_000, 10**6)},  # less may be hopeless with numbers up to 500
        optional={
            "numbers": st.integers(2, 6),
            "high": st.integers(3, 500),
            "operations": st.just("+-*/") | st.just("+*") | st.just("-+"),
        },
    ),
    SEEDS,
)
def test_countdown(chosen: dict[str, Any], seed: int) -> None:
    task = task_of("Countdown", **chosen)
    problem = drawn(task, seed)
    target, listed = re.fullmatch(r"(\d+) from ([\d,]+): ", problem.prompt).groups()  # type: ignore[union-attr]
    assert problem.answer == f"{listed}={target}"
    given_numbers = [int(number) for number in listed.split(",")]
    used = [int(number) for number in re.findall(r"\d+", problem.response)]
    assert value_of(problem.response) == int(target) <= task.largest  # type: ignore[attr-defined]
    assert int(target) not in given_numbers
    assert all(used.count(number) <= given_numbers.count(number) for number in used)
    assert problem.difficulty == len(used) - 2
    assert value_of(task.corrupt(problem.answer)) != int(target)
    for bracket in re.finditer(r"\(", problem.response):  # no bracket is spare
        spare = list(problem.response)
        spare[bracket.start()] = spare[_closing(problem.response, bracket.start())] = " "
        without = "".join(spare).strip()
        assert _tree(without) != _tree(problem.response)


def _closing(text: str, opening: int) -> int:
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    raise AssertionError(text)


def _tree(text: str) -> str:
    import ast

    return ast.dump(ast.parse(text, mode="eval"))
