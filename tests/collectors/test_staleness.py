"""The rules about age, and the books."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atrl_collectors import Books, BooksError, StalenessPolicy
from atrl_collectors.staleness import in_sorted


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompts_per_batch", 0),
        ("samples_per_prompt", 0),
        ("max_staleness", -1),
        ("max_uses", 1.5),
        ("dynamic_sampling", -1),
    ],
)
def test_a_policy_refuses_what_makes_no_sense(field: str, value: object) -> None:
    good = {"prompts_per_batch": 2, "samples_per_prompt": 2}
    with pytest.raises(ValueError, match=field):
        StalenessPolicy(**{**good, field: value})  # type: ignore[arg-type]


@given(st.integers(1, 20), st.integers(0, 8), st.integers(0, 50))
def test_admission_bounds_staleness(prompts: int, eta: int, version: int) -> None:
    """With one batch a version, the last group admitted at version v is trained at version v + eta."""
    policy = StalenessPolicy(prompts_per_batch=prompts, samples_per_prompt=4, max_staleness=eta)
    last = policy.admitted(finished=version * prompts) - 1
    assert last // prompts == version + eta
    assert policy.episodes_per_batch == 4 * prompts
    assert policy.capacity >= policy.admitted(0) * 4


def test_staleness_is_never_negative() -> None:
    policy = StalenessPolicy(prompts_per_batch=1, samples_per_prompt=1)
    assert policy.staleness(5, torch.tensor([5, 3])).tolist() == [0, 2]
    with pytest.raises(ValueError, match="sampled by version 6, newer than the consumer's 5"):
        policy.staleness(5, torch.tensor([4, 6]))


def test_books_balance_or_say_so() -> None:
    books = Books(generated=100, trained=40)
    books.drop("stale", tokens=25, episodes=5)
    books.drop("stale", tokens=0)
    books.check(resident=35)
    with pytest.raises(BooksError, match=r"100 tokens.*40 trained \+ 25 dropped .*stale.* \+ 34 .* = 99"):
        books.check(resident=34)
    other = Books()
    other.load_state_dict(books.state_dict())
    assert other == books


@given(st.lists(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_in_sorted(values: list[int], members: set[int]) -> None:
    wanted = torch.tensor(sorted(members), dtype=torch.int64)
    found = in_sorted(torch.tensor(values, dtype=torch.int64), wanted)
    assert found.tolist() == [value in members for value in values]
