"""Work shared out evenly: every index once, near the best split of small cases, never above the budget."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_agents.balance import karmarkar_karp, within_budget

sizes = st.lists(st.integers(1, 60), max_size=9)


@settings(max_examples=150, deadline=None)
@given(sizes, st.integers(1, 4))
def test_every_index_is_in_one_part(values: list[int], parts: int) -> None:
    found = karmarkar_karp(values, parts)
    assert len(found) == parts
    assert sorted(index for part in found for index in part) == list(range(len(values)))
    sums = [sum(values[i] for i in part) for part in found]
    assert sums == sorted(sums, reverse=True)
    assert found == karmarkar_karp(values, parts)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=2, max_size=8), st.integers(2, 3))
def test_the_largest_part_is_within_a_third_of_the_best(values: list[int], parts: int) -> None:
    """Largest differencing is at most 4/3 - 1/(3k) of the optimum (Michiels et al. 2003)."""
    best = min(
        max(sum(v for v, p in zip(values, places, strict=True) if p == part) for part in range(parts))
        for places in itertools.product(range(parts), repeat=len(values))
    )
    largest = max(sum(values[i] for i in part) for part in karmarkar_karp(values, parts))
    assert largest <= best * (4 / 3 - 1 / (3 * parts)) + 1e-9


def test_it_finds_what_greedy_misses() -> None:
    sums = [sum([8, 7, 6, 5, 4][i] for i in part) for part in karmarkar_karp([8, 7, 6, 5, 4], 2)]
    assert sums == [16, 14]
    assert [len(part) for part in karmarkar_karp([], 3)] == [0, 0, 0]
    with pytest.raises(ValueError, match="at least 1"):
        karmarkar_karp([1], 0)


@settings(max_examples=100, deadline=None)
@given(sizes, st.integers(1, 80))
def test_parts_stay_within_the_budget(values: list[int], budget: int) -> None:
    found = within_budget(values, budget)
    assert sorted(index for part in found for index in part) == list(range(len(values)))
    for part in found:
        assert len(part) == 1 or sum(values[i] for i in part) <= budget
    small = [v for v in values if v <= budget]
    assert len(found) >= len(values) - len(small) + -(-sum(small) // budget)
