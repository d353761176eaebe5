"""The clipped surrogate and its reductions: value and gradient against a float64 loop, and four companions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_agents.diagnostics import RatioSums
from atrl_agents.surrogates import (
    Totals,
    dual_clip,
    gspo,
    gspo_token,
    kl_to_reference,
    m2po_clip,
    masked_mean,
    ppo_clip,
    reduce,
    unclipped,
)
from tests import reference

REDUCTIONS = ["sequence", "token", "constant"]


def case(seed: int, rows: int, columns: int, spread: float = 0.5):
    g = torch.Generator().manual_seed(seed)
    behaviour = -torch.rand(rows, columns, generator=g, dtype=torch.float64)
    log_prob = behaviour + spread * torch.randn(rows, columns, generator=g, dtype=torch.float64)
    advantage = torch.randn(rows, columns, generator=g, dtype=torch.float64)
    mask = torch.rand(rows, columns, generator=g) < 0.7
    return log_prob, behaviour, advantage, mask


def loss_of(log_prob, behaviour, advantage, mask, how, **clip):
    return -reduce(ppo_clip(log_prob - behaviour, advantage, mask, **clip), mask, how)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 7), st.sampled_from(REDUCTIONS),
    st.sampled_from([(0.2, 0.2), (0.2, 0.28), (0.1, 0.5)]), st.sampled_from([0.1, 0.5, 30.0]),
)  # fmt: skip
def test_value_and_gradient_match_the_loop(seed, rows, columns, how, clip, spread):
    log_prob, behaviour, advantage, mask = case(seed, rows, columns, spread)
    mine, theirs = log_prob.clone().requires_grad_(), log_prob.clone().requires_grad_()
    got = loss_of(mine, behaviour, advantage, mask, how, clip_low=clip[0], clip_high=clip[1])
    want = reference.ppo_clip_loss(
        theirs, behaviour, advantage, mask, low=clip[0], high=clip[1], how=how, max_tokens=columns
    )
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)
    got.backward()
    if want.requires_grad:
        want.backward()
        torch.testing.assert_close(
            mine.grad,
            theirs.grad if theirs.grad is not None else torch.zeros_like(mine),
            rtol=1e-6,
            atol=1e-9,
        )


@pytest.mark.parametrize("how", REDUCTIONS)
def test_at_ratio_one_it_is_the_plain_policy_gradient(how):
    log_prob, _, advantage, mask = case(1, 4, 6)
    one, two = log_prob.clone().requires_grad_(), log_prob.clone().requires_grad_()
    loss_of(one, log_prob, advantage, mask, how).backward()
    (-reduce(two * advantage, mask, how)).backward()
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-9, atol=1e-12)


def test_numbers_computed_by_hand():
    log_ratio = torch.tensor([[1.5, 0.9, 0.5, 1.0]]).log()
    advantage = torch.tensor([[1.0, 2.0, -1.0, 3.0]])
    mask = torch.tensor([[True, True, True, False]])
    # min(1.5, 1.2), min(1.8, 1.8), min(-0.5, -0.8)
    got = ppo_clip(log_ratio, advantage, mask)
    torch.testing.assert_close(got, torch.tensor([[1.2, 1.8, -0.8, 0.0]]))
    assert float(reduce(got, mask, "sequence")) == pytest.approx(2.2 / 3)
    assert float(reduce(got, mask, "constant")) == pytest.approx(2.2 / 4)


@pytest.mark.parametrize("how", REDUCTIONS)
def test_an_empty_mask_gives_zero_and_a_finite_gradient(how):
    log_prob, behaviour, advantage, _ = case(2, 3, 4)
    mask = torch.zeros(3, 4, dtype=torch.bool)
    log_prob = log_prob.requires_grad_()
    loss = loss_of(log_prob, behaviour, advantage, mask, how)
    loss.backward()
    assert float(loss) == 0.0 and log_prob.grad.abs().max() == 0.0


@pytest.mark.parametrize("how", ["sequence", "token"])
def test_padding_changes_nothing(how):
    log_prob, behaviour, advantage, mask = case(3, 4, 6)
    mask[:, 4:] = False
    short = loss_of(log_prob[:, :4], behaviour[:, :4], advantage[:, :4], mask[:, :4], how)
    log_prob[:, 4:] = float("inf")
    assert float(loss_of(log_prob, behaviour, advantage, mask, how)) == pytest.approx(float(short), rel=1e-12)


@pytest.mark.parametrize("how", REDUCTIONS)
def test_what_stands_outside_the_mask_is_not_reduced(how):
    values, _, _, mask = case(3, 4, 6)
    want = float(reduce(values, mask, how))
    assert float(reduce(values.masked_fill(~mask, float("nan")), mask, how)) == want


@pytest.mark.parametrize("how", REDUCTIONS)
@pytest.mark.parametrize("cuts", [[4], [1, 3], [1, 1, 1, 1]])
def test_micro_batches_add_up_to_the_batch(how, cuts):
    log_prob, behaviour, advantage, mask = case(4, 4, 6)
    mask[:, 0] = True
    totals = Totals(rows=4, tokens=float(mask.sum()), max_tokens=6)
    objective = ppo_clip(log_prob - behaviour, advantage, mask)
    parts = zip(objective.split(cuts), mask.split(cuts), strict=True)
    total = sum(float(reduce(values, m, how, totals)) for values, m in parts)
    assert total == pytest.approx(float(reduce(objective, mask, how)), rel=1e-9)


def test_shapes_that_disagree_are_refused():
    with pytest.raises(ValueError, match="expand first"):
        ppo_clip(torch.zeros(3, 4), torch.zeros(3, 1), torch.ones(3, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="one shape"):
        reduce(torch.zeros(3), torch.ones(3, dtype=torch.bool), "token")
    with pytest.raises(ValueError, match="sequence, token or constant"):
        reduce(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), "mean")  # type: ignore[arg-type]


def test_diagnostics_match_the_loop_and_add_up():
    log_prob, behaviour, _, mask = case(5, 4, 6)
    log_ratio = log_prob - behaviour
    want = reference.ratio_metrics(log_ratio, mask)
    whole = RatioSums.of(log_ratio, mask).metrics()
    parts = RatioSums.of(log_ratio[:1], mask[:1]) + RatioSums.of(log_ratio[1:], mask[1:])
    for name, value in want.items():
        assert whole[name] == pytest.approx(value, rel=1e-6)
        assert parts.metrics()[name] == pytest.approx(value, rel=1e-6)
    assert float(masked_mean(log_ratio, torch.zeros_like(mask))) == 0.0


@pytest.mark.parametrize("form", [unclipped, ppo_clip, dual_clip, gspo, gspo_token])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_an_infinite_ratio_is_the_largest_there_is_and_has_no_gradient(form, sign):
    log_ratio = torch.tensor([[sign * torch.inf, 0.1]], requires_grad=True)
    large = torch.tensor([[sign * 1e6, 0.1]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    for advantage in (-torch.ones(1, 2), torch.ones(1, 2)):
        value = form(log_ratio, advantage, mask)
        torch.testing.assert_close(value.detach(), form(large, advantage, mask))
        value.sum().backward()
        assert float(log_ratio.grad[0, 0]) == 0.0
        log_ratio.grad = None


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_before_it_can_overflow(half):
    log_ratio, mask = torch.full((2, 3), 20.0, dtype=half), torch.ones(2, 3, dtype=torch.bool)
    for form in (unclipped, ppo_clip, dual_clip, gspo):
        value = form(log_ratio, torch.zeros(2, 3, dtype=half), mask)
        assert value.dtype == torch.float32 and not bool(value.any())
    ones, all_of_it = torch.ones(64, 1200, dtype=half), torch.ones(64, 1200, dtype=torch.bool)
    for how in REDUCTIONS:
        assert float(reduce(ones, all_of_it, how)) == 1.0
    assert float(masked_mean(ones, all_of_it)) == 1.0
    assert bool(torch.isfinite(kl_to_reference(log_ratio - 20, log_ratio, mask)).all())


def test_shapes_that_disagree_are_refused_by_the_rest_too():
    two, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    for wrong in (torch.zeros(2, 1), torch.zeros(3)):
        with pytest.raises(ValueError, match="shape"):
            kl_to_reference(two, two, mask, estimator="unbiased_k3", log_ratio=wrong)
    with pytest.raises(ValueError, match="one number"):
        m2po_clip(two, two, mask, torch.ones(3))
