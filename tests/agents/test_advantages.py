"""Advantages against plain loops, and the values that must be exact."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_agents.advantages import group_relative, leave_one_out
from tests import reference

rewards = st.lists(st.sampled_from([0.0, 1.0, 0.5, -1.0, 0.1]), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 6), st.integers(1, 4), st.sampled_from(["population", "sample", "none"]))
def test_group_relative_matches_the_loop(data, size, groups, scale):
    n = size * groups
    reward = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.25, -1.0]), min_size=n, max_size=n))
    valid = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    got = group_relative(torch.tensor(reward), size, valid=torch.tensor(valid), scale=scale)
    want = reference.group_relative(reward, size, valid=valid, scale=scale)
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)
    got = leave_one_out(torch.tensor(reward), size, valid=torch.tensor(valid))
    torch.testing.assert_close(
        got.double(), reference.leave_one_out(reward, size, valid), rtol=1e-5, atol=1e-6
    )


def test_values_computed_by_hand():
    reward = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    got = group_relative(reward, 4)
    # mean 1/4, population deviation sqrt(3)/4; then mean 1/2, deviation 1/2
    root = 3**0.5
    expected = torch.tensor([root, -1 / root, -1 / root, -1 / root, 1, 1, -1, -1])
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert leave_one_out(reward, 4).tolist() == pytest.approx(
        [1, -1 / 3, -1 / 3, -1 / 3, 2 / 3, 2 / 3, -2 / 3, -2 / 3]
    )
    assert group_relative(reward, 4, scale="none").tolist() == pytest.approx(
        [0.75, -0.25, -0.25, -0.25, 0.5, 0.5, -0.5, -0.5]
    )


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 0.3, -7.7])
@pytest.mark.parametrize("size", [3, 7, 8])
def test_a_group_without_contrast_gets_exactly_zero(value, size):
    assert group_relative(torch.full((2 * size,), value), size).tolist() == [0.0] * (2 * size)
    assert leave_one_out(torch.full((2 * size,), value), size).tolist() == [0.0] * (2 * size)


def test_a_sample_that_cannot_be_judged_is_left_out():
    reward = torch.tensor([1.0, 0.0, 5.0, 1.0])
    valid = torch.tensor([True, True, False, True])
    got = group_relative(reward, 4, valid=valid, scale="none")
    assert got.tolist() == pytest.approx([1 / 3, -2 / 3, 0.0, 1 / 3])


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="samples_per_prompt >= 2"):
        group_relative(torch.zeros(4), 1)
    with pytest.raises(ValueError, match="whole groups"):
        group_relative(torch.zeros(5), 2)
    with pytest.raises(ValueError, match="squeeze"):
        leave_one_out(torch.zeros(4, 1), 2)
