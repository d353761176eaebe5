"""vLLM behind the interface of TransformersPolicy: the same numbers, checked publications, engines replaced."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from atrl_agents import cli, models
from atrl_agents.canary import CANARY, with_canary
from atrl_agents.config import EnvConfig, LoRAConfig, OptimConfig, TinyConfig, VLLMConfig
from atrl_agents.engine_serving import served
from atrl_agents.evaluate import Evaluator
from atrl_agents.log_probs import response_log_probs
from atrl_agents.policies.vllm_engine import EngineOptions
from atrl_agents.policies.vllm_policy import VLLMPolicy, WrongWeights
from atrl_agents.train import Run, train
from atrl_collectors.weights import WeightMailbox
from atrl_envs.vocab import Vocab
from tests.agents.slot_driver import SlotDriver
from tests.agents.test_slots import LIMIT, SIZE, prompts
from tests.agents.test_train import SMALL, rows

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]
TOLERANCE = 1e-4
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return Vocab.characters()


def make_model(vocab: Vocab, kind: str = "qwen2"):
    """A small random model with heads of size 32, the smallest that vLLM's CPU kernels know; EOS does occur."""
    torch.manual_seed(0)
    shape = dict(
        vocab_size=vocab.size, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        pad_token_id=vocab.pad_id, eos_token_id=vocab.eos_id, bos_token_id=None, attn_implementation="sdpa",
        max_position_embeddings=128,
    )  # fmt: skip
    if kind == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**shape, num_key_value_heads=2, tie_word_embeddings=True))
    else:  # grouped queries, untied embeddings
        model = LlamaForCausalLM(LlamaConfig(**shape, num_key_value_heads=1, tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.2)
        model.get_output_embeddings().weight[vocab.eos_id] *= 2 if kind == "qwen2" else 4
    return model.eval()


def run_episodes(policy: VLLMPolicy, vocab: Vocab, count: int = 6, seed: int = 0) -> SlotDriver:
    """Whole episodes of `count` prompts; every step is checked by the driver."""
    driver = SlotDriver(count, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
    for slot, prompt in enumerate(prompts(count, seed=seed)):
        driver.start(slot, prompt, problem=slot, group=slot)
    while not bool(driver.done.all()):
        driver.step(policy)
    return driver


def expected_log_probs(model, prompt: list[int], response: list[int], temperature: float) -> Tensor:
    ids = torch.tensor([prompt + response])
    with torch.no_grad():
        out = response_log_probs(
            model, ids, torch.tensor([len(prompt)]), torch.tensor([ids.shape[1]]), temperature=temperature
        )
    return out.log_prob[0, len(prompt) :]


def assert_says_what(model, driver: SlotDriver, temperature: float, seed: int = 0) -> None:
    """Every log-probability is that of the tempered distribution of `model`."""
    lengths = set()
    for group, prompt in enumerate(prompts(driver.slots, seed=seed)):
        response = driver.responses[(group, 0)]
        wanted = expected_log_probs(model, prompt, response, temperature)
        got = torch.tensor(driver.log_probs[(group, 0)])
        torch.testing.assert_close(got, wanted, atol=TOLERANCE, rtol=0)
        lengths.add(len(response))
    assert len(lengths) > 1, "responses of one length would not show how EOS is handled"


def weights_of(model, vocab: Vocab) -> dict[str, Tensor]:
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    return with_canary(model, weights, vocab.size)


class Served:
    """A model, its mailbox, and a policy that serves what is published."""

    def __init__(self, folder: Path, model, vocab: Vocab, **options) -> None:
        self.model, self.vocab, self.version = model, vocab, -1
        self.mailbox = WeightMailbox.create(folder / "mailbox", weights_of(model, vocab))
        r = options.pop("r", 0)
        self.policy = VLLMPolicy(
            EngineOptions(str(folder / "model"), max_model_len=64, memory_gb=1, dummy=not r, r=r),
            vocab,
            temperature=0.7,
            seed=3,
            max_new_tokens=LIMIT,
            mailbox=self.mailbox,
            names=[name for name in weights_of(model, vocab) if name != CANARY],
            **options,
        )

    def publish(self, weights: dict[str, Tensor] | None = None) -> None:
        self.version += 1
        self.mailbox.publish(weights or weights_of(self.model, self.vocab), self.version)

    def fault(self, words: str) -> None:
        """The next look at the mailbox fails with these words, and leaves the version as it is."""
        before = int(self.policy.version)
        with pytest.raises(WrongWeights, match=words):
            self.policy.take_new_weights()
        assert int(self.policy.version) == before

    def recover(self) -> None:
        self.publish()
        assert self.policy.take_new_weights() and int(self.policy.version) == self.version


def moved(model, scale: float = 0.05):
    """Trained a little: every trainable parameter has changed."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape) * scale)
    return model


@pytest.fixture(scope="module")
def whole(tmp_path_factory, vocab):
    """Whole weights are published; the folder holds a config alone, with sampling settings that must not count."""
    folder = tmp_path_factory.mktemp("whole")
    model = make_model(vocab)
    model.config.save_pretrained(folder / "model")
    sneaky = {
        "top_p": 0.5,
        "top_k": 2,
        "temperature": 0.1,
        "repetition_penalty": 1.5,
        "eos_token_id": [5, 6, 7, 8],
    }
    (folder / "model" / "generation_config.json").write_text(json.dumps(sneaky))
    served = Served(folder, model, vocab, block_size=5)
    yield served
    served.policy.close()


@pytest.fixture(scope="module")
def adapted(tmp_path_factory, vocab):
    """An adapter is published, to a Llama with untied embeddings and grouped queries."""
    folder = tmp_path_factory.mktemp("adapted")
    model = make_model(vocab, kind="llama")
    model.save_pretrained(folder / "model")
    model.add_adapter(LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS, lora_dropout=0.0))
    served = Served(folder, moved(model, 0.2), vocab, block_size=LIMIT, r=4, alpha=8.0)
    yield served
    served.policy.close()


def test_acting_before_a_publication_is_refused(whole, vocab):
    if whole.version >= 0:
        pytest.skip("something was published already")
    with pytest.raises(RuntimeError, match="before any weights"):
        run_episodes(whole.policy, vocab)


@pytest.mark.parametrize("kind", ["whole", "adapted"])
def test_log_probs_are_the_model_s_before_and_after_a_publication(kind, vocab, request):
    served = request.getfixturevalue(kind)
    before = copy.deepcopy(served.model)
    served.publish()
    first = run_episodes(served.policy, vocab)
    assert_says_what(before, first, 0.7)
    assert {v for versions in first.versions.values() for v in versions} == {served.version}
    moved(served.model, 0.1)
    served.publish()
    second = run_episodes(served.policy, vocab)
    assert_says_what(served.model, second, 0.7)
    assert {v for versions in second.versions.values() for v in versions} == {served.version}
    assert first.responses != second.responses
    with pytest.raises(AssertionError):
        assert_says_what(before, second, 0.7)
    assert int(served.policy.fingerprint) == served.mailbox.fingerprint


@pytest.mark.parametrize("kind", ["whole", "adapted"])
def test_a_half_finished_response_goes_on_with_the_new_weights_and_no_older_cache(kind, vocab, request):
    served = request.getfixturevalue(kind)
    served.recover()
    before, size = copy.deepcopy(served.model), served.policy.block_size
    served.policy.block_size = 4
    try:
        driver = SlotDriver(6, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
        texts = prompts(6)
        for slot, prompt in enumerate(texts):
            driver.start(slot, prompt, problem=slot, group=slot)
        driver.step(served.policy)
        moved(served.model, 0.1)
        served.recover()
        while not bool(driver.done.all()):
            driver.step(served.policy)
    finally:
        served.policy.block_size = size
    crossed = 0
    for slot, prompt in enumerate(texts):
        response, versions = driver.responses[(slot, 0)], driver.versions[(slot, 0)]
        old = expected_log_probs(before, prompt, response, 0.7)
        new = expected_log_probs(served.model, prompt, response, 0.7)
        wanted = torch.where(torch.tensor(versions) == served.version, new, old)
        torch.testing.assert_close(torch.tensor(driver.log_probs[(slot, 0)]), wanted, atol=TOLERANCE, rtol=0)
        crossed += len(set(versions)) > 1
    assert crossed > 0


def test_the_same_seed_gives_the_same_episodes_in_any_slot(whole, vocab):
    whole.recover()
    one = run_episodes(whole.policy, vocab).responses
    other = SlotDriver(6, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
    for slot, (group, prompt) in enumerate(reversed(list(enumerate(prompts(6))))):
        other.start(slot, prompt, problem=group, group=group)
    while not bool(other.done.all()):
        other.step(whole.policy)
    assert one == other.responses
    whole.policy.seed += 1
    assert run_episodes(whole.policy, vocab).responses != one


def test_idle_slots_and_padding_are_left_alone(whole, vocab):
    whole.recover()
    driver = SlotDriver(3, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
    driver.start(1, [5, 6], problem=0, group=0)
    out = whole.policy(driver.state.clone())
    written = out["version"] >= 0
    assert not bool(written[0].any()) and not bool(written[2].any()) and bool(written[1, 0])
    assert bool((out["action"][~written] == vocab.pad_id).all()) and bool(
        (out["log_prob"][~written] == 0).all()
    )
    assert whole.policy.sleep() is False, "on a CPU vLLM has no sleep, and nothing is done"


# -- planted faults ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["whole", "adapted"])
def test_a_version_that_is_raised_without_weights_is_caught(kind, request, vocab):
    served = request.getfixturevalue(kind)
    served.recover()
    old = {name: tensor.detach().clone() for name, tensor in weights_of(served.model, vocab).items()}
    new = weights_of(moved(served.model), vocab)
    served.publish({**old, CANARY: new[CANARY]})
    served.fault("raised without the weights")
    served.recover()


def test_an_adapter_that_is_never_applied_is_caught(adapted, monkeypatch):
    adapted.recover()
    moved(adapted.model)
    adapted.publish()
    original = type(adapted.policy.engine).add_adapter
    monkeypatch.setattr(type(adapted.policy.engine), "add_adapter", lambda *args: original(*args) and None)
    adapted.fault("the adapter was never applied")
    monkeypatch.undo()
    adapted.recover()


@pytest.mark.parametrize("kind", ["whole", "adapted"])
def test_half_the_tensors_are_caught(kind, request, vocab, tmp_path, monkeypatch):
    served = request.getfixturevalue(kind)
    served.recover()
    weights = weights_of(moved(served.model), vocab)
    kept = list(weights)[: len(weights) // 2]
    half = {name: weights[name] for name in [*kept, CANARY]}
    other = WeightMailbox.create(tmp_path / "half", half)
    other.publish(half, served.version + 1)
    monkeypatch.setattr(served.policy, "mailbox", other)
    if kind == "whole":  # the engine itself knows what a model must have
        monkeypatch.setattr(served.policy, "names", None)
    served.fault("is not whole")
    monkeypatch.undo()
    served.version += 1
    served.recover()


@pytest.mark.parametrize("kind", ["whole", "adapted"])
def test_another_worker_s_weights_are_caught_though_too_near_for_the_canary(
    kind, request, vocab, tmp_path, monkeypatch
):
    served = request.getfixturevalue(kind)
    served.recover()
    theirs = {name: tensor.detach().clone() for name, tensor in weights_of(served.model, vocab).items()}
    name = next(iter(theirs))
    theirs[name].view(-1)[0] += 1e-6
    other = WeightMailbox.create(tmp_path / "other", theirs)
    served.publish()
    other.publish(theirs, served.version)
    monkeypatch.setattr(served.policy, "_source", lambda: str(other.path))
    served.fault("another worker's weights")
    monkeypatch.undo()
    served.recover()


def test_adapters_of_older_versions_are_removed(adapted):
    for _ in range(3):
        moved(adapted.model)
        adapted.recover()
    assert adapted.policy.engine.llm.llm_engine.list_loras() == [adapted.version + 1]
    assert [path.name for path in adapted.policy._folder.iterdir()] == [f"version-{adapted.version}"]


# -- evaluation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["whole", "adapter"])
def test_an_evaluation_finds_the_same_with_either_engine(kind, tmp_path, vocab):
    """The model is right about sums of 0 by chance alone, so responses are compared, and not accuracy alone."""
    model = make_model(vocab, kind="llama")
    model.save_pretrained(tmp_path / "model")
    vocab.tokenizer.save_pretrained(tmp_path / "model")
    folder = tmp_path / "model"
    if kind == "adapter":
        folder = tmp_path / "adapter"
        model.name_or_path = str(tmp_path / "model")
        model.add_adapter(
            LoraConfig(
                r=4, lora_alpha=8, target_modules=TARGETS, base_model_name_or_path=str(tmp_path / "model")
            )
        )
        moved(model, 0.2).eval().save_pretrained(folder)
        vocab.tokenizer.save_pretrained(folder)
    env = EnvConfig("atrl/Addition-v0", kwargs={"low": 0, "high": 9}, block_size=4, max_new_tokens=6)
    loaded, speaks = models.load(str(folder))
    greedy = Evaluator(env, speaks, problems=8)
    wanted = greedy(loaded)
    longest = greedy.env.sequence_length
    settings = {"block_size": 4, "max_new_tokens": 6, "greedy": True}
    with served(
        loaded, speaks, VLLMConfig(memory_gb=1), max_model_len=longest, max_rows=8, **settings
    ) as policy:
        found = greedy.measure(policy)
    assert torch.equal(found.episodes["tokens"], wanted.episodes["tokens"])
    assert found.to_dict() == wanted.to_dict()


def test_the_command_evaluates_by_vllm(tmp_path, vocab, capsys):
    make_model(vocab, kind="llama").save_pretrained(tmp_path / "model")
    vocab.tokenizer.save_pretrained(tmp_path / "model")
    words = [
        "eval",
        str(tmp_path / "model"),
        "--problems",
        "6",
        "--samples-per-prompt",
        "2",
        "--env.set",
        "high=19",
    ]
    words += ["--env.id", "atrl/Addition-v0", "--engine", "vllm", "--vllm.memory-gb", "1"]
    assert cli.main([*words, "--out", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["greedy"]["problems"] == found["sampled"]["problems"] == 6
    assert set(found["sampled"]["pass_at_k"]) == {"1", "2"}
    assert "by vllm in float32" in capsys.readouterr().out


# -- an engine that dies -------------------------------------------------------------------------


def test_a_killed_engine_is_replaced_and_the_episodes_are_as_if_nothing_had_happened(whole, vocab):
    whole.recover()
    wanted = run_episodes(whole.policy, vocab)
    driver = SlotDriver(6, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
    for slot, prompt in enumerate(prompts(6)):
        driver.start(slot, prompt, problem=slot, group=slot)
    for slot in driver.step(whole.policy):
        driver.idle(slot)
    sampled, replaced = whole.policy.tokens_sampled, whole.policy.replaced
    written = sum(map(len, driver.responses.values()))
    os.kill(whole.policy.engine.pids[0], signal.SIGKILL)
    while not bool(driver.done.all()):
        for slot in driver.step(whole.policy):
            driver.idle(slot)
    assert whole.policy.replaced == replaced + 1
    assert driver.responses == wanted.responses and driver.versions == wanted.versions
    # The books: what was asked twice is counted once.
    assert whole.policy.tokens_sampled - sampled == sum(map(len, driver.responses.values())) - written
    assert_says_what(whole.model, driver, 0.7)


def test_engines_that_die_one_after_the_other_end_the_run(whole, vocab, monkeypatch):
    from atrl_agents.policies import vllm_policy

    class Dying:
        def __init__(self, options) -> None:
            raise vllm_policy.EngineDied("a process of the vLLM engine ended")

    monkeypatch.setattr(vllm_policy, "Engine", Dying)
    monkeypatch.setattr(whole.policy, "engine", None)
    with pytest.raises(RuntimeError, match="4 vLLM engines died one after the other"):
        run_episodes(whole.policy, vocab)


# -- whole runs ----------------------------------------------------------------------------------


def test_grpo_learns_from_an_engine_in_a_worker_process(tmp_path):
    summary = train(
        replace(
            SMALL,
            engine="vllm",
            mode="async",
            env=replace(SMALL.env, kwargs={"low": 0, "high": 4}, block_size=3),
            tiny=TinyConfig(layers=2, width=64, heads=2),
            warmup=replace(SMALL.warmup, learning_rate=2e-3, until=0.3, anneal_steps=20),
            warmup_steps=400,
            steps=100,
            epochs=2,
            log_every=1000,
            prompts_per_batch=16,
            samples_per_prompt=8,
            optim=OptimConfig(learning_rate=2e-3, ramp_steps=20),
            out=tmp_path / "run",
        )
    )
    success = [float(row["success_rate"]) for row in rows(tmp_path / "run") if row["success_rate"]]
    before, after = sum(success[:5]) / 5, sum(success[-5:]) / 5
    assert before < 0.35, before
    assert after > 0.55, after
    assert summary["staleness_max"] <= 1
    assert summary["tokens_generated"] == summary["tokens_trained"] + sum(summary["tokens_dropped"].values())


def test_an_adapter_is_trained_with_an_engine_in_a_worker_process(tmp_path, vocab):
    """Every publication passed the canary, or the run would have ended."""
    base = make_model(vocab, kind="llama")
    base.save_pretrained(tmp_path / "base")
    vocab.tokenizer.save_pretrained(tmp_path / "base")
    run = tmp_path / "run"
    summary = train(
        replace(
            SMALL,
            engine="vllm",
            mode="async",
            model=str(tmp_path / "base"),
            lora=LoRAConfig(r=4),
            env=replace(SMALL.env, block_size=3),
            steps=4,
            warmup_steps=20,
            out=run,
        )
    )
    assert summary["outcome"] == "finished" and summary["staleness_max"] <= 1
    assert summary["tokens_generated"] == summary["tokens_trained"] + sum(summary["tokens_dropped"].values())
    assert (run / "checkpoint" / "adapter_model.safetensors").is_file()
    assert not (run / "checkpoint" / "model.safetensors").exists()


def test_a_synchronous_run_goes_on_when_its_engine_is_killed(tmp_path, monkeypatch):
    one_step, engines = Run._one_step, []

    def kill_after_two(self):
        one_step(self)
        engines.append(self.engine)
        if self.step == 2:
            os.kill(self.engine.engine.pids[0], signal.SIGKILL)

    monkeypatch.setattr(Run, "_one_step", kill_after_two)
    tiny = TinyConfig(layers=1, width=32, heads=1)
    summary = train(replace(SMALL, engine="vllm", tiny=tiny, steps=4, warmup_steps=5, out=tmp_path / "run"))
    assert summary["outcome"] == "finished" and summary["steps"] == 4 and summary["staleness_max"] == 0
    assert engines[-1].replaced == 1 and int(engines[-1].version) == 3
    assert summary["tokens_generated"] == summary["tokens_trained"] + sum(summary["tokens_dropped"].values())
    assert not (tmp_path / "run" / ".engine").exists()


def test_the_report_finds_numerics_alone(tmp_path, vocab, capsys):
    model = make_model(vocab)
    model.save_pretrained(tmp_path / "model")
    vocab.tokenizer.save_pretrained(tmp_path / "model")
    words = [
        "check",
        "--engine",
        "vllm",
        "--model",
        str(tmp_path / "model"),
        "--dtype",
        "float32",
        "--problems",
        "8",
    ]
    assert (
        cli.main([*words, "--env.set", "low=0", "high=9", "--vllm.memory-gb", "1", "--temperature", "0.7"])
        == 0
    )
    said = capsys.readouterr().out
    assert "only numerics differ" in said and "0 of 8 prompts" in said
