"""Every surrogate of the family against a float64 loop, value and gradient, and the four companions of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from atrl_agents.surrogates import (
    cispo,
    dual_clip,
    gspo,
    gspo_token,
    kl_to_reference,
    ppo_clip,
    reduce,
    unclipped,
    value_loss,
)
from tests import reference
from tests.agents.test_surrogates import REDUCTIONS, case

Form = Callable[..., Tensor]
# name -> ours(log_prob, log_ratio, advantage, mask) and the same in float64 loops
FORMS: dict[str, tuple[Form, Form]] = {
    "unclipped": (
        lambda p, d, a, m: unclipped(d, a, m),
        lambda p, d, a, m: reference.per_token(reference.unclipped, m, d, a),
    ),
    "clip": (
        lambda p, d, a, m: ppo_clip(d, a, m, clip_low=0.2, clip_high=0.28),
        lambda p, d, a, m: reference.per_token(lambda x, y: reference.clip(x, y, 0.2, 0.28), m, d, a),
    ),
    "dual clip": (
        lambda p, d, a, m: dual_clip(d, a, m, clip_low=0.2, clip_high=0.2, limit=1.5),
        lambda p, d, a, m: reference.per_token(lambda x, y: reference.dual(x, y, limit=1.5), m, d, a),
    ),
    "cispo": (
        lambda p, d, a, m: cispo(p, d, a, m, low=0.5, high=1.8),
        lambda p, d, a, m: reference.per_token(
            lambda q, x, y: reference.cispo(q, x, y, 0.5, 1.8), m, p, d, a
        ),
    ),
    "gspo": (
        lambda p, d, a, m: gspo(d, a, m, clip_low=0.1, clip_high=0.15),
        lambda p, d, a, m: reference.gspo(d, a, m, 0.1, 0.15),
    ),
    "gspo, token form": (
        lambda p, d, a, m: gspo_token(d, a, m, clip_low=0.1, clip_high=0.15),
        lambda p, d, a, m: reference.gspo(d, a, m, 0.1, 0.15, token_form=True),
    ),
}
names = st.sampled_from(sorted(FORMS))


def same_value_and_gradient(
    ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], at: Tensor
) -> None:
    one, two = at.clone().requires_grad_(), at.clone().requires_grad_()
    got, want = ours(one), theirs(two)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)
    gradients = []
    for value, leaf in ((got, one), (want, two)):
        if value.requires_grad:
            value.backward()
        gradients.append(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)


@settings(max_examples=120, deadline=None)
@given(names, st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 6), st.sampled_from(REDUCTIONS),
       st.sampled_from([0.1, 0.5, 30.0]))  # fmt: skip
def test_value_and_gradient_match_the_loop(
    name: str, seed: int, rows: int, columns: int, how: Any, spread: float
) -> None:
    log_prob, behaviour, advantage, mask = case(seed, rows, columns, spread)
    ours, theirs = FORMS[name]
    same_value_and_gradient(
        lambda p: reduce(ours(p, p - behaviour, advantage, mask), mask, how),
        lambda p: reference.reduced(theirs(p, p - behaviour, advantage, mask), mask, how, columns),
        log_prob,
    )


@pytest.mark.parametrize("name", sorted(FORMS))
def test_at_ratio_one_it_is_the_plain_policy_gradient(name: str) -> None:
    log_prob, _, advantage, mask = case(1, 4, 6)
    if (
        name == "gspo"
    ):  # one ratio a response: its gradient is that of the mean, so the advantage must be the row's
        advantage = advantage[:, :1].expand_as(advantage)
    one, two = log_prob.clone().requires_grad_(), log_prob.clone().requires_grad_()
    (-reduce(FORMS[name][0](one, one - log_prob, advantage, mask), mask, "sequence")).backward()
    (-reduce(two * advantage, mask, "sequence")).backward()
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_an_empty_mask_gives_zero_and_a_finite_gradient(name: str) -> None:
    log_prob, behaviour, advantage, _ = case(2, 3, 4)
    mask = torch.zeros(3, 4, dtype=torch.bool)
    log_prob.requires_grad_()
    loss = reduce(FORMS[name][0](log_prob, log_prob - behaviour, advantage, mask), mask, "sequence")
    loss.backward()
    assert float(loss) == 0.0
    assert float(log_prob.grad.abs().max()) == 0.0


@pytest.mark.parametrize("name", sorted(FORMS))
@pytest.mark.parametrize("rubbish", [float("inf"), float("nan"), -1e30])
def test_padding_changes_neither_value_nor_gradient(name: str, rubbish: float) -> None:
    log_prob, behaviour, advantage, mask = case(3, 4, 6)
    mask[:, 4:] = False
    found = []
    for columns in (4, 6):
        leaf = log_prob[:, :columns].clone()
        leaf[:, 4:] = rubbish
        leaf.requires_grad_()
        better = advantage[:, :columns].clone()
        better[:, 4:] = rubbish
        values = FORMS[name][0](leaf, leaf - behaviour[:, :columns], better, mask[:, :columns])
        loss = reduce(values, mask[:, :columns], "token")
        loss.backward()
        assert not bool(values[:, 4:].any()) and not bool(leaf.grad[:, 4:].any())  # NaN is not false
        found.append((loss.detach(), leaf.grad[:, :4]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=0)


def test_numbers_computed_by_hand() -> None:
    d = torch.tensor([[2.0, 0.5, 4.0, 1.0]]).log()
    a = torch.tensor([[1.0, -1.0, -1.0, 3.0]])
    mask = torch.tensor([[True, True, True, False]])
    torch.testing.assert_close(unclipped(d, a, mask), torch.tensor([[2.0, -0.5, -4.0, 0.0]]))
    # min(2, 1.2); min(-0.5, -0.8); min(-4, -1.2), but no less than 3 * -1
    torch.testing.assert_close(dual_clip(d, a, mask), torch.tensor([[1.2, -0.8, -3.0, 0.0]]))
    # the response's ratio is exp(mean log) = (2 * 0.5 * 4) ** (1 / 3)
    s = 4 ** (1 / 3)
    torch.testing.assert_close(
        gspo(d, torch.ones_like(a), mask, clip_low=1.0, clip_high=1.0), torch.tensor([[s, s, s, 0.0]])
    )
    p = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
    # weights clip(r, 0, 3): 2, 0.5, 3
    torch.testing.assert_close(cispo(p, d, a, mask, high=3.0), torch.tensor([[-2.0, 1.0, 9.0, 0.0]]))


def test_cispo_keeps_the_gradient_that_a_clip_would_take() -> None:
    p = torch.tensor([[-0.5]], requires_grad=True)
    d = p - torch.tensor([[-2.5]])  # ratio exp(2), far above every clip
    one, mask = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    cispo(p, d, one, mask, high=5.0).sum().backward()
    assert float(p.grad) == pytest.approx(5.0)
    p.grad = None
    ppo_clip(p - torch.tensor([[-2.5]]), one, mask).sum().backward()
    assert float(p.grad) == 0.0


def test_a_negative_advantage_with_a_huge_ratio_has_no_gradient_under_the_dual_clip() -> None:
    d = torch.tensor([[2.0]], requires_grad=True)
    minus, mask = -torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    dual_clip(d, minus, mask, limit=3.0).sum().backward()
    assert float(d.grad) == 0.0
    d.grad = None
    ppo_clip(d, minus, mask).sum().backward()
    assert float(d.grad) == pytest.approx(-float(d.detach().exp()))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["k1", "k2", "k3", "unbiased_k3"]), st.sampled_from([0.1, 2.0]))
def test_divergence_matches_the_loop(seed: int, estimator: Any, spread: float) -> None:
    log_prob, other, _, mask = case(seed, 3, 5, spread)
    behaviour = other + 0.3
    same_value_and_gradient(
        lambda p: reduce(
            kl_to_reference(p, other, mask, estimator=estimator, log_ratio=p - behaviour), mask, "token"
        ),
        lambda p: reference.reduced(
            reference.per_token(
                lambda x, y, z: reference.kl(x, y, estimator, x - z), mask, p, other, behaviour
            ),
            mask,
            "token",
            5,
        ),
        log_prob,
    )


def test_unbiased_k3_has_the_gradient_of_the_divergence_on_another_policys_tokens() -> None:
    """Summed over all actions with the behaviour's probabilities, its gradient is that of KL(theta || ref)."""
    g = torch.Generator().manual_seed(0)
    logits, ref, mu = (torch.randn(5, generator=g, dtype=torch.float64) for _ in range(3))
    theta = logits.clone().requires_grad_()
    exact = (theta.softmax(0) * (theta.log_softmax(0) - ref.log_softmax(0))).sum()
    (wanted,) = torch.autograd.grad(exact, theta)
    mask = torch.ones(1, 5, dtype=torch.bool)
    p, q, b = (x.log_softmax(0)[None] for x in (theta, ref, mu))
    weights = b.exp().detach()
    estimate = kl_to_reference(p, q, mask, estimator="unbiased_k3", log_ratio=p - b.detach())
    (found,) = torch.autograd.grad((weights * estimate).sum(), theta)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


