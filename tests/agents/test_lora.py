"""LoRA runs: what is trained, sent and saved is the adapter; everything else is the base, wherever it is loaded."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from atrl_agents import cli, lora, models
from atrl_agents.complaints import ConfigError
from atrl_agents.config import GRPOConfig, LoRAConfig, PPOConfig, TrainConfig
from atrl_agents.config_check import check
from atrl_agents.learner import Learner
from atrl_agents.loss_config import GRPOLossConfig, PPOLossConfig
from atrl_agents.train import Run, train
from atrl_agents.training_pass import training_pass
from atrl_agents.workers import PolicyRecipe
from atrl_collectors.weights import WeightMailbox
from tests.agents.test_train import SMALL, rows

IDS = torch.tensor([[20, 14, 21, 32, 5]])


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A small model that is right now and then, as a folder: what people call a pretrained model."""
    folder = tmp_path_factory.mktemp("base")
    train(replace(SMALL, steps=0, eval_problems=1, out=folder / "run"))
    shutil.move(folder / "run" / "checkpoint", folder / "model")
    (folder / "model" / "trainer_state.pt").unlink()
    return folder / "model"


@pytest.fixture(scope="module")
def adapted(base) -> GRPOConfig:
    return replace(SMALL, model=str(base), lora=LoRAConfig(r=4, dropout=0.1), warmup_steps=0)


