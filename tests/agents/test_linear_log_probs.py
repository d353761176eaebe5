"""Log-probabilities without whole logits: the naive form's values and gradients, in a fraction of the memory."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen2ForCausalLM

from atrl_agents import log_probs
from atrl_agents.heads import plain_head
from atrl_agents.linear_log_probs import linear_log_probs
from tests.agents.test_log_probs import batch, model  # noqa: F401 (a fixture)


def naive(
    hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, temperature: float
) -> tuple[Tensor, ...]:
    logits = hidden @ weight.T if bias is None else hidden @ weight.T + bias
    found = torch.log_softmax(logits / temperature, -1)
    return found.gather(1, target[:, None]).squeeze(1), -(found.exp() * found).sum(1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 40), st.sampled_from([1, 3, 7, 64]),
       st.sampled_from([1.0, 0.7]), st.booleans(), st.booleans(), st.booleans())  # fmt: skip
def test_values_and_gradients_match_the_naive_form(
    seed: int,
    rows: int,
    vocabulary: int,
    chunk: int,
    temperature: float,
    biased: bool,
    with_entropy: bool,
    frozen: bool,
) -> None:
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, 5, generator=g, dtype=torch.float64)
    weight = torch.randn(vocabulary, 5, generator=g, dtype=torch.float64)
    bias = torch.randn(vocabulary, generator=g, dtype=torch.float64) if biased else None
    target = torch.randint(vocabulary, (rows,), generator=g)
    upstream = torch.randn(2, rows, generator=g, dtype=torch.float64)
    found = []
    for ours in (True, False):
        leaves = [x.clone().requires_grad_() if x is not None else None for x in (hidden, weight, bias)]
        for leaf in leaves[1:] if frozen else ():
            if leaf is not None:
                leaf.requires_grad_(False)
        if ours:
            p, h, _ = linear_log_probs(
                leaves[0],
                leaves[1],
                target,
                bias=leaves[2],
                temperature=temperature,
                chunk=chunk,
                entropy_gradient=with_entropy,
            )
        else:
            p, h = naive(leaves[0], leaves[1], target, leaves[2], temperature)
        loss = (p.double() * upstream[0]).sum()
        loss = loss + (h.double() * upstream[1]).sum() if with_entropy else loss
        loss.backward()
        found.append(
            [
                p.double().detach(),
                h.double().detach(),
                *(x.grad for x in leaves if x is not None and x.requires_grad),
            ]
        )
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)


def test_the_likeliest_token_is_known() -> None:
    hidden, weight = torch.eye(3), torch.tensor([[5.0, 0, 0], [0, 5.0, 0], [1.0, 1.0, 0]])
    _, _, likeliest = linear_log_probs(hidden, weight, torch.tensor([0, 2, 1]), chunk=2)
    assert likeliest.tolist() == [True, False, True]


def test_large_logits_stay_finite() -> None:
    hidden, weight = torch.full((2, 1), 1e4), torch.tensor([[1.0], [-1.0], [0.5]])
    hidden.requires_grad_()
    p, h, _ = linear_log_probs(hidden, weight, torch.tensor([0, 1]), chunk=1)
    (p.sum() + h.sum()).backward()
    assert p.tolist() == pytest.approx([0.0, -2e4])
    assert bool(torch.isfinite(hidden.grad).all())


def test_saved_memory_is_a_few_numbers_a_row() -> None:
    """What the forward pass keeps for the backward pass, beside its inputs, does not grow with the vocabulary."""
    kept: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    hidden, weight = torch.randn(8, 4, requires_grad=True), torch.randn(1000, 4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        linear_log_probs(hidden, weight, torch.zeros(8, dtype=torch.int64), chunk=10)
    assert sum(kept) == hidden.numel() + weight.numel() + 3 * 8


@pytest.mark.parametrize("with_entropy", [False, True])
def test_a_model_gives_the_same_by_both_ways(model, monkeypatch, with_entropy) -> None:  # noqa: F811
    tokens, prompt_length, length, group = batch()
    weight = torch.randn(tokens.shape, generator=torch.Generator().manual_seed(1))
    found = []
    for limit in (1 << 40, 0):  # whole logits, then never
        monkeypatch.setattr(log_probs, "WHOLE_BYTES", limit)
        model.zero_grad()
        out = log_probs.response_log_probs(
            model, tokens, prompt_length, length, group=group, temperature=0.8, entropy_gradient=with_entropy
        )
        loss = (out.log_prob * weight).sum() + ((out.entropy * weight).sum() if with_entropy else 0.0)
        loss.backward()
        found.append((out, [p.grad.clone() for p in model.parameters()]))
    (one, first), (two, second) = found
    torch.testing.assert_close(one.log_prob, two.log_prob, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(one.entropy, two.entropy, rtol=1e-4, atol=1e-5)
    assert torch.equal(one.likeliest, two.likeliest)
    for got, want in zip(first, second, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4 * float(want.abs().max() + 1e-3))


class Louder(Qwen2ForCausalLM):
    """Scales its logits, and no setting says so."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        out = super().forward(*args, **kwargs)
        out.logits = 1.5 * out.logits
        return out


