"""The algebra of corrections against token-by-token loops, and every preset as the formula it is named after."""

from __future__ import annotations

import dataclasses
import math
import typing
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from atrl_agents import loss_config
from atrl_agents.corrections import PRESETS, LogProbs, Rule, correct, interpolated_proximal
from atrl_agents.objectives import Objective, TokenBatch, policy_terms
from tests import reference
from tests.agents.test_family import same_value_and_gradient
from tests.agents.test_surrogates import case


def three(seed: int, rows: int = 4, columns: int = 5) -> tuple[LogProbs, Tensor, Tensor, Tensor]:
    current, behaviour, advantage, mask = case(seed, rows, columns, 0.6)
    g = torch.Generator().manual_seed(seed + 1)
    proximal = behaviour + 0.5 * torch.randn(rows, columns, generator=g, dtype=torch.float64)
    group = torch.arange(rows) // 2
    return LogProbs(current, behaviour, proximal), advantage, mask, group


rules = st.builds(
    Rule,
    action=st.sampled_from(["truncate", "clip", "mask", "penalise"]),
    quantity=st.sampled_from(["ratio", "log_ratio", "squared", "probability"]),
    scope=st.sampled_from(["token", "sequence", "product", "group", "batch"]),
    low=st.sampled_from([-math.inf, -0.3, 0.0, 0.6]),
    high=st.sampled_from([math.inf, 0.2, 0.9, 1.5]),
    of=st.sampled_from(["proximal", "current"]),
    when=st.sampled_from(["any", "positive", "negative"]),
    coefficient=st.sampled_from([0.5, 2.0]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(rules, min_size=1, max_size=3), st.integers(0, 10**6))
def test_any_rules_do_what_the_loop_does(chosen: list[Rule], seed: int) -> None:
    probs, advantage, mask, group = three(seed)
    plain = [dataclasses.asdict(rule) for rule in chosen]
    for rule in chosen:
        if rule.low > rule.high:
            return
    current = probs.current.requires_grad_()
    found = correct(tuple(chosen), probs, advantage, mask, group=group)
    weight, kept, penalty = reference.corrected(
        plain, current, probs.behaviour, probs.proximal, advantage, mask, group
    )
    torch.testing.assert_close(found.weight, weight.detach(), rtol=1e-9, atol=1e-12)
    assert torch.equal(found.kept, kept)
    torch.testing.assert_close(found.penalty, penalty, rtol=1e-9, atol=1e-12)
    assert not found.weight.requires_grad
    if found.penalty.requires_grad and penalty.requires_grad:
        got, want = (
            torch.autograd.grad(value.sum(), current, allow_unused=True, retain_graph=True)[0]
            for value in (found.penalty, penalty)
        )
        zero = torch.zeros_like(current)
        torch.testing.assert_close(
            zero if got is None else got, zero if want is None else want, rtol=1e-9, atol=1e-12
        )


# What each preset makes of one token with a log-prob under the current, behaviour and proximal policy and an
# advantage; `row` are the log-ratios proximal - behaviour and current - behaviour of its response.
def decoupled(c: Tensor, b: Tensor, p: Tensor, a: Tensor, row: Any) -> Tensor:
    return torch.exp(p - b) * reference.clip(c - p, a)


def truncated(c: Tensor, b: Tensor, p: Tensor, a: Tensor, row: Any) -> Tensor:
    return min(float(torch.exp(p - b)), 2.0) * reference.clip(c - p, a)


def truncated_sequence(c: Tensor, b: Tensor, p: Tensor, a: Tensor, row: Any) -> Tensor:
    return min(math.exp(sum(row["proximal"])), 2.0) * reference.clip(c - p, a)


def masked(low: float, high: float) -> Any:
    def of(c: Tensor, b: Tensor, p: Tensor, a: Tensor, row: Any) -> Tensor:
        rho = float(torch.exp(p - b))
        return (rho if low <= rho <= high else 0.0) * reference.clip(c - p, a)

    return of


def masked_sequence(mean: bool) -> Any:
    def of(c: Tensor, b: Tensor, p: Tensor, a: Tensor, row: Any) -> Tensor:
        rho = math.exp(sum(row["proximal"]) / (len(row["proximal"]) if mean else 1))
        return (rho if 0.5 <= rho <= 5.0 else 0.0) * reference.clip(c - p, a)

    return of


def deepseek(c: Tensor, b: Tensor, p: Tensor, a: Tensor, row: Any) -> Tensor:
    away = -sum(row["current"]) / len(row["current"])
    return (0.0 if a < 0 and away > 0.5 else 1.0) * reference.clip(c - b, a)


def dppo(c: Tensor, b: Tensor, p: Tensor, a: Tensor, row: Any) -> Tensor:
    moved = float(torch.exp(c) - torch.exp(b))
    stays = not (a > 0 and moved > 0.2) and not (a < 0 and moved < -0.2)
    return (1.0 if stays else 0.0) * reference.unclipped(c - b, a) - 1e-3 * (c - b) ** 2


FORMULAS = {
    "none": lambda c, b, p, a, row: reference.clip(c - b, a),
    "decoupled": decoupled,
    "tis": truncated,
    "tis_sequence": truncated_sequence,
    "mis": masked(0.5, 5.0),
    "mis_sequence": masked_sequence(mean=False),
    "mis_geometric": masked_sequence(mean=True),
    "token_mask": masked(0.5, 2.0),
    "sequence_mask": deepseek,
    "dppo": dppo,
}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FORMULAS)), st.integers(0, 10**6))
def test_every_preset_is_its_formula(name: str, seed: int) -> None:
    probs, advantage, mask, _ = three(seed)
    spec = Objective(correction=name, reduction="token")

    def loop(current: Tensor) -> Tensor:
        total, count = torch.zeros((), dtype=torch.float64), 0
        for n in range(mask.shape[0]):
            used = [t for t in range(mask.shape[1]) if mask[n, t]]
            row = {
                "proximal": [float((probs.proximal - probs.behaviour)[n, t]) for t in used],
                "current": [float((current - probs.behaviour)[n, t]) for t in used],
            }
            for t in used:
                total = total + FORMULAS[name](
                    current[n, t], probs.behaviour[n, t], probs.proximal[n, t], advantage[n, t], row
                )
                count += 1
        return -total / max(1, count)

    same_value_and_gradient(
        lambda c: (
            policy_terms(
                spec, TokenBatch(c, probs.behaviour, advantage, mask, proximal=probs.proximal)
            ).objective
        ),
        loop,
        probs.current,
    )


