"""The engine on the architectures people use: what it samples is what the model says, whatever the model's shape."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from atrl_agents import models
from atrl_agents.complaints import ConfigError
from atrl_agents.log_probs import response_log_probs
from atrl_agents.policies.transformers_policy import TransformersPolicy
from atrl_envs.vocab import Vocab
from tests.agents.slot_driver import SlotDriver
from tests.agents.test_slots import LIMIT, SIZE, assert_same, by_generate, prompts

VOCAB = Vocab.characters()
SHAPE = dict(
    vocab_size=VOCAB.size, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, pad_token_id=VOCAB.pad_id, eos_token_id=VOCAB.eos_id, bos_token_id=None,
    attn_implementation="sdpa",
)  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
KINDS = {
    "llama, tied": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "llama, untied": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=False)),
    "llama, one key head": lambda: LlamaForCausalLM(LlamaConfig(**{**SHAPE, "num_key_value_heads": 1})),
    "llama 3 positions": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=LLAMA3)),
    "yarn positions": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=YARN)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True)),
    "mistral without a window": lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=None)),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**SHAPE)),
}


def sharpened(kind: str):
    """A small random model whose greedy choices are clear, and which ends now and then."""
    torch.manual_seed(0)
    model = KINDS[kind]()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.3)
        model.get_output_embeddings().weight[VOCAB.eos_id] *= 4
    return model.eval()


def rolled_out(policy: TransformersPolicy, texts: list[list[int]]) -> SlotDriver:
    """Episodes 0, 1, ... in three slots, each freed slot taken by the next."""
    driver = SlotDriver(3, SIZE, VOCAB.pad_id, VOCAB.eos_id, LIMIT)
    waiting = list(enumerate(texts))
    for slot in range(3):
        group, prompt = waiting.pop(0)
        driver.start(slot, prompt, problem=group, group=group)
    while not bool(driver.done.all()):
        for slot in driver.step(policy):
            if waiting:
                group, prompt = waiting.pop(0)
                driver.start(slot, prompt, problem=group, group=group)
            else:
                driver.idle(slot)
    return driver


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_generate(kind):
    model, texts = sharpened(kind), prompts(8)
    policy = TransformersPolicy(model, VOCAB, block_size=3, greedy=True, max_new_tokens=LIMIT)
    driver = rolled_out(policy, texts)
    for group, prompt in enumerate(texts):
        assert_same(driver, (group, 0), by_generate(model, VOCAB, prompt))
    assert len({len(response) for response in driver.responses.values()}) > 1, "ragged, as they should be"


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_log_probs_are_those_of_training(kind):
    model, texts = sharpened(kind), prompts(8, seed=1)
    policy = TransformersPolicy(model, VOCAB, block_size=3, temperature=0.8, seed=3, max_new_tokens=LIMIT)
    driver = rolled_out(policy, texts)
    rows = [prompt + driver.responses[group, 0] for group, prompt in enumerate(texts)]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [VOCAB.pad_id] * (width - len(row)) for row in rows])
    prompt_length, length = (torch.tensor([len(row) for row in lists]) for lists in (texts, rows))
    out = response_log_probs(model, tokens, prompt_length, length, temperature=0.8).log_prob
    for group, prompt in enumerate(texts):
        ours = torch.tensor(driver.log_probs[group, 0])
        torch.testing.assert_close(out[group, len(prompt) : len(rows[group])], ours, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["llama, untied", "qwen3", "llama 3 positions"])
def test_members_that_share_a_prompt_are_trained_as_if_apart(kind):
    model = sharpened(kind)
    prompt, answers = [5, 6, 7, 8], [[9, 10, 11], [12], [13, 14, 15, 16, 17]]
    rows = [prompt + answer for answer in answers]
    tokens = torch.tensor([row + [VOCAB.pad_id] * (9 - len(row)) for row in rows])
    length = torch.tensor([len(row) for row in rows])
    prompt_length, group = torch.full((3,), 4), torch.zeros(3, dtype=torch.int64)
    together = response_log_probs(model, tokens, prompt_length, length, group=group).log_prob
    apart = response_log_probs(model, tokens, prompt_length, length).log_prob
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)


def test_scaled_positions_are_not_the_plain_ones():
    """Else the tests above would say nothing about them."""
    plain, ids = sharpened("llama, tied"), torch.tensor([[20, 30, 40, 50, 60]])
    for kind in ("llama 3 positions", "yarn positions"):
        scaled = sharpened(kind)
        assert not torch.allclose(scaled.model.rotary_emb.inv_freq, plain.model.rotary_emb.inv_freq)
        before = scaled(ids).logits
        scaled.model.rotary_emb = plain.model.rotary_emb
        assert not torch.allclose(scaled(ids).logits, before, atol=1e-3)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=4)),
            "MistralForCausalLM .*last 4 tokens",
        ),
        (lambda: Phi3ForCausalLM(Phi3Config(**SHAPE, sliding_window=4)), "Phi3ForCausalLM .*last 4 tokens"),
        (
            lambda: Gemma2ForCausalLM(Gemma2Config(**SHAPE, head_dim=8)),
            "Gemma2ForCausalLM .*sliding_attention",
        ),
        (
            lambda: Gemma2ForCausalLM(Gemma2Config(**SHAPE, head_dim=8, layer_types=["full_attention"] * 2)),
            "Gemma2ForCausalLM caps",
        ),
        (
            lambda: MambaForCausalLM(MambaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=1)),
            "Mamba.* a state",
        ),
        (
            lambda: LlamaForCausalLM(LlamaConfig(**{**SHAPE, "attn_implementation": "eager"})),
            "Llama.*'eager'.*sdpa",
        ),
        (
            lambda: LlamaForCausalLM(LlamaConfig(**{**SHAPE, "attn_implementation": "flex_attention"})),
            "flex_attention",
        ),
    ],
    ids=["mistral", "phi3", "gemma2", "gemma2 caps", "mamba", "eager", "flex"],
)
def test_what_the_cache_would_not_serve_exactly_is_named(build, message):
    with pytest.raises(ValueError, match=message):
        TransformersPolicy(build(), VOCAB)


def test_a_window_as_wide_as_the_positions_is_none():
    config = MistralConfig(**SHAPE, sliding_window=64, max_position_embeddings=64)
    TransformersPolicy(MistralForCausalLM(config), VOCAB)


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_positions_that_change_with_the_batch_are_refused_where_they_would(rope_type):
    rope = {
        "rope_type": rope_type,
        "rope_theta": 10000.0,
        "factor": 2.0,
        "original_max_position_embeddings": 16,
    }
    if rope_type == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, max_position_embeddings=32, rope_parameters=rope))
    models.check_length(model, sequence_length=16, max_new_tokens=8)
    with pytest.raises(ConfigError, match=f"{rope_type} rotary positions beyond 16 .*--env.max-new-tokens"):
        models.check_length(model, sequence_length=17, max_new_tokens=8)
