"""The slot policy says what the model says: greedy tokens and log-probabilities against plain transformers."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers.cache_utils import DynamicCache

from atrl_agents.policies.slots import SlotCache
from atrl_agents.policies.transformers_policy import TransformersPolicy
from atrl_envs.vocab import Vocab
from tests.agents.slot_driver import SlotDriver

LIMIT = 12
SIZE = 9 + LIMIT  # as tight as the longest prompt allows
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    return Vocab.characters()


def make_model(vocab: Vocab, seed: int = 0, kind: str = "qwen2"):
    """A small random model, its output sharpened so that greedy choices are clear and EOS does occur."""
    torch.manual_seed(seed)
    shape = dict(
        vocab_size=vocab.size, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        pad_token_id=vocab.pad_id, eos_token_id=vocab.eos_id, bos_token_id=None, attn_implementation="sdpa",
    )  # fmt: skip
    if kind == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**shape, num_key_value_heads=4, tie_word_embeddings=True))
    else:  # grouped queries, untied embeddings
        model = LlamaForCausalLM(LlamaConfig(**shape, num_key_value_heads=2, tie_word_embeddings=False))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.3)
        model.get_output_embeddings().weight[vocab.eos_id] *= 2
    return model.eval()


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(3, 90) for _ in range(rng.randrange(1, 10))] for _ in range(count)]


def by_generate(model, vocab: Vocab, prompt: list[int]) -> tuple[list[int], list[float]]:
    """One row by `model.generate`, with the log-probabilities of its choices."""
    ids = torch.tensor([prompt])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=LIMIT, do_sample=False,
        output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    response = out.sequences[0, len(prompt) :].tolist()
    log_probs = [
        float(logits[0].log_softmax(-1)[token]) for logits, token in zip(out.logits, response, strict=True)
    ]
    return response, log_probs


def by_hand(
    models, cut: int, vocab: Vocab, prompt: list[int], *, keep: bool
) -> tuple[list[int], list[float]]:
    """One row: the first `cut` tokens from models[0], the rest from models[1], keeping or recomputing the cache."""
    cache, fed, response, log_probs = DynamicCache(), 0, [], []
    while len(response) < LIMIT:
        model = models[0] if len(response) < cut else models[1]
        if len(response) == cut and not keep:
            cache, fed = DynamicCache(), 0
        ids = torch.tensor([(prompt + response)[fed:]])
        with torch.no_grad():
            logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits[0, -1].log_softmax(-1)
        fed += ids.shape[1]
        token = int(logits.argmax())
        response.append(token)
        log_probs.append(float(logits[token]))
        if token == vocab.eos_id:
            break
    return response, log_probs


def assert_same(
    driver: SlotDriver, episode: tuple[int, int], expected: tuple[list[int], list[float]]
) -> None:
    assert driver.responses[episode] == expected[0]
    torch.testing.assert_close(
        torch.tensor(driver.log_probs[episode]), torch.tensor(expected[1]), atol=TOLERANCE, rtol=0
    )


def test_short_rows_go_on_after_the_longest_row_reached_the_end_of_its_slot(vocab):
    model = make_model(vocab, seed=2)
    texts = [[5] * 9, [7], [9], [11]]
    policy = TransformersPolicy(
        model, vocab, block_size=2 * LIMIT, greedy=True
    )  # no limit but the slot's end
    driver = SlotDriver(4, SIZE, vocab.pad_id, vocab.eos_id, SIZE)
    for slot, prompt in enumerate(texts):
        driver.start(slot, prompt, problem=slot, group=slot)
    out = policy(driver.state.clone())
    written = (out["version"] >= 0).sum(1).tolist()
    ended = (out["action"] == vocab.eos_id).any(1).tolist()
    assert all(e or w == SIZE - len(p) for e, w, p in zip(ended, written, texts, strict=True))
    assert len(set(written)) > 1


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
@pytest.mark.parametrize("block_size", [1, 3, LIMIT])
def test_ragged_rows_with_partial_resets_match_generate(vocab, kind, block_size):
    model = make_model(vocab, kind=kind)
    policy = TransformersPolicy(model, vocab, block_size=block_size, greedy=True, max_new_tokens=LIMIT)
    driver = SlotDriver(5, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
    waiting = list(enumerate(prompts(17)))
    texts = dict(waiting)
    for slot in range(5):
        group, prompt = waiting.pop(0)
        driver.start(slot, prompt, problem=group, group=group)
    while not bool(driver.done.all()):
        for slot in driver.step(policy):
            if waiting:
                group, prompt = waiting.pop(0)
                driver.start(slot, prompt, problem=group, group=group)
            else:
                driver.idle(slot)
    lengths = set()
    for group, prompt in texts.items():
        assert_same(driver, (group, 0), by_generate(model, vocab, prompt))
        lengths.add(len(driver.responses[(group, 0)]))
    assert len(lengths) > 2, "the responses should be ragged for this test to mean anything"


@pytest.mark.parametrize("in_flight", ["keep", "recompute"])
@pytest.mark.parametrize("block_size", [1, 4])
def test_new_weights_in_the_middle_of_an_episode(vocab, in_flight, block_size):
    first, second = make_model(vocab, 0), make_model(vocab, 1)
    policy = TransformersPolicy(
        copy.deepcopy(first),
        vocab,
        block_size=block_size,
        greedy=True,
        max_new_tokens=LIMIT,
        in_flight=in_flight,
    )
    driver = SlotDriver(4, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
    texts = prompts(4, seed=3)
    for slot, prompt in enumerate(texts):
        driver.start(slot, prompt, problem=slot, group=slot)
    driver.step(policy)
    policy.model.load_state_dict(second.state_dict())
    policy.set_version(1)
    while not bool(driver.done.all()):
        driver.step(policy)
    crossed = 0
    for slot, prompt in enumerate(texts):
        expected = by_hand((first, second), block_size, vocab, prompt, keep=in_flight == "keep")
        assert_same(driver, (slot, 0), expected)
        versions = driver.versions[(slot, 0)]
        assert versions == [0] * min(block_size, len(versions)) + [1] * (len(versions) - block_size)
        crossed += len(versions) > block_size
    assert crossed > 0


def test_members_of_a_group_share_one_prefill(vocab, monkeypatch):
    model = make_model(vocab)
    prefilled = []
    original = SlotCache.select

    def spy(self, rows):
        prefilled.append((self.tensors()[0][0].shape[0], rows.shape[0]))
        return original(self, rows)

    monkeypatch.setattr(SlotCache, "select", spy)
    policy = TransformersPolicy(model, vocab, block_size=2, max_new_tokens=LIMIT, seed=1)
    driver = SlotDriver(8, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
    for slot in range(8):
        driver.start(slot, prompts(2)[slot // 4], problem=slot // 4, group=slot // 4, member=slot % 4)
    driver.step(policy)
    assert prefilled[0] == (2, 8), "two prompts are computed for eight rows"
    assert len({tuple(driver.responses[(0, m)]) for m in range(4)}) > 1, "members differ by their noise"


def test_sampling_depends_on_the_episode_only(vocab):
    """The same episodes, whatever the slot, the neighbours and the block size."""
    model = make_model(vocab)
    texts = prompts(6, seed=5)
    seen = []
    for slots, block_size, order in (
        (6, 4, range(6)),
        (3, 1, reversed(range(6))),
        (2, LIMIT, [3, 1, 5, 0, 2, 4]),
    ):
        policy = TransformersPolicy(
            model, vocab, block_size=block_size, max_new_tokens=LIMIT, seed=7, temperature=0.7
        )
        driver = SlotDriver(slots, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
        waiting = list(order)
        for slot in range(slots):
            group = waiting.pop(0)
            driver.start(slot, texts[group], problem=group, group=group)
        while not bool(driver.done.all()):
            for slot in driver.step(policy):
                if waiting:
                    group = waiting.pop(0)
                    driver.start(slot, texts[group], problem=group, group=group)
        seen.append(driver.responses)
    assert seen[0] == seen[1] == seen[2]


def test_an_idle_policy_does_not_call_the_model(vocab):
    policy = TransformersPolicy(make_model(vocab), vocab, block_size=2)
    driver = SlotDriver(3, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
    driver.step(policy)
    assert policy.forwards == 0 and policy.tokens_sampled == 0


def test_log_probs_are_of_the_tempered_distribution(vocab):
    model = make_model(vocab)
    policy = TransformersPolicy(model, vocab, block_size=1, temperature=0.5, max_new_tokens=LIMIT)
    driver = SlotDriver(1, SIZE, vocab.pad_id, vocab.eos_id, LIMIT)
    prompt = prompts(1)[0]
    driver.start(0, prompt, problem=0, group=0)
    driver.step(policy)
    with torch.no_grad():
        expected = (model(torch.tensor([prompt])).logits[0, -1] / 0.5).log_softmax(-1)
    token = driver.responses[(0, 0)][0]
    assert driver.log_probs[(0, 0)][0] == pytest.approx(float(expected[token]), abs=TOLERANCE)


def test_models_that_the_cache_would_not_serve_exactly_are_refused(vocab):
    model = make_model(vocab)
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="sdpa"):
        TransformersPolicy(model, vocab)
    sliding = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=1,
        )
    )
    with pytest.raises(ValueError, match="sliding"):
        TransformersPolicy(sliding, vocab)