def test_a_model_that_changes_its_logits_keeps_its_own_way(model) -> None:  # noqa: F811
    assert plain_head(model) is model.lm_head
    config = Gemma2Config(
        vocab_size=40, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, final_logit_softcapping=30.0, attn_implementation="sdpa",
    )  # fmt: skip
    assert plain_head(Gemma2ForCausalLM(config)) is None
    assert plain_head(Louder(model.config)) is None
    adapted = copy.deepcopy(model)
    adapted.lm_head = torch.nn.Sequential(adapted.lm_head)
    assert plain_head(adapted) is None


def test_targets_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match=r"targets must lie in \[0, 5\), got 1 to 5"):
        linear_log_probs(torch.zeros(2, 3), torch.zeros(5, 3), torch.tensor([1, 5]))


def test_shapes_that_disagree_are_refused() -> None:
    with pytest.raises(ValueError, match="hidden must be"):
        linear_log_probs(torch.zeros(2, 3), torch.zeros(5, 4), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="target must be"):
        linear_log_probs(torch.zeros(2, 3), torch.zeros(5, 3), torch.zeros(2, 1, dtype=torch.int64))


@pytest.mark.parametrize("frozen", [False, True])
def test_autocast_takes_the_types_of_a_linear_layer_in_both_passes(frozen: bool) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(5, 8, requires_grad=True), torch.randn(11, 8, requires_grad=not frozen)
    target = torch.randint(0, 11, (5,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, entropy, _ = linear_log_probs(hidden, weight, target, chunk=4, entropy_gradient=not frozen)
        logits = torch.nn.functional.linear(hidden, weight).float()
    expected = torch.log_softmax(logits, -1).gather(1, target[:, None]).squeeze(1)
    assert found.dtype == torch.float32
    # The logits are rounded to bfloat16 in both, whose distance here is at most 2^-5 (|z| < 16).
    torch.testing.assert_close(found, expected, atol=2**-4, rtol=0)
    wanted = (hidden, weight) if not frozen else (hidden,)
    ours = torch.autograd.grad(found.sum() + (0 if frozen else 0.1 * entropy.sum()), wanted)
    half = [value.detach().bfloat16().float().requires_grad_() for value in (hidden, weight)]
    exact = torch.log_softmax(half[0] @ half[1].T, -1)
    loss = exact.gather(1, target[:, None]).sum()
    if not frozen:
        loss = loss - 0.1 * (exact.exp() * exact).sum()
    for got, right in zip(ours, torch.autograd.grad(loss, half), strict=False):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, right, atol=2**-5, rtol=2**-5)


@pytest.mark.parametrize("banned", [range(4), range(4, 8), [1, 6, 9]])
def test_tokens_that_the_bias_bans_have_no_probability(banned: Any) -> None:
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(3, 5, requires_grad=True), torch.randn(11, 5), torch.zeros(11)
    bias[list(banned)] = -torch.inf
    target = torch.tensor([10, 10, 3 if 3 not in banned else 8])
    found, entropy, _ = linear_log_probs(hidden, weight, target, bias=bias, chunk=4)
    expected = torch.log_softmax(hidden @ weight.T + bias, -1)
    torch.testing.assert_close(found, expected.gather(1, target[:, None]).squeeze(1))
    torch.testing.assert_close(entropy, -(expected.exp() * expected.clamp(min=-1e9)).sum(1))
    (ours,) = torch.autograd.grad(found.sum() + 0.1 * entropy.sum(), hidden)
    assert bool(torch.isfinite(ours).all())