EXTRAS: dict[str, Form] = {
    **{
        name: lambda x, y, m, name=name: kl_to_reference(x, y, m, estimator=name, log_ratio=x - y - 0.1)
        for name in ("k1", "k2", "k3", "unbiased_k3")
    },
    "value": lambda x, y, m: value_loss(x, y, m),
    "clipped value": lambda x, y, m: value_loss(x, y, m, before=y - 0.4, clip=0.2),
}


@pytest.mark.parametrize("name", sorted(EXTRAS))
def test_padding_and_an_empty_mask_of_divergence_and_value_loss(name: str) -> None:
    one, other, _, mask = case(3, 4, 6)
    mask[:, 4:] = False
    found = []
    for columns, rubbish in ((4, 0.0), (6, torch.nan), (6, torch.inf)):
        leaf = one[:, :columns].masked_fill(~mask[:, :columns], rubbish).requires_grad_()
        there = other[:, :columns].masked_fill(~mask[:, :columns], rubbish)
        loss = reduce(EXTRAS[name](leaf, there, mask[:, :columns]), mask[:, :columns], "token")
        loss.backward()
        assert not bool(leaf.grad[:, 4:].any())
        found.append((loss.detach(), leaf.grad[:, :4]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=0)
    torch.testing.assert_close(found[0], found[2], rtol=1e-12, atol=0)
    leaf, nothing = one.clone().requires_grad_(), torch.zeros_like(mask)
    reduce(EXTRAS[name](leaf, other, nothing), nothing, "token").backward()
    assert float(leaf.grad.abs().max()) == 0.0


def test_divergence_and_value_loss_computed_by_hand() -> None:
    mask = torch.ones(1, 1, dtype=torch.bool)
    p, ref = torch.tensor([[-1.0]]), torch.tensor([[-2.0]])  # d' = -1
    e = math.exp(-1.0)
    for estimator, want in {"k1": 1.0, "k2": 0.5, "k3": e, "unbiased_k3": 2 * e}.items():
        got = kl_to_reference(p, ref, mask, estimator=estimator, log_ratio=torch.tensor([[math.log(2.0)]]))  # type: ignore[arg-type]
        assert float(got) == pytest.approx(want)
    value, target, before = (torch.tensor([[x]]) for x in (1.0, 3.0, 0.0))
    assert float(value_loss(value, target, mask)) == pytest.approx(2.0)
    # moved by 1 where 0.2 is allowed: (0.2 - 3)^2 / 2
    assert float(value_loss(value, target, mask, before=before, clip=0.2)) == pytest.approx(3.92)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([None, 0.2]))
