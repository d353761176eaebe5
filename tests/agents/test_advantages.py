"""Advantages against plain loops, and the values that must be exact."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from atrl_agents.advantages import batch_normalised, gae, gae_by_loop, group_relative, leave_one_out
from tests import reference

rewards = st.lists(st.sampled_from([0.0, 1.0, 0.5, -1.0, 0.1]), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 6), st.integers(1, 4), st.sampled_from(["population", "sample", "none"]))
def test_group_relative_matches_the_loop(data, size, groups, scale):
    n = size * groups
    reward = data.draw(st.lists(st.sampled_from([0.0, 1.0, 0.25, -1.0]), min_size=n, max_size=n))
    valid = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    got = group_relative(
        torch.tensor(reward, dtype=torch.float64), size, valid=torch.tensor(valid), scale=scale
    )
    want = reference.group_relative(reward, size, valid=valid, scale=scale)
    torch.testing.assert_close(got.double(), want, rtol=1e-6, atol=1e-9)
    got = leave_one_out(torch.tensor(reward, dtype=torch.float64), size, valid=torch.tensor(valid))
    torch.testing.assert_close(
        got.double(), reference.leave_one_out(reward, size, valid), rtol=1e-6, atol=1e-9
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


# Batch normalisation and GAE


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 9), st.sampled_from([0.0, 0.5, 0.95, 1.0]),
       st.sampled_from([1.0, 0.9]), st.booleans())  # fmt: skip
def test_gae_matches_the_loops(seed, rows, columns, lam, gamma, cut):
    g = torch.Generator().manual_seed(seed)
    reward, after = torch.randn(2, rows, generator=g, dtype=torch.float64)
    value = torch.randn(rows, columns, generator=g, dtype=torch.float64)
    mask = torch.rand(rows, columns, generator=g) < 0.7
    truncated = torch.rand(rows, generator=g) < 0.5
    more = {"truncated": truncated, "after": after} if cut else {}
    want = reference.gae(reward, value, mask, gamma, lam, **more)
    for function in (gae, gae_by_loop):
        got = function(reward, value, mask, gamma=gamma, lam=lam, **more)
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_gae_computed_by_hand():
    value, mask = torch.tensor([[0.5, 0.25, 9.0]]), torch.tensor([[True, True, False]])
    advantage, target = gae(torch.tensor([1.0]), value, mask, gamma=1.0, lam=0.5)
    # delta: 0.25 - 0.5, 1 - 0.25; A: -0.25 + 0.5 * 0.75, 0.75
    torch.testing.assert_close(advantage, torch.tensor([[0.125, 0.75, 0.0]]))
    torch.testing.assert_close(target, torch.tensor([[0.625, 1.0, 0.0]]))
    cut, _ = gae(
        torch.tensor([0.0]), value, mask, lam=0.0, truncated=torch.tensor([True]), after=torch.tensor([2.0])
    )
    torch.testing.assert_close(cut, torch.tensor([[-0.25, 1.75, 0.0]]))


def test_gae_with_lambda_one_is_the_return_less_the_value():
    g = torch.Generator().manual_seed(3)
    reward, value = torch.randn(5, generator=g), torch.randn(5, 300, generator=g)
    mask = torch.arange(300) < torch.tensor([[300], [1], [17], [256], [0]])
    advantage, target = gae(reward, value, mask, lam=1.0)
    want = (reward[:, None] - value).masked_fill(~mask, 0.0)
    torch.testing.assert_close(advantage, want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        target, reward[:, None].expand_as(mask).masked_fill(~mask, 0.0), rtol=1e-4, atol=1e-4
    )


def test_gae_looks_at_no_tensor_and_refuses_other_shapes():
    with FakeTensorMode():
        gae(torch.zeros(3), torch.zeros(3, 7), torch.ones(3, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match="gae needs reward"):
        gae(torch.zeros(3, 1), torch.zeros(3, 7), torch.ones(3, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match="both truncated and after"):
        gae(
            torch.zeros(3), torch.zeros(3, 7), torch.ones(3, 7, dtype=torch.bool), truncated=torch.ones(3) > 0
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5))
def test_batch_normalisation_matches_the_loop(seed, rows, columns):
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=g, dtype=torch.float64)
    valid = torch.rand(rows, columns, generator=g) < 0.7
    got = batch_normalised(values, valid)
    torch.testing.assert_close(got, reference.batch_normalised(values, valid), rtol=1e-6, atol=1e-9)


def test_batch_normalisation_of_equal_values_is_zero():
    assert batch_normalised(torch.full((4,), 0.3), torch.ones(4, dtype=torch.bool)).tolist() == [0.0] * 4
    assert batch_normalised(torch.ones(3), torch.zeros(3, dtype=torch.bool)).tolist() == [0.0] * 3


def test_shapes_that_disagree_are_refused() -> None:
    reward, value, mask = torch.ones(2), torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="valid"):
        group_relative(torch.ones(3), 3, valid=torch.ones(3, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match="valid"):
        leave_one_out(torch.ones(3), 3, valid=torch.ones(3, 1, dtype=torch.bool))
    cut = torch.ones(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="after"):
        gae(reward, value, mask, truncated=cut, after=torch.ones(1))
    with pytest.raises(ValueError, match="truncated"):
        gae(reward, value, mask, truncated=cut.unsqueeze(1), after=reward)


@pytest.mark.parametrize("kind", [torch.bool, torch.int8, torch.int64, torch.float16])
def test_rewards_of_any_type_are_numbers(kind: torch.dtype) -> None:
    reward = (torch.arange(200) % 4 == 0).to(kind)
    for rule in (group_relative, leave_one_out):
        torch.testing.assert_close(rule(reward, 200), rule(reward.float(), 200))