@pytest.fixture(scope="module")
def sync_run(adapted, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "sync"
    train(replace(adapted, out=folder))
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint" / "adapter_model.safetensors")


def assert_same_adapter(one: Path, two: Path) -> None:
    a, b = weights(one), weights(two)
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different, f"differ: {different}"


def stopped_after(monkeypatch, step: int, config: TrainConfig) -> None:
    one_step = Run._one_step

    def ask_to_stop(self):
        one_step(self)
        self.interrupts.asked = self.step == step

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_one_step", ask_to_stop)
        assert train(config)["steps"] == step


def test_a_checkpoint_is_an_adapter_that_everybody_loads(sync_run, base):
    from peft import PeftModel

    checkpoint = sync_run / "checkpoint"
    names = {path.name for path in checkpoint.iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names
    assert "model.safetensors" not in names
    saved = json.loads((checkpoint / "adapter_config.json").read_text())
    assert saved["base_model_name_or_path"] == str(base.resolve())
    assert sorted(saved["target_modules"]) == [
        "down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"
    ]  # fmt: skip
    assert all(bool(tensor.any()) for name, tensor in weights(sync_run).items()), "all of it was trained"
    ours, vocab = models.load(str(checkpoint))
    plain = AutoModelForCausalLM.from_pretrained(base).eval()
    expected = ours(IDS).logits
    assert not torch.allclose(plain(IDS).logits, expected, atol=1e-4)
    torch.testing.assert_close(AutoModelForCausalLM.from_pretrained(checkpoint).eval()(IDS).logits, expected)
    torch.testing.assert_close(PeftModel.from_pretrained(plain, checkpoint).eval()(IDS).logits, expected)
    assert AutoTokenizer.from_pretrained(checkpoint).vocab_size == vocab.size


def test_only_the_adapter_travels_and_the_worker_finds_the_base(adapted, sync_run, tmp_path, monkeypatch):
    seen: list[dict[str, torch.Tensor]] = []

    publish = WeightMailbox.publish

    def spy(self, tensors, version):
        seen.append(dict(tensors))
        return publish(self, tensors, version)

    monkeypatch.setattr(WeightMailbox, "publish", spy)
    summary = train(replace(adapted, mode="async", max_staleness=0, out=tmp_path / "async"))
    assert summary["staleness_max"] == 0 and len(seen) == adapted.steps + 1
    assert "model.layers.0.self_attn.q_proj.lora_A.default.weight" in seen[0]
    assert all(".lora_A.default." in name or ".lora_B.default." in name for name in seen[0])
    assert_same_adapter(sync_run, tmp_path / "async")
    summary = train(replace(adapted, mode="async", max_staleness=2, steps=8, out=tmp_path / "stale"))
    assert 0 < summary["staleness_max"] <= 2


def test_a_worker_that_finds_another_base_says_so(adapted, base, tmp_path):
    model, vocab = models.begin(adapted)
    mailbox = WeightMailbox.create(tmp_path / "mailbox", lora.trainable(model))
    recipe = PolicyRecipe.of(adapted, model, vocab, 6, mailbox)
    assert recipe().model is not model
    other = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-3
    other.save_pretrained(tmp_path / "other")
    vocab.tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(ConfigError, match="another model from .*other"):
        replace(recipe, base=str(tmp_path / "other"))()


@pytest.mark.parametrize(
    "config",
    [
        GRPOConfig(loss=GRPOLossConfig(kl_weight=0.01)),
        PPOConfig(loss=PPOLossConfig(critic="own")),
        PPOConfig(loss=PPOLossConfig(critic="head", kl_weight=0.01), epochs=2),
    ],
    ids=["grpo with a reference", "ppo", "ppo head with a reference"],
)
def test_resume_continues_bit_for_bit(adapted, tmp_path, monkeypatch, config):
    shared = {field.name: getattr(adapted, field.name) for field in fields(adapted)}
    config = type(config)(**(shared | {"loss": config.loss, "epochs": config.epochs}))
    train(replace(config, out=tmp_path / "whole"))
    stopped_after(monkeypatch, 3, replace(config, out=tmp_path / "halves"))
    train(replace(config, out=tmp_path / "halves", resume=True))
    assert_same_adapter(tmp_path / "whole", tmp_path / "halves")
    for whole, halves in zip(rows(tmp_path / "whole")[1:], rows(tmp_path / "halves")[1:], strict=False):
        assert (whole["step"], whole["loss"]) == (halves["step"], halves["loss"])


def test_the_checkpoint_of_a_critic_holds_what_is_trained(adapted, tmp_path):
    loss = PPOLossConfig(critic="own", critic_learning_rate=1e-2)
    shared = {field.name: getattr(adapted, field.name) for field in fields(adapted)}
    train(PPOConfig(**(shared | {"loss": loss, "steps": 2, "out": tmp_path / "ppo"})))
    state = torch.load(tmp_path / "ppo" / "checkpoint" / "trainer_state.pt", weights_only=True)["learner"]
    assert "reference" not in state
    assert all("lora" in name or name.startswith("head.") for name in state["critic"])
    assert (
        state["critic"]["head.weight"].any()
        and "trunk.model.layers.0.mlp.up_proj.lora_B.default.weight" in state["critic"]
    )


def learner_of(config: TrainConfig) -> Learner:
    from atrl_agents.workers import sampling_policy

    model, vocab = models.begin(config)
    return Learner(sampling_policy(model, vocab, config, max_new_tokens=4), config, max_new_tokens=4)


def test_the_reference_is_the_base_and_no_second_copy(adapted, base):
    learner = learner_of(replace(adapted, loss=GRPOLossConfig(kl_weight=0.1)))
    assert learner.reference is None
    plain = AutoModelForCausalLM.from_pretrained(base).eval()
    with torch.no_grad():
        for parameter in lora.trainable(learner.model).values():
            parameter.normal_(0, 0.1)
        with lora.disabled(learner.model):
            torch.testing.assert_close(learner.model(IDS).logits, plain(IDS).logits, rtol=0, atol=0)
        assert not torch.allclose(learner.model(IDS).logits, plain(IDS).logits, atol=1e-3)
    assert lora.trainable(learner.model), "they are trained again afterwards"


def test_a_critic_of_its_own_shares_the_frozen_weights(adapted):
    shared = {field.name: getattr(adapted, field.name) for field in fields(adapted)}
    learner = learner_of(PPOConfig(**(shared | {"loss": PPOLossConfig(critic="own")})))
    ours, theirs = dict(learner.model.named_parameters()), dict(learner.critic.trunk.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        assert (theirs[name] is parameter) == (not parameter.requires_grad), name


def test_dropout_is_a_function_of_seed_and_update_and_stays_out_of_rollouts(adapted):
    model, _ = models.begin(adapted)
    with torch.no_grad():
        for parameter in lora.trainable(model).values():
            parameter.normal_(0, 0.1)
    still = model(IDS).logits

    def dropped(seed: int, number: int) -> torch.Tensor:
        with training_pass([model], seed=seed, number=number):
            return model(IDS).logits

    before = torch.random.get_rng_state()
    first = dropped(0, 1)
    assert torch.equal(torch.random.get_rng_state(), before), "nobody else's noise is drawn from"
    torch.rand(3)
    assert torch.equal(dropped(0, 1), first)
    assert not torch.equal(dropped(0, 2), first) and not torch.equal(dropped(1, 1), first)
    assert not torch.equal(first, still) and torch.equal(model(IDS).logits, still)


def test_evaluation_of_a_checkpoint(sync_run, capsys, tmp_path):
    assert cli.main(["eval", str(sync_run), "--problems", "10", "--out", str(tmp_path / "result.json")]) == 0
    found = json.loads((tmp_path / "result.json").read_text())["greedy"]["accuracy"]
    assert found == json.loads((sync_run / "summary.json").read_text())["accuracy_after"]


def test_a_base_that_is_gone_is_named(adapted, tmp_path):
    shutil.copytree(adapted.model, tmp_path / "base")
    config = replace(adapted, model=str(tmp_path / "base"), steps=1, out=tmp_path / "run")
    train(config)
    (tmp_path / "base").rename(tmp_path / "elsewhere")
    with pytest.raises(
        ConfigError, match=f"base model {tmp_path / 'base'} is not there any more; put it back, or"
    ):
        models.load(str(tmp_path / "run" / "checkpoint"))
    moved = replace(config, model=str(tmp_path / "elsewhere"), steps=2, resume=True)
    with pytest.raises(ConfigError, match="base model .* is not there any more"):
        train(moved)
    written = tmp_path / "run" / "checkpoint" / "adapter_config.json"
    written.write_text(written.read_text().replace(str(tmp_path / "base"), str(tmp_path / "elsewhere")))
    assert train(moved)["steps"] == 2


def test_an_adapter_of_another_model_is_refused(sync_run, base, tmp_path):
    shutil.copytree(sync_run / "checkpoint", tmp_path / "adapter")
    other = models.load("tiny")[0]
    with pytest.raises(ConfigError, match="does not fit Qwen2ForCausalLM"):
        lora.load(other, tmp_path / "adapter")


def test_a_resumed_run_keeps_its_adapter(adapted, sync_run, tmp_path):
    shutil.copytree(sync_run, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"--lora settings .*'r': 8.* began with .*'r': 4"):
        train(replace(adapted, lora=LoRAConfig(r=8), out=tmp_path / "run", resume=True))


def test_settings_that_do_not_go_together(adapted, sync_run):
    for changes, message in (
        ({"model": "tiny"}, "begins with random weights; leave --lora.r out"),
        ({"lora": LoRAConfig(dropout=0.1)}, "add --lora.r 8"),
        ({"lora": LoRAConfig(r=-1)}, "--lora.r -1"),
        ({"lora": LoRAConfig(r=4, alpha=0.0)}, "--lora.alpha 0.0"),
        ({"lora": LoRAConfig(r=4, dropout=1.0)}, "--lora.dropout 1.0"),
        ({"loss": GRPOLossConfig(kl_weight=0.1), "warmup_steps": 10}, "add --warmup-steps 0"),
        ({"model": str(sync_run / "checkpoint")}, f"atrl export {sync_run} --merge"),
        ({"model": str(sync_run)}, f"did you mean {sync_run / 'checkpoint'}"),
    ):
        with pytest.raises(ConfigError, match=message):
            check(replace(adapted, **changes))
    with pytest.raises(ConfigError, match=r"--lora.targets q_pro; .* did you mean q_proj, "):
        models.begin(replace(adapted, lora=LoRAConfig(r=4, targets=("q_pro",))))
    with pytest.raises(ConfigError, match=r"--lora.targets lm_head"):
        models.begin(replace(adapted, lora=LoRAConfig(r=4, targets=("lm_head",))))


def test_targets_and_alpha(adapted):
    model, _ = models.begin(replace(adapted, lora=LoRAConfig(r=4, targets=("v_proj", "q_proj"))))
    trained = {name.split(".")[4] for name in lora.trainable(model)}
    assert trained == {"v_proj", "q_proj"}
    assert model.model.layers[0].self_attn.q_proj.scaling == {"default": 2.0}
    model, _ = models.begin(replace(adapted, lora=LoRAConfig(r=4, alpha=2.0)))
    assert model.model.layers[0].mlp.up_proj.scaling == {"default": 0.5}