def test_value_loss_matches_the_loop(seed: int, limit: float | None) -> None:
    value, before, target, mask = case(seed, 3, 5)
    same_value_and_gradient(
        lambda v: reduce(value_loss(v, target, mask, before=before, clip=limit), mask, "token"),
        lambda v: reference.reduced(
            reference.per_token(
                lambda x, y, z: reference.value_error(x, y, z, limit), mask, v, target, before
            ),
            mask,
            "token",
            5,
        ),
        value,
    )


@pytest.mark.parametrize("name", sorted(FORMS))
def test_no_tensor_is_looked_at(name: str) -> None:
    with FakeTensorMode():
        p, mask = torch.zeros(3, 5, requires_grad=True), torch.ones(3, 5, dtype=torch.bool)
        reduce(FORMS[name][0](p, p - 1.0, torch.ones(3, 5), mask), mask, "sequence").backward()
        assert isinstance(p.grad, FakeTensor), "looking would have raised"


def test_names_that_are_none_are_refused() -> None:
    mask = torch.ones(1, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match="choose k1, k2, k3, unbiased_k3"):
        kl_to_reference(torch.zeros(1, 1), torch.zeros(1, 1), mask, estimator="k4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs log_ratio"):
        kl_to_reference(torch.zeros(1, 1), torch.zeros(1, 1), mask, estimator="unbiased_k3")
