"""One update of every algorithm: the same however the batch is cut or spread, and exactly what is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from tensordict import TensorDict

from atrl_agents import models
from atrl_agents.config import ALGORITHMS, TrainConfig
from atrl_agents.evaluate import collect
from atrl_agents.learner import Diverged, Learner
from atrl_agents.workers import EnvRecipe, sampling_policy
from atrl_envs import keys
from tests.agents.test_train import SMALL

SHARED = {
    name: getattr(SMALL, name) for name in ("env", "tiny", "optim", "prompts_per_batch", "samples_per_prompt")
}
ALL = [
    *sorted(ALGORITHMS),
    "m2po authors", "m2po areal", "m2po ratio", "ppo head", "grpo kl and entropy", "grpo mis", "grpo dppo",
    "grpo batch", "grpo dual", "m2po areal decoupled", "m2po ratio sequence", "m2po kl",
]  # fmt: skip
# Gradients of a float32 model are sums of some thousand terms; in another order their last digits differ.
ORDER = {"rtol": 1e-4, "atol": 2e-6}


def config_of(name: str, **changes: Any) -> TrainConfig:
    word, _, more = name.partition(" ")
    kind = ALGORITHMS[word]
    config = kind(**SHARED, mode="sync", steps=10)
    settings: dict[str, Any] = {
        "authors": {"variant": "authors"},
        "areal": {"variant": "areal"},
        "ratio": {"variant": "ratio", "gamma": 1.2},
        "head": {"critic": "head"},
        "kl and entropy": {"kl_weight": 0.1, "entropy_weight": 0.05, "kl_estimator": "unbiased_k3"},
        "mis": {"correction": "mis"},
        "dppo": {"correction": "dppo"},
        "batch": {"advantage": "batch"},
        "dual": {"surrogate": "dual_clip", "dual_limit": 1.1},
        "areal decoupled": {"variant": "areal", "correction": "decoupled"},
        "ratio sequence": {"variant": "ratio", "gamma": 1.2, "reduction": "sequence"},
        "kl": {"variant": "areal", "kl_weight": 0.1, "entropy_weight": 0.05},
    }.get(more, {})
    return replace(config, loss=replace(config.loss, **settings), **changes)


def learner_and_batch(config: TrainConfig, groups: int = 8) -> tuple[Learner, TensorDict]:
    """A learner whose model is not the one that sampled, and rewards with contrast in most groups."""
    model, vocab = models.load("tiny", tiny=config.tiny)
    env = EnvRecipe(config, vocab)()
    actor = sampling_policy(model, vocab, config, env.max_new_tokens)
    batch = collect(env, actor, groups=groups)
    g = torch.Generator().manual_seed(0)
    batch[keys.REWARD] = torch.randint(2, (len(batch),), generator=g).float()
    batch[keys.REWARD][:4] = 1.0  # a group without contrast
    learner = Learner(actor, config, env.max_new_tokens)
    learner.begin()
    if learner.critic is not None:  # a new head is 0 and lets no gradient through
        torch.nn.init.normal_(learner.critic.head.weight, generator=g)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 2.0 * parameter.abs().mean() * torch.randn(parameter.shape, generator=g)
    return learner, batch


def gradients(config: TrainConfig, batch: TensorDict | None = None) -> tuple[torch.Tensor, dict[str, float]]:
    """All gradients of one update as one vector, and its metrics."""
    config = replace(config, optim=replace(config.optim, grad_clip=1e9))
    learner, made = learner_and_batch(config)
    metrics = learner.update(made if batch is None else batch)
    parameters = [p for group in learner.optimizer.param_groups for p in group["params"]]
    return torch.cat([p.grad.flatten() for p in parameters]), metrics


@pytest.fixture(scope="module", params=ALL)
def whole(request: pytest.FixtureRequest) -> tuple[str, torch.Tensor, dict[str, float]]:
    """The update of a batch in one piece."""
    return request.param, *gradients(config_of(request.param, micro_batch_tokens=1 << 20))


@pytest.mark.parametrize("cut", ["sorted", "balanced"])
@pytest.mark.parametrize("tokens", [60, 100])
def test_micro_batches_give_the_gradient_of_the_batch(
    whole: tuple[str, torch.Tensor, dict[str, float]], cut: Any, tokens: int
) -> None:
    name, gradient, metrics = whole
    got, others = gradients(config_of(name, micro_batch_tokens=tokens, micro_batches=cut))
    assert float(gradient.abs().max()) > 1e-3
    torch.testing.assert_close(got, gradient, **ORDER)
    for key in ("loss", "kept_fraction", "clip_fraction", "m2"):
        assert others[key] == pytest.approx(metrics[key], rel=1e-4, abs=1e-6), key


def test_something_is_clipped_or_dropped(whole: tuple[str, torch.Tensor, dict[str, float]]) -> None:
    """The batch is stale enough for these tests to say something about clips and masks."""
    name, _, metrics = whole
    assert metrics["m2"] > 0.01
    if "m2po" in name or name == "grpo mis":
        assert 0 < metrics["kept_fraction"] < 1
    elif name != "grpo dppo":
        assert name == "cispo" or metrics["clip_fraction"] > 0


@pytest.mark.parametrize(
    "name",
    ["grpo", "gspo", "cispo", "m2po", "m2po authors", "m2po areal", "m2po ratio", "m2po ratio sequence"],
)
def test_the_loss_module_by_itself_gives_the_gradient_of_the_learner(name: str) -> None:
    """Given the whole batch, the module finds every size and constraint for itself."""
    config = config_of(name, micro_batch_tokens=60)
    found, _ = gradients(config)
    learner, batch = learner_and_batch(config)
    batch[keys.ADVANTAGE] = learner.advantage(batch[keys.REWARD], batch[keys.SCORED])
    learner.loss(batch)["loss_objective"].backward()
    alone = torch.cat([p.grad.flatten() for p in learner.model.parameters()])
    torch.testing.assert_close(found, alone, **ORDER)


def test_groups_without_contrast_add_nothing() -> None:
    """Leaving them out changes no gradient: the same batch, with their rows as well."""
    config = config_of("grpo", micro_batch_tokens=1 << 20)
    learner, batch = learner_and_batch(config)
    learner.update(batch.clone())
    without = torch.cat([p.grad.flatten() for p in learner.model.parameters()])
    learner, batch = learner_and_batch(config)
    learner._contrast = lambda batch: torch.ones(8, dtype=torch.bool)  # type: ignore[method-assign]
    learner.update(batch.clone())
    with_them = torch.cat([p.grad.flatten() for p in learner.model.parameters()])
    torch.testing.assert_close(without, with_them, **ORDER)


@pytest.mark.parametrize("name", ["grpo", "ppo", "m2po", "grpo kl and entropy"])
def test_responses_that_could_not_be_judged_train_nothing(name: str) -> None:
    config = config_of(name, micro_batch_tokens=1 << 20)
    _, batch = learner_and_batch(config)
    batch[keys.SCORED][5] = False
    one, _ = gradients(config, batch)
    batch[keys.REWARD][5] = 1 - batch[keys.REWARD][5]
    batch[keys.LOG_PROB][5] -= 1.0
    two, _ = gradients(config, batch)
    torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_truncated_responses_can_be_left_out_and_stay_in_the_baseline() -> None:
    config = config_of("grpo")
    config = replace(config, loss=replace(config.loss, mask_truncated=True))
    _, batch = learner_and_batch(config)
    batch[keys.TRUNCATED][:] = False
    batch[keys.TRUNCATED][5] = True
    batch[keys.REWARD][4:8] = torch.tensor([1.0, 0.0, 0.0, 1.0])
    before, _ = gradients(config, batch)
    changed = batch.clone()
    changed[keys.LOG_PROB][5] -= 1.0
    assert torch.equal(before, gradients(config, changed)[0]), "its own tokens train nothing"
    changed = batch.clone()
    changed[keys.REWARD][5] = 1.0
    assert not torch.equal(before, gradients(config, changed)[0]), "the others are compared with it"
    contrast = gradients(config, batch)[1]["contrast_fraction"]
    batch[keys.TRUNCATED][4:8] = True
    assert gradients(config, batch)[1]["contrast_fraction"] == contrast - 1 / 8, "nothing of it is trained"


def test_ppo_needs_no_group() -> None:
    config = replace(config_of("ppo"), samples_per_prompt=1, prompts_per_batch=16)
    found = [gradients(replace(config, micro_batch_tokens=tokens))[0] for tokens in (1 << 20, 60)]
    assert float(found[0].abs().max()) > 1e-3
    torch.testing.assert_close(*found, **ORDER)


def test_several_steps_on_a_batch_clip_against_where_they_began() -> None:
    """By the second step the ratio to the proximal weights has left 1, and to the behaviour it always had."""
    config = config_of("grpo", epochs=3, micro_batch_tokens=100)
    config = replace(
        config,
        loss=replace(config.loss, correction="decoupled", clip_low=0.01, clip_high=0.01),
        optim=replace(config.optim, learning_rate=0.02, ramp_steps=1),
    )
    learner, batch = learner_and_batch(config)
    wanted = learner._log_probs(batch, learner.model, torch.ones(8, dtype=torch.bool))
    seen, clipped = [], []
    outcome = learner.loss.outcome

    def watch(part: Any, *rest: Any) -> Any:
        found = outcome(part, *rest)
        seen.append(part)
        clipped.append(float(found.sums.clipped))
        return found

    learner.loss.outcome = watch  # type: ignore[method-assign]
    before = torch.cat([p.detach().flatten() for p in learner.model.parameters()])
    learner.update(batch)
    assert not torch.equal(before, torch.cat([p.detach().flatten() for p in learner.model.parameters()]))
    assert learner.updates == 1
    third = len(seen) // 3
    assert len(seen) == 3 * third
    for part in seen:
        rows = [int(((batch[keys.GROUP] == g) & (batch[keys.MEMBER] == m)).nonzero()) for g, m in zip(
            part[keys.GROUP].tolist(), part[keys.MEMBER].tolist(), strict=True)]  # fmt: skip
        width = part[keys.TOKENS].shape[1]
        torch.testing.assert_close(part["proximal_log_prob"], wanted[rows][:, :width], rtol=1e-5, atol=1e-5)
    assert sum(clipped[:third]) == 0.0
    assert sum(clipped[third : 2 * third]) > 0.0


def test_the_callers_batch_is_left_alone() -> None:
    learner, batch = learner_and_batch(config_of("ppo"))
    before = batch.clone()
    learner.update(batch)
    assert set(batch.keys()) == set(before.keys())
    assert bool((batch == before).all())


def test_a_state_goes_on_where_it_stopped() -> None:
    """Critic and reference are part of the state."""
    for name in ("ppo", "ppo head", "grpo kl and entropy"):
        config = config_of(name)
        learner, batch = learner_and_batch(config)
        learner.update(batch)
        other, _ = learner_and_batch(config)
        other.model.load_state_dict(learner.model.state_dict())
        other.load_state_dict(learner.state_dict())
        assert learner.update(batch) == other.update(batch)


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_a_resumed_run_takes_the_optimiser_settings_given_now(name: str) -> None:
    config = config_of(name)
    learner, batch = learner_and_batch(config)
    learner.update(batch)
    state = learner.state_dict()
    for group in state["optimizer"]["param_groups"]:
        group.pop("peak")  # a checkpoint of an earlier version
    optim = replace(config.optim, learning_rate=0.25, weight_decay=0.5, eps=1e-6, betas=(0.5, 0.75))
    other, _ = learner_and_batch(replace(config, optim=optim))
    other.load_state_dict(state)
    for group in other.optimizer.param_groups:
        assert group["peak"] == 0.25
        assert (group["weight_decay"], group["eps"], tuple(group["betas"])) == (0.5, 1e-6, (0.5, 0.75))
    assert other.update(batch)["learning_rate"] == pytest.approx(other.optimizer.param_groups[0]["lr"])
    assert other.optimizer.state_dict()["state"], "the moments are those of the run"


def test_reinforcement_learning_begins_with_the_warm_weights() -> None:
    learner, _ = learner_and_batch(config_of("ppo"))
    assert learner.critic is not None
    weights = dict(learner.model.named_parameters())
    before = {name: p.clone() for name, p in learner.critic.trunk.named_parameters()}
    assert any(not torch.equal(before[name], weights[name]) for name in before)
    learner.begin()
    assert all(torch.equal(p, weights[name]) for name, p in learner.critic.trunk.named_parameters())
    learner, _ = learner_and_batch(config_of("grpo kl and entropy"))
    learner.begin()
    assert all(
        torch.equal(p, q)
        for p, q in zip(learner.reference.parameters(), learner.model.parameters(), strict=True)
    )


# Ranks


def _rank(rank: int, folder: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    cuts = [(0, 20), (20, 32)]  # groups 0 to 4, and 5 to 7
    found = {}
    for name in names:
        config = config_of(name, micro_batch_tokens=100)
        _, batch = learner_and_batch(config)
        found[name] = gradients(config, batch[cuts[rank][0] : cuts[rank][1]])[0]
    config = config_of("grpo")
    learner, batch = learner_and_batch(config)
    part = batch[cuts[rank][0] : cuts[rank][1]]
    if rank == 1:
        part[keys.REWARD][0] = torch.inf
    try:
        learner.update(part)
    except Diverged:  # on both, though one has nothing wrong
        found["stopped"] = torch.ones(1)
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_ranks_have_the_gradient_of_one(tmp_path: Path) -> None:
    names = [name for name in ALL if name != "grpo dual"]
    torch.multiprocessing.spawn(_rank, args=(str(tmp_path), names), nprocs=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert "stopped" in found
        for name in names:
            want, _ = gradients(config_of(name, micro_batch_tokens=1 << 20))
            torch.testing.assert_close(found[name], want, **ORDER)
