"""Losses as TorchRL modules: keys in, keys out, nothing computed but the pure functions; clear errors; interop."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from atrl_agents import models
from atrl_agents.advantages import gae, group_relative
from atrl_agents.config import TinyConfig, WarmupConfig
from atrl_agents.corrections import Correction, Rule
from atrl_agents.losses import GRPOLoss, M2POLoss, PPOLoss
from atrl_agents.objectives import Objective
from atrl_agents.policies.transformers_policy import TransformersPolicy
from atrl_agents.surrogates import Totals, kl_to_reference, masked_mean
from atrl_agents.value_model import ValueModel
from atrl_agents.warmup import warm_up
from atrl_collectors.episodes import EpisodeAssembler
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
    out = GRPOLoss(actor, clip_low=0.2, clip_high=0.28, reduction=how, max_tokens=20)(data)
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
        keys.TOKENS, keys.PROMPT_LENGTH, keys.LENGTH, keys.RESPONSE_MASK, keys.LOG_PROB, keys.ADVANTAGE,
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
    critic = ValueModel.own(actor.model)
    mine = {id(p) for p in (*actor.parameters(), *critic.parameters())}
    assert {id(p) for p in PPOLoss(actor, critic).parameters()} == mine
    head = ValueModel.on(actor.model)
    assert len(list(head.parameters())) == 2


def with_values(data: TensorDict) -> TensorDict:
    g = torch.Generator().manual_seed(5)
    mask = data[keys.RESPONSE_MASK]
    value = torch.randn(mask.shape, generator=g).masked_fill(~mask, 0.0)
    advantage, target = gae(torch.randn(len(data), generator=g), value, mask)
    return data.set("value", value).set("value_target", target).set(keys.ADVANTAGE, advantage)


LOSSES = {
    "grpo": lambda actor: GRPOLoss(actor),
    "everything": lambda actor: GRPOLoss(actor, kl_weight=0.1, entropy_weight=0.1, correction="mis"),
    "m2po": lambda actor: M2POLoss(actor),
    "m2po authors": lambda actor: M2POLoss(actor, variant="authors"),
    "ppo": lambda actor: PPOLoss(actor, ValueModel.own(actor.model)),
}


def batch_for(actor) -> TensorDict:
    data = with_values(episodes(actor))
    return data.set("reference_log_prob", data[keys.LOG_PROB] - 0.1 * data[keys.RESPONSE_MASK])


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_reads_and_writes_what_it_declares(actor, name):
    loss, data = LOSSES[name](actor), batch_for(actor)
    out = loss(data)
    assert set(out.keys()) == set(loss.out_keys)
    total = sum(value for key, value in out.items() if key.startswith("loss_"))
    total.backward()
    assert all(torch.isfinite(value) for value in out.values())
    assert not any(value.requires_grad for key, value in out.items() if not key.startswith("loss_"))
    for key in loss.in_keys:
        with pytest.raises(KeyError, match=f"needs {key}"):
            loss(data.exclude(key))


def test_the_terms_are_those_of_the_pure_functions(actor):
    data = batch_for(actor)
    out = GRPOLoss(actor, kl_weight=0.1, entropy_weight=0.2, reduction="token")(data)
    now = actor.response_log_probs(data[keys.TOKENS], data[keys.PROMPT_LENGTH], data[keys.LENGTH])
    mask = data[keys.RESPONSE_MASK]
    kl = masked_mean(kl_to_reference(now.log_prob, data["reference_log_prob"], mask), mask)
    # the loss packs rows that share a prompt; sums in another order
    assert float(out["loss_kl"]) == pytest.approx(0.1 * float(kl), rel=1e-4)
    assert float(out["loss_entropy"]) == pytest.approx(-0.2 * float(masked_mean(now.entropy, mask)), rel=1e-4)


def test_the_entropy_bonus_raises_the_entropy(actor):
    data = batch_for(actor)
    data[keys.ADVANTAGE] = torch.zeros_like(data[keys.ADVANTAGE])
    actor.model.zero_grad()
    out = GRPOLoss(actor, entropy_weight=1.0)(data)
    (out["loss_objective"] + out["loss_entropy"]).backward()
    kept = [p.detach().clone() for p in actor.model.parameters()]
    with torch.no_grad():
        for p in actor.model.parameters():
            p -= 0.01 * p.grad
    after = float(GRPOLoss(actor)(data)["entropy"])
    with torch.no_grad():
        for p, old in zip(actor.model.parameters(), kept, strict=True):
            p.copy_(old)
    assert after > float(out["entropy"])


def test_a_critic_fits_returns_and_is_clipped(actor):
    critic = ValueModel.own(actor.model)
    loss, data = PPOLoss(actor, critic, value_clip=0.1), batch_for(actor)
    mask = data[keys.RESPONSE_MASK]
    assert float(loss.values(data).abs().max()) == 0.0, "a new critic expects nothing"
    target = data["value_target"]
    data["value"] = torch.zeros_like(target)
    want = 0.5 * masked_mean(target.square() / 2, mask)
    assert float(loss(data)["loss_critic"]) == pytest.approx(float(want), rel=1e-5)
    assert float(loss(data)["explained_variance"]) == pytest.approx(0.0, abs=1e-5)
    optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
    free = PPOLoss(actor, critic, value_clip=None)
    for _ in range(60):
        optimizer.zero_grad()
        free(data)["loss_critic"].backward()
        optimizer.step()
    assert float(free(data)["explained_variance"]) > 0.5


def test_values_stand_before_each_token_and_after_the_last(actor):
    critic = ValueModel.on(actor.model)
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(0))
    tokens, prompt_length, length, group = batch()
    for more in ({}, {"group": group}):
        values = critic.values(tokens, prompt_length, length, **more)
        assert values.shape == (tokens.shape[0], tokens.shape[1] + 1)
        for n in (0, 5, 11):
            hidden = actor.model.model(input_ids=tokens[n : n + 1, : int(length[n])]).last_hidden_state[0]
            whole = critic.head(hidden).squeeze(-1)
            start, end = int(prompt_length[n]), int(length[n])
            torch.testing.assert_close(
                values[n, start : end + 1], whole[start - 1 : end], rtol=1e-4, atol=1e-4
            )
            assert float(values[n, end + 1 :].abs().sum()) == 0.0


# What is wrong with a batch is said


@pytest.mark.parametrize(
    ("key", "change", "says"),
    [
        (keys.ADVANTAGE, lambda x: x[:-1], r"advantage must be \[N, S\] with tokens \[12, 20\], got \[11\]"),
        (keys.LOG_PROB, lambda x: x[:, :-1], "log_prob must be"),
        (keys.LOG_PROB, lambda x: x * torch.nan, "not finite at a response token"),
        (keys.LOG_PROB, lambda x: x - torch.inf, "not finite at a response token"),
        (keys.LOG_PROB, lambda x: x.exp(), "at most 0"),
        (keys.ADVANTAGE, lambda x: x / 0, "advantage holds a number that is not finite"),
        (keys.LENGTH, lambda x: x[:, None].expand(12, 2), r"length must be \[N\] or \[N, 1\]"),
    ],
)
def test_a_batch_that_cannot_be_trained_is_refused(actor, key, change, says):
    data = TensorDict(dict(episodes(actor).items()), [])
    data[key] = change(data[key])
    with pytest.raises(ValueError, match=says):
        GRPOLoss(actor)(data)


def test_infinite_numbers_in_the_padding_do_not_matter(actor):
    data = episodes(actor)
    want = GRPOLoss(actor)(data)["loss_objective"]
    data[keys.LOG_PROB] = data[keys.LOG_PROB].masked_fill(~data[keys.RESPONSE_MASK], torch.nan)
    assert float(GRPOLoss(actor)(data)["loss_objective"].detach()) == float(want.detach())


def test_a_constant_reduction_wants_the_limit(actor):
    with pytest.raises(ValueError, match="give max_tokens="):
        GRPOLoss(actor, reduction="constant")(episodes(actor))


def test_a_negative_entropy_weight_lowers_the_entropy(actor):
    """The gradient is there for either sign."""
    gradients = []
    for weight in (0.3, -0.3):
        actor.model.zero_grad()
        GRPOLoss(actor, entropy_weight=weight)(episodes(actor))["loss_entropy"].backward()
        gradients.append(torch.cat([p.grad.flatten() for p in actor.model.parameters()]))
    assert float(gradients[0].abs().max()) > 0
    torch.testing.assert_close(gradients[0], -gradients[1])


def test_a3po_in_a_loop_of_ones_own(actor):
    data = episodes(actor)
    data[keys.VERSION] = torch.full_like(data[keys.TOKENS], 3)
    loss = GRPOLoss(actor, correction="a3po")
    with pytest.raises(ValueError, match="proximal and current"):
        loss(data)
    got = loss(data, versions=(5.0, 5.0))["loss_objective"]
    assert float(got) == pytest.approx(
        float(GRPOLoss(actor, correction="decoupled")(data)["loss_objective"]), rel=1e-5
    )


def test_rules_of_ones_own(actor):
    mine = Correction((Rule("truncate", high=1.0),), decoupled=True)
    got = GRPOLoss(actor, correction=mine)(episodes(actor))["loss_objective"]
    theirs = GRPOLoss(actor, correction="tis")(episodes(actor))["loss_objective"]
    assert float(got) != pytest.approx(float(theirs), rel=1e-3)


def test_settings_that_are_none_are_refused(actor):
    with pytest.raises(ValueError, match="takes the place of a clip"):
        GRPOLoss(actor, surrogate="gspo", correction="dppo")
    with pytest.raises(ValueError, match="use the correction none"):
        M2POLoss(actor, correction="tis")
    with pytest.raises(ValueError, match="choose clip, dual_clip, gspo"):
        GRPOLoss(actor, surrogate="ppo")
    with pytest.raises(TypeError, match="budgets"):
        M2POLoss(actor, budgets=1)


# With TorchRL's own parts


def make_rollout(num_envs: int = 32, group_size: int = 4):
    from atrl_envs import make

    env = make("atrl/Addition-v0", num_envs=num_envs, group_size=group_size, block_size=8, low=0, high=4)
    model, vocab = models.load("tiny", tiny=TinyConfig(layers=2, width=64, heads=2))
    policy = TransformersPolicy(model, vocab, block_size=8, max_new_tokens=env.max_new_tokens)
    warm = WarmupConfig(batch_size=32, learning_rate=2e-3, until=0.3, anneal_steps=20, weight_decay=0.1)
    warm_up(policy, env.bank, warm, steps=400, seed=0)
    return env, policy


def test_our_loss_in_a_torchrl_loop_with_its_collector_and_its_buffer():
    from torchrl.collectors import Collector
    from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer

    env, policy = make_rollout(num_envs=64, group_size=8)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(128), sampler=SamplerWithoutReplacement(), batch_size=128
    )
    loss = GRPOLoss(policy)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    collector = Collector(env, policy, frames_per_batch=128, total_frames=128 * 80)
    assemble, success = EpisodeAssembler(), []
    for rollout in collector:
        done = assemble(rollout)
        order = (done[keys.GROUP] * 8 + done[keys.MEMBER]).argsort()
        done = done[order]
        whole = done[keys.GROUP].unique(return_counts=True)[1].eq(8).all()
        assert bool(whole), "every slot ends within a rollout here"
        done[keys.ADVANTAGE] = group_relative(done[keys.REWARD], 8)
        success.append(float(done[keys.REWARD].mean()))
        buffer.empty()
        buffer.extend(done)
        for _ in range(len(done) // 128):
            out = loss(buffer.sample())
            optimizer.zero_grad()
            out["loss_objective"].backward()
            optimizer.step()
    collector.shutdown()
    assert sum(success[-10:]) / 10 > sum(success[:10]) / 10 + 0.25


def test_torchrls_own_loss_takes_batches_of_our_buffer():
    from torchrl.objectives.llm import GRPOLoss as TheirGRPOLoss

    from atrl_collectors import StalenessPolicy, make_buffer, make_collector

    env, policy = make_rollout()
    rules = StalenessPolicy(prompts_per_batch=8, samples_per_prompt=4)
    buffer = make_buffer(rules, env.sequence_length)
    with make_collector(env, policy, buffer=buffer) as collector:
        collector.advance(0)
        data = buffer.sample()
    data[keys.ADVANTAGE] = group_relative(data[keys.REWARD], 4)
    g = torch.Generator().manual_seed(0)
    noise = 0.4 * torch.randn(data[keys.LOG_PROB].shape, generator=g)
    data[keys.LOG_PROB] = (data[keys.LOG_PROB] - noise.abs()).masked_fill(~data[keys.RESPONSE_MASK], 0.0)
    ours = GRPOLoss(policy, reduction="token")
    theirs = TheirGRPOLoss(policy, entropy_bonus=False)
    theirs.set_keys(action=keys.TOKENS, sample_log_prob=keys.LOG_PROB, advantage="theirs")
    data["theirs"] = data[keys.ADVANTAGE][:, None, None].expand(*data[keys.TOKENS].shape, 1)
    gradients, values = [], []
    for loss in (ours, theirs):
        policy.model.zero_grad()
        value = loss(data).get("loss_objective")
        value.backward()
        values.append(float(value.detach()))
        gradients.append(torch.cat([p.grad.flatten() for p in policy.model.parameters()]))
    assert values[0] == pytest.approx(values[1], rel=1e-4)
    # float32 forwards in other shapes
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4 * float(gradients[0].abs().max()))


# What a micro-batch is given besides


@pytest.mark.parametrize("variant", ["paper", "authors", "areal", "ratio"])
def test_what_is_kept_outside_the_response_changes_nothing(actor, variant):
    data = batch_for(actor)
    loss = M2POLoss(actor, variant=variant)
    mask = data["response_mask"]
    limit = torch.full((len(data),), 10.0)
    one = loss(data.clone().update({"kept": mask, "limit": limit}))
    two = loss(data.clone().update({"kept": torch.ones_like(mask), "limit": limit}))
    assert float(one["loss_objective"]) == float(two["loss_objective"])


@pytest.mark.parametrize("variant", ["paper", "authors", "areal", "ratio"])
def test_nothing_is_broadcast(actor, variant):
    data = batch_for(actor)
    loss = M2POLoss(actor, variant=variant)
    narrow = torch.ones(len(data), 1, dtype=torch.bool)
    with pytest.raises(ValueError, match="kept must be"):
        loss(data.clone().update({"kept": narrow, "limit": torch.ones(len(data))}))
    if variant == "authors":
        with pytest.raises(ValueError, match="limit that goes with kept"):
            loss(data.clone().update({"kept": data["response_mask"]}))
    with pytest.raises(ValueError, match="must be bool"):
        loss(data.clone().update({"response_mask": data["response_mask"].float()}))


@pytest.mark.parametrize("rubbish", [float("nan"), float("inf"), 5.0])
def test_numbers_that_are_none_are_refused_in_optional_entries_too(actor, rubbish):
    data = batch_for(actor)
    data["proximal_log_prob"] = torch.full_like(data["log_prob"], rubbish)
    with pytest.raises(ValueError, match="proximal_log_prob"):
        GRPOLoss(actor, correction="decoupled")(data)


def test_entries_that_are_used_where_they_are_there_are_named(actor):
    data = batch_for(actor)
    loss = M2POLoss(actor, budget=1e-4)
    data["kept"] = data["response_mask"]
    chosen = data.select(*loss.in_keys, *loss.optional_keys, strict=False)
    assert float(loss(chosen)["kept_fraction"]) == float(loss(data)["kept_fraction"]) == 1.0
    assert "proximal_log_prob" in GRPOLoss(actor, correction="tis").optional_keys


@pytest.mark.parametrize(
    "settings",
    [
        {"clip_low": -0.5}, {"clip_high": float("nan")}, {"surrogate": "dual_clip", "dual_limit": -1.0},
        {"kl_weight": -1.0}, {"surrogate": "cispo", "cispo_low": 6.0, "cispo_high": 5.0},
        {"reduction": "constant", "max_tokens": 0}, {"surrogate": "m2po", "variant": "areal", "correction": "a3po"},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match=r"must be at least|is above|of no policy"):
        Objective(**settings)
