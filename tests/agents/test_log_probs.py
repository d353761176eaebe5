"""Packed log-probabilities against one plain forward a row: values, gradients, and what is left out."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from atrl_agents.log_probs import response_log_probs
from atrl_agents.packing import Packing, rows_sharing_prompts
from tests import reference


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, attn_implementation="sdpa",
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.2)
    return model


def batch(groups: int = 3, size: int = 4, columns: int = 20, seed: int = 0):
    """Groups of ragged responses to ragged prompts."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 40, (groups * size, columns), generator=g)
    prompt_length = torch.randint(1, 8, (groups,), generator=g).repeat_interleave(size)
    length = prompt_length + torch.randint(1, 12, (groups * size,), generator=g)
    group = torch.arange(5, 5 + groups).repeat_interleave(size)
    for n in range(groups * size):
        first = n - n % size
        tokens[n, : prompt_length[n]] = tokens[first, : prompt_length[n]]
        tokens[n, length[n] :] = 0
    return tokens, prompt_length, length, group


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_match_one_forward_a_row(model, shared, temperature):
    tokens, prompt_length, length, group = batch()
    weight = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(1))
    grads = []
    for mine in (True, False):
        model.zero_grad()
        if mine:
            out = response_log_probs(
                model, tokens, prompt_length, length, group=group if shared else None, temperature=temperature
            ).log_prob.double()
        else:
            out = reference.response_log_probs(model, tokens, prompt_length, length, temperature)
        (out * weight).sum().backward()
        grads.append((out.detach(), [p.grad.clone() for p in model.parameters()]))
    # float32 forwards of different shapes: sums of a few hundred terms differ in the last digits
    torch.testing.assert_close(grads[0][0], grads[1][0], rtol=1e-5, atol=1e-5)
    for got, want in zip(grads[0][1], grads[1][1], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4 * float(want.abs().max() + 1e-3))


def test_entropy_and_zeros_outside_the_response(model):
    tokens, prompt_length, length, group = batch()
    out = response_log_probs(model, tokens, prompt_length, length, group=group)
    column = torch.arange(tokens.shape[1])
    outside = (column < prompt_length[:, None]) | (column >= length[:, None])
    assert float(out.log_prob[outside].abs().max()) == 0.0 and float(out.entropy[outside].abs().max()) == 0.0
    assert bool((out.entropy[~outside] > 0).all()) and not out.entropy.requires_grad


def test_what_is_right_of_the_response_changes_nothing(model):
    tokens, prompt_length, length, group = batch()
    before = response_log_probs(model, tokens, prompt_length, length, group=group).log_prob
    column = torch.arange(tokens.shape[1])
    tokens = torch.where(column >= length[:, None], 7, tokens)
    assert torch.equal(before, response_log_probs(model, tokens, prompt_length, length, group=group).log_prob)


def test_a_packed_row_holds_the_prompt_once_and_not_the_last_tokens():
    tokens = torch.tensor([[11, 12, 1, 2, 3], [11, 12, 4, 0, 0], [11, 12, 5, 6, 0]])
    prompt_length, length = torch.tensor([2, 2, 2]), torch.tensor([5, 3, 4])
    plan = Packing.of(tokens, prompt_length, length, torch.zeros(3, dtype=torch.int64))
    assert plan.ids.tolist() == [[11, 12, 1, 2, 5]]
    assert plan.position.tolist() == [[0, 1, 2, 3, 2]]
    assert plan.target.tolist() == [1, 2, 3, 4, 5, 6]
    assert plan.source.tolist() == [1, 2, 3, 1, 1, 4]
    assert plan.mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 1],
    ]  # fmt: skip


def test_sharing_is_chosen_where_it_is_cheaper():
    group = torch.tensor([0, 0, 1, 1])
    long_prompts, long_responses = torch.tensor([50, 50, 40, 40]), torch.tensor([1, 1, 1, 1])
    costs = {"linear_cost": 1.0, "attention_cost": 0.1}
    # packed: 2 rows of 52 at most; apart: 4 rows of 51
    assert rows_sharing_prompts(group, long_prompts, long_prompts + 2, **costs).tolist() == [0, 0, 1, 1]
    # packed: 2 rows of 157; apart: 4 rows of 79: the longer rows cost more attention than the prompts would
    assert rows_sharing_prompts(group, long_responses, long_responses + 79, **costs).tolist() == [0, 1, 2, 3]
