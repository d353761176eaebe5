"""What `atrl export` writes is what the run had, loads with plain transformers, and is never written over anything."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from atrl_agents import cli, export, lora, models
from atrl_agents.complaints import ConfigError
from atrl_agents.config import LoRAConfig
from atrl_agents.train import train
from tests.agents.test_train import SMALL

IDS = torch.tensor([[20, 14, 21, 32, 5]])


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(replace(SMALL, steps=1, out=folder))
    return folder


@pytest.fixture(scope="module")
def adapted(whole, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "adapted"
    config = replace(SMALL, model=str(whole / "checkpoint"), lora=LoRAConfig(r=4), warmup_steps=0)
    train(replace(config, steps=2, out=folder))
    return folder


def same_model(one: Path, two: Path) -> bool:
    loaded = (AutoModelForCausalLM.from_pretrained(path).eval()(IDS).logits for path in (one, two))
    return torch.allclose(*loaded, atol=1e-5)


def test_a_whole_model(whole, tmp_path, capsys):
    assert cli.main(["export", str(whole), "--out", str(tmp_path / "mine")]) == 0
    assert "log-probabilities differ by" in capsys.readouterr().out
    assert same_model(tmp_path / "mine", whole / "checkpoint")
    assert AutoTokenizer.from_pretrained(tmp_path / "mine").decode([20, 14]) != ""
    names = {path.name for path in (tmp_path / "mine").iterdir()}
    assert "trainer_state.pt" not in names and {path.name for path in tmp_path.iterdir()} == {"mine"}
    card = (tmp_path / "mine" / "README.md").read_text()
    summary = json.loads((whole / "summary.json").read_text())
    assert card.startswith("---\nlibrary_name: transformers\n") and "\n- grpo\n" in card
    assert "base_model" not in card and "random weights" in card
    assert "`atrl/Addition-v0`" in card and "- high: 9" in card
    assert (
        f"| after | {summary['accuracy_after']:.1%} |" in card
        and f"| before | {summary['accuracy_before']:.1%} |" in card
    )
    assert json.loads(card.partition("```json\n")[2].partition("```")[0])["prompts_per_batch"] == 4


def test_an_adapter_and_the_same_merged(adapted, whole, tmp_path):
    assert cli.main(["export", str(adapted), "--out", str(tmp_path / "adapter")]) == 0
    assert (
        cli.main(["export", str(adapted / "checkpoint"), "--merge", "--out", str(tmp_path / "merged")]) == 0
    )
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    assert (tmp_path / "merged" / "model.safetensors").exists()
    assert not list((tmp_path / "merged").glob("adapter*"))
    for folder in (tmp_path / "adapter", tmp_path / "merged"):
        assert same_model(folder, adapted / "checkpoint")
        assert not same_model(folder, whole / "checkpoint")
    assert (tmp_path / "adapter" / "README.md").read_text().startswith("---\nlibrary_name: peft\n")
    merged = (tmp_path / "merged" / "README.md").read_text()
    assert "library_name: transformers" in merged and "\n- lora\n" in merged and '"r": 4' in merged
    # what was merged is a base like any other
    model, _ = models.load(str(tmp_path / "merged"))
    assert not lora.is_adapted(model) and len(lora.trainable(model)) == len(list(model.parameters()))


def test_a_model_that_says_something_else_is_not_left_behind(whole, tmp_path, monkeypatch):
    log_probs, shift = export._log_probs, itertools.count()

    def broken(model):
        return log_probs(model) + next(shift) / 100

    monkeypatch.setattr(export, "_log_probs", broken)
    with pytest.raises(ConfigError, match="differ by .* nothing was written"):
        export.export(whole / "checkpoint", tmp_path / "mine", run=whole)
    assert list(tmp_path.iterdir()) == []


def test_complaints(whole, tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.mkdir()
    for words, message in (
        ([str(whole), "--out", str(taken)], "it exists already; give another --out"),
        ([str(whole), "--out", str(tmp_path / "no" / "where")], "its folder does not exist"),
        ([str(whole), "--merge", "--out", str(tmp_path / "new")], "no adapter to merge"),
        ([str(taken), "--out", str(tmp_path / "new")], "there is no model in it"),
        ([str(tmp_path / "none.gguf"), "--out", str(tmp_path / "new")], "there is no model in it"),
    ):
        assert cli.main(["export", *words]) == 2, words
        assert message in capsys.readouterr().err
    assert list(taken.iterdir()) == []