def test_a3po_stands_between_the_two_policies() -> None:
    current, behaviour = torch.tensor([[-1.0, -1.0, -1.0]]), torch.tensor([[-3.0, -3.0, -3.0]])
    version = torch.tensor([[2, 6, 8]])
    # versions: proximal 8, current 8.5; shares 6 / 6.5, 2 / 2.5, 0 / 0.5
    got = interpolated_proximal(current, behaviour, version, proximal_version=8.0, current_version=8.5)
    torch.testing.assert_close(got, torch.tensor([[-3 + 2 * 6 / 6.5, -3 + 2 * 2 / 2.5, -3.0]]))
    fresh = interpolated_proximal(current, behaviour, version, proximal_version=8.0, current_version=8.0)
    torch.testing.assert_close(fresh, current)


def test_a3po_at_the_first_step_of_an_update_is_the_decoupled_objective() -> None:
    probs, advantage, mask, _ = three(4)
    version = torch.zeros(mask.shape, dtype=torch.int64)
    batch = TokenBatch(probs.current, probs.behaviour, advantage, mask, version=version, versions=(3.0, 3.0))
    got = policy_terms(Objective(correction="a3po"), batch).objective
    want = policy_terms(Objective(correction="decoupled"), batch).objective
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"dppo"}))
def test_on_policy_every_preset_is_the_plain_policy_gradient(name: str) -> None:
    probs, advantage, mask, group = three(5)
    one, two = probs.behaviour.clone().requires_grad_(), probs.behaviour.clone().requires_grad_()
    batch = TokenBatch(
        one, probs.behaviour, advantage, mask, group=group,
        version=torch.zeros(mask.shape, dtype=torch.int64), versions=(0.0, 0.0),
    )  # fmt: skip
    policy_terms(Objective(correction=name, reduction="token"), batch).objective.backward()
    (-(two * advantage).masked_fill(~mask, 0.0).sum() / mask.sum()).backward()
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_padding_changes_nothing_and_an_empty_mask_gives_zero(name: str) -> None:
    probs, advantage, mask, group = three(6)
    mask[:, 3:] = False
    found = []
    for columns in (3, 5):
        c = probs.current[:, :columns].clone()
        c[:, 3:] = torch.nan
        c.requires_grad_()
        batch = TokenBatch(
            c, probs.behaviour[:, :columns], advantage[:, :columns], mask[:, :columns],
            proximal=probs.proximal[:, :columns], group=group,
            version=torch.zeros(4, columns, dtype=torch.int64), versions=(1.0, 1.5),
        )  # fmt: skip
        loss = policy_terms(Objective(correction=name), batch).objective
        loss.backward()
        found.append((loss.detach(), c.grad[:, :3]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=0)
    c = probs.current.clone().requires_grad_()
    empty = TokenBatch(
        c, probs.behaviour, advantage, torch.zeros_like(mask), proximal=probs.proximal, group=group,
        version=torch.zeros(4, 5, dtype=torch.int64), versions=(1.0, 1.5),
    )  # fmt: skip
    loss = policy_terms(Objective(correction=name), empty).objective
    loss.backward()
    assert float(loss) == 0.0
    assert float(c.grad.abs().max()) == 0.0


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_tensor_is_looked_at(name: str) -> None:
    with FakeTensorMode():
        c, mask = torch.zeros(4, 5, requires_grad=True), torch.ones(4, 5, dtype=torch.bool)
        version = torch.zeros(4, 5, dtype=torch.int64)
        batch = TokenBatch(c, c.detach() - 1, c.detach(), mask, version=version, versions=(1.0, 1.0))
        policy_terms(Objective(correction=name), batch).objective.backward()
        assert isinstance(c.grad, FakeTensor), "looking would have raised"


def test_config_and_presets_have_the_same_names() -> None:
    assert set(typing.get_args(loss_config.Correction)) == set(PRESETS)


CHOICES = [
    (kind, correction, variant)
    for kind in ("clip", "dual_clip", "gspo", "gspo_token", "cispo", "unclipped", "m2po")
    for correction in PRESETS
    for variant in (("paper", "authors", "areal", "ratio") if kind == "m2po" else ("paper",))
]


@pytest.mark.parametrize(("kind", "correction", "variant"), CHOICES)
def test_config_and_objective_refuse_the_same(kind: str, correction: str, variant: str) -> None:
    """What cannot go together is said before anything is loaded, and again where the loss is made."""
    from atrl_agents.complaints import ConfigError
    from atrl_agents.config import GRPOConfig, M2POConfig, TrainConfig
    from atrl_agents.config_check import check_loss

    config: TrainConfig = M2POConfig() if kind == "m2po" else GRPOConfig()
    settings = {"variant": variant} if kind == "m2po" else {"surrogate": kind}
    config = dataclasses.replace(
        config, loss=dataclasses.replace(config.loss, correction=correction, **settings)
    )
    refused = []
    for attempt in (
        lambda: check_loss(config),
        lambda: Objective(surrogate=kind, correction=correction, variant=variant),  # type: ignore[arg-type]
    ):
        try:
            attempt()
        except (ConfigError, ValueError):
            refused.append(True)
        else:
            refused.append(False)
    assert refused[0] == refused[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_areal_takes_the_moments_of_the_proximal_policy(seed: int) -> None:
    probs, advantage, mask, _ = three(seed)
    spec = Objective(surrogate="m2po", variant="areal", correction="decoupled", reduction="token")
    kept = reference.second_moment_mask(probs.proximal - probs.behaviour, advantage, mask, 0.04, "areal")

    def loop(current: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for n, t in kept:
            rho = float(torch.exp(probs.proximal[n, t] - probs.behaviour[n, t]))
            total = total + rho * reference.clip(current[n, t] - probs.proximal[n, t], advantage[n, t])
        return -total / max(1, len(kept))

    same_value_and_gradient(
        lambda c: (
            policy_terms(
                spec, TokenBatch(c, probs.behaviour, advantage, mask, proximal=probs.proximal)
            ).objective
        ),
        loop,
        probs.current,
    )


def test_what_is_missing_or_unknown_is_said() -> None:
    probs, advantage, mask, _ = three(7)
    with pytest.raises(ValueError, match="scope group needs the group"):
        correct((Rule("mask", scope="group"),), probs, advantage, mask)
    for wrong in (
        {"action": "drop"},
        {"scope": "row"},
        {"of": "old"},
        {"when": "Positive"},
        {"quantity": "d"},
    ):
        with pytest.raises(ValueError, match=f"Unknown {next(iter(wrong))}"):
            Rule(**{"action": "mask", **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Unknown correction 'tiss'"):
        Objective(correction="tiss")
    with pytest.raises(ValueError, match="needs the version"):
        policy_terms(
            Objective(correction="a3po"), TokenBatch(probs.current, probs.behaviour, advantage, mask)
        )


def test_a_group_for_every_row_or_none() -> None:
    rule = Rule("mask", scope="group", high=2.0)
    zero, mask = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    for group in (None, torch.tensor([1])):
        with pytest.raises(ValueError, match="group of each of 2 rows"):
            correct((rule,), LogProbs(zero, zero, zero), zero, mask, group=group)
