"""GRPOLoss as a TorchRL module: keys in, keys out, nothing computed but the pure functions."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from atrl_agents.losses import GRPOLoss
from atrl_agents.policies.transformers_policy import TransformersPolicy
from atrl_agents.surrogates import Totals
from atrl_envs import keys
from atrl_envs.vocab import Vocab
from tests import reference
from tests.agents.test_log_probs import batch
from tests.agents.test_slots import make_model


@pytest.fixture(scope="module")
def actor() -> TransformersPolicy:
    vocab = Vocab.characters()
    return TransformersPolicy(make_model(vocab), vocab, temperature=0.9)


def episodes(actor, spread: float = 0.3) -> TensorDict:
    tokens, prompt_length, length, group = batch()
    column = torch.arange(tokens.shape[1])
    mask = (column >= prompt_length[:, None]) & (column < length[:, None])
    with torch.no_grad():
        log_prob = actor.response_log_probs(tokens, prompt_length, length).log_prob
    g = torch.Generator().manual_seed(3)
    noise = spread * torch.randn(log_prob.shape, generator=g)
    return TensorDict(
        {
            keys.TOKENS: tokens, keys.PROMPT_LENGTH: prompt_length, keys.LENGTH: length, keys.GROUP: group,
            keys.RESPONSE_MASK: mask, keys.LOG_PROB: (log_prob + noise).masked_fill(~mask, 0.0),
            keys.ADVANTAGE: torch.randn(tokens.shape[0], generator=g),
        },
        batch_size=[tokens.shape[0]],
    )  # fmt: skip


@pytest.mark.parametrize("how", ["sequence", "token", "constant"])
def test_loss_equals_the_float64_loop(actor, how):
    data = episodes(actor)
    out = GRPOLoss(actor, clip_low=0.2, clip_high=0.28, reduction=how)(data)
    current = reference.response_log_probs(
        actor.model, data[keys.TOKENS], data[keys.PROMPT_LENGTH], data[keys.LENGTH], 0.9
    )
    advantage = data[keys.ADVANTAGE][:, None].expand(current.shape)
    want = reference.ppo_clip_loss(
        current, data[keys.LOG_PROB], advantage, data[keys.RESPONSE_MASK],
        low=0.2, high=0.28, how=how, max_tokens=current.shape[1],
    )  # fmt: skip
    assert float(out["loss_objective"]) == pytest.approx(float(want), rel=1e-4)
    assert not out["clip_fraction"].requires_grad and 0 < float(out["clip_fraction"]) < 1


def test_on_policy_the_ratio_is_one(actor):
    out = GRPOLoss(actor)(episodes(actor, spread=0.0))
    assert float(out["ratio_mean"]) == pytest.approx(1.0, abs=1e-4)
    assert float(out["clip_fraction"]) == 0.0 and float(out["kl"]) == pytest.approx(0.0, abs=1e-5)


def test_accumulating_micro_batches_gives_the_gradient_of_the_batch(actor):
    data = episodes(actor)
    loss = GRPOLoss(actor)
    totals = Totals(rows=12, tokens=float(data[keys.RESPONSE_MASK].sum()), max_tokens=12)

    def gradient(parts):
        actor.model.zero_grad()
        for part in parts:
            loss(part, totals)["loss_objective"].backward()
        return torch.cat([p.grad.flatten() for p in actor.model.parameters()])

    whole, quarters = gradient([data]), gradient(data.split(4))
    # float32 sums in another order
    torch.testing.assert_close(quarters, whole, rtol=1e-3, atol=1e-5 * float(whole.abs().max()))


def test_keys_can_be_renamed_and_are_declared(actor):
    loss = GRPOLoss(actor)
    assert set(loss.in_keys) == {
        keys.TOKENS, keys.PROMPT_LENGTH, keys.LENGTH, keys.GROUP, keys.RESPONSE_MASK, keys.LOG_PROB, keys.ADVANTAGE,
    }  # fmt: skip
    data = episodes(actor)
    expected = loss(data)["loss_objective"]
    loss.set_keys(advantage="my_advantage")
    data["my_advantage"] = data.pop(keys.ADVANTAGE)
    assert "my_advantage" in loss.in_keys
    assert float(loss(data)["loss_objective"].detach()) == float(expected.detach())
    assert set(loss(data).keys()) == set(loss.out_keys)


def test_parameters_of_the_loss_are_those_of_the_actor(actor):
    assert {id(p) for p in GRPOLoss(actor).parameters()} == {id(p) for p in actor.parameters()}
