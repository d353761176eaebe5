"""Models by name: folders, GGUF files, the Hub's cache; precision, memory, and what is said where one cannot work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from atrl_agents import cli, models
from atrl_agents.complaints import ConfigError
from atrl_agents.config import GRPOConfig, LoRAConfig, TinyConfig
from atrl_agents.config_check import check
from atrl_agents.learner import Learner
from atrl_agents.log_probs import response_log_probs
from atrl_agents.model_check import kind_of
from atrl_agents.train import train
from atrl_agents.training_pass import training_pass
from atrl_envs.vocab import Vocab
from tests.agents.test_train import SMALL, assert_same_weights, weights
from tests.envs import tokenizers_built

ROOT = Path(__file__).resolve().parents[2]
IDS = torch.tensor([[20, 14, 21, 32, 5]])


def small(folder: Path, **changes) -> Path:
    """A random Llama with the vocabulary of characters, as a folder."""
    vocab = Vocab.characters()
    torch.manual_seed(0)
    shape = dict(
        vocab_size=vocab.size, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=vocab.pad_id, eos_token_id=vocab.eos_id, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(LlamaConfig(**(shape | changes))).save_pretrained(folder)
    vocab.tokenizer.save_pretrained(folder)
    return folder


# GGUF


def write_gguf(path: Path, config: LlamaConfig) -> None:
    """A random Llama of this shape with a byte-level tokenizer, as llama.cpp would write it."""
    gguf = pytest.importorskip("gguf")
    tokenizer = tokenizers_built.byte_level()
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    rng, width, inner = numpy.random.default_rng(0), config.hidden_size, config.intermediate_size
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("small")
    writer.add_context_length(64)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(width // config.num_attention_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(pieces))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(pieces)
    writer.add_token_merges([" ".join(pair) for pair in _merges(tokenizer)])
    writer.add_bos_token_id(tokenizer.eos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    keys_width = width // config.num_attention_heads * config.num_key_value_heads
    shapes = {"token_embd": (len(pieces), width), "output_norm": (width,)}
    for layer in range(config.num_hidden_layers):
        block = {
            "attn_norm": (width,), "ffn_norm": (width,), "attn_q": (width, width), "attn_k": (keys_width, width),
            "attn_v": (keys_width, width), "attn_output": (width, width), "ffn_gate": (inner, width),
            "ffn_up": (inner, width), "ffn_down": (width, inner),
        }  # fmt: skip
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(0, 0.2, shape).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _merges(tokenizer) -> list[tuple[str, str]]:
    import json

    return [tuple(pair) for pair in json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]]


def test_a_gguf_file_is_a_model_like_any_other(tmp_path, capsys):
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    file = tmp_path / "small.gguf"
    write_gguf(file, config)
    check(GRPOConfig(model=str(file)))
    model, vocab = models.load(str(file))
    assert vocab.decode(vocab.encode("12+34=")) == "12+34=" and model.dtype == torch.float32
    direct = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32).eval()
    torch.testing.assert_close(model(IDS).logits, direct(IDS).logits)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert len(list(model.parameters())) == 2 + 2 * 9 and all(p.requires_grad for p in model.parameters())
    with pytest.raises(ConfigError, match=f"atrl export {file} --out DIR"):
        check(GRPOConfig(model=str(file), lora=LoRAConfig(r=4)))
    assert cli.main(["export", str(file), "--out", str(tmp_path / "folder")]) == 0
    torch.testing.assert_close(models.load(str(tmp_path / "folder"))[0](IDS).logits, model(IDS).logits)
    assert "Made from `small.gguf`" in (tmp_path / "folder" / "README.md").read_text()


def test_files_that_are_no_gguf_are_named(tmp_path):
    (tmp_path / "text.gguf").write_text("no")
    with pytest.raises(ConfigError, match="does not begin as a GGUF file"):
        check(GRPOConfig(model=str(tmp_path / "text.gguf")))
    with pytest.raises(ConfigError, match="cannot be read"):
        check(GRPOConfig(model=str(tmp_path / "none.gguf")))


# The Hub


def without_network(home: Path, *words: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    environment.pop("HF_HUB_CACHE", None)
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=home, capture_output=True, text=True, timeout=300
    )


def test_a_model_on_the_hub_comes_from_the_cache_or_the_message_says_what_there_is(tmp_path):
    train_it = ("-m", "atrl_agents.cli", "train", "--model", "org/unknown")
    done = without_network(tmp_path, *train_it)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "got --model org/unknown; it is no folder, not in the Hub's cache" in done.stderr
    for instead in ("'tiny'", "save_pretrained", "GGUF file", "cache is empty"):
        assert instead in done.stderr, instead
    repository = tmp_path / "hub" / "models--org--small"
    small(repository / "snapshots" / "0123abcd")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abcd")
    done = without_network(tmp_path, *train_it)
    assert done.returncode == 2 and "one of the Hub's cache: org/small" in done.stderr
    code = (
        "from atrl_agents import models, lora; from atrl_agents.config import *\n"
        "config = GRPOConfig(model='org/small', lora=LoRAConfig(r=2), warmup_steps=0)\n"
        "from atrl_agents.config_check import check; check(config)\n"
        "model, vocab = models.begin(config)\n"
        "model.save_pretrained('adapter'); vocab.tokenizer.save_pretrained('adapter')\n"
        "print(type(model).__name__, model.name_or_path, vocab.size, lora.is_adapted(models.load('adapter')[0]))"
    )
    done = without_network(tmp_path, "-c", code)
    assert done.stdout.split() == ["LlamaForCausalLM", "org/small", "99", "True"], done.stderr


def test_what_a_name_stands_for(tmp_path):
    small(tmp_path / "folder")
    assert (
        kind_of("tiny") == "tiny"
        and kind_of("org/name-0.5B") == "hub"
        and kind_of(str(tmp_path / "a.GGUF")) == "gguf"
    )
    assert kind_of(str(tmp_path / "folder")) == "folder" and kind_of("/no/where") == "none"
    assert kind_of("runs/one/checkpoint") == "none" and kind_of("../model") == "none"
    with pytest.raises(
        ConfigError, match=r"--model runs/one/checkpoint; there is nothing of that name; give 'tiny'"
    ):
        check(GRPOConfig(model="runs/one/checkpoint"))


# What cannot work


def test_a_model_and_a_tokenizer_that_do_not_go_together(tmp_path):
    small(tmp_path / "narrow", vocab_size=50)
    with pytest.raises(
        ConfigError, match="narrow; its tokenizer cannot serve it .*ids up to 98, the model 50 of them"
    ):
        models.load(str(tmp_path / "narrow"))
    small(tmp_path / "bare")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bare" / name).unlink()
    with pytest.raises(ConfigError, match="bare; its tokenizer cannot serve it .*tokenizer.save_pretrained"):
        models.load(str(tmp_path / "bare"))


def test_weights_that_are_not_there_are_one_message(tmp_path):
    small(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="transformers does not load it as a causal language model"):
        models.load(str(tmp_path / "model"))


def test_an_embedding_wider_than_the_tokenizer_is_judged_to_its_end(tmp_path):
    small(tmp_path / "wide", vocab_size=128)
    _, vocab = models.load(str(tmp_path / "wide"))
    assert vocab.size == 128 and vocab.byte_table[0].shape[0] == 128


def test_a_precision_that_there_is_not():
    with pytest.raises(
        ConfigError, match="--dtype float16; there is no such choice; use one of float32, bfloat16"
    ):
        check(GRPOConfig(dtype="float16"))


def test_memory_that_runs_out_in_a_pass_is_one_message_and_the_run_is_saved(tmp_path, monkeypatch):
    accumulate = Learner._accumulate

    def too_much(self, *arguments):
        if self.updates == 2:
            torch.empty(1 << 50)
        return accumulate(self, *arguments)

    config = replace(SMALL, warmup_steps=5, out=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "_accumulate", too_much)
        with pytest.raises(
            ConfigError, match="more memory than there is .*--micro-batch-tokens .*gradient-checkpointing"
        ):
            train(config)
    assert train(replace(config, steps=3, out=tmp_path / "run", resume=True))["steps"] == 3


# Precision and memory


def test_bfloat16_trains_all_weights_or_an_adapter(tmp_path):
    train(
        replace(
            SMALL,
            dtype="bfloat16",
            warmup_steps=60,
            steps=2,
            mode="async",
            max_staleness=0,
            out=tmp_path / "all",
        )
    )
    saved = weights(tmp_path / "all")
    assert {tensor.dtype for tensor in saved.values()} == {torch.bfloat16}
    config = replace(
        SMALL, model=str(tmp_path / "all" / "checkpoint"), dtype="bfloat16", lora=LoRAConfig(r=2), warmup_steps=0,
        steps=4, mode="async", max_staleness=0, optim=replace(SMALL.optim, ramp_steps=1), out=tmp_path / "adapter",
    )  # fmt: skip
    train(config)
    adapter = load_file(tmp_path / "adapter" / "checkpoint" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in adapter.values()} == {torch.float32}, "small steps are kept"
    shutil.copytree(tmp_path / "adapter", tmp_path / "more")
    assert train(replace(config, steps=5, out=tmp_path / "more", resume=True))["steps"] == 5
    model = models.load(str(tmp_path / "more" / "checkpoint"), dtype="bfloat16")[0]
    assert model.model.embed_tokens.weight.dtype == torch.bfloat16


def test_gradient_checkpointing_changes_memory_and_nothing_else(tmp_path):
    config = replace(SMALL, tiny=TinyConfig(layers=2, width=32, heads=2), steps=3)
    train(replace(config, out=tmp_path / "kept"))
    train(replace(config, gradient_checkpointing=True, out=tmp_path / "twice"))
    assert_same_weights(tmp_path / "kept", tmp_path / "twice")


def test_layers_are_computed_twice_in_training_passes_alone(tmp_path):
    folder = small(tmp_path / "model")
    config = GRPOConfig(model=str(folder), lora=LoRAConfig(r=2, dropout=0.5))
    tokens, prompt_length, length = torch.tensor([[20, 14, 21, 32, 5]]), torch.tensor([2]), torch.tensor([5])
    gradients, calls = [], []
    for twice in (False, True):
        model, _ = models.begin(config)
        if twice:
            models.compute_layers_twice(model)
        model.model.layers[0].mlp.register_forward_pre_hook(lambda *_, twice=twice: calls.append(twice))
        with training_pass([model], seed=0, number=3):
            response_log_probs(model, tokens, prompt_length, length).log_prob.sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.requires_grad])
        if twice:
            seen = calls.count(True)
            response_log_probs(model, tokens, prompt_length, length).log_prob.sum().backward()
            assert calls.count(True) == seen + 1
    assert calls.count(False) + 1 <= seen, (calls, seen)
    for kept, computed in zip(*gradients, strict=True):
        assert torch.equal(kept, computed), "what dropped out is the same both times"
    assert any(bool(gradient.any()) for gradient in gradients[0])


def test_a_model_without_gradient_checkpointing_is_named():
    model = models.load("tiny")[0]
    type_without = type("Plain", (type(model),), {"supports_gradient_checkpointing": False})
    model.__class__ = type_without
    with pytest.raises(ConfigError, match="--gradient-checkpointing; Plain does not offer it"):
        models.compute_layers_twice(model)
