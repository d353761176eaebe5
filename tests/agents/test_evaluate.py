"""Evaluation: each held-out problem once, greedy or sampled, with intervals that hold what they promise."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_agents import models
from atrl_agents.config import EnvConfig, TinyConfig, WarmupConfig
from atrl_agents.evaluate import Evaluator, evaluate_checkpoint, make_env
from atrl_agents.intervals import mean_interval, pass_at_k, wilson
from atrl_agents.policies import TransformersPolicy
from atrl_agents.warmup import warm_up
from atrl_envs import keys
from atrl_envs.verify import Verdict

CONFIG = EnvConfig("atrl/Addition-v0", kwargs={"low": 0, "high": 9}, block_size=2)


@pytest.fixture(scope="module")
def trained():
    """A model that gets some sums right and others wrong."""
    torch.set_num_threads(1)
    model, vocab = models.load("tiny", tiny=TinyConfig(layers=1, width=32, heads=2), seed=0)
    env = make_env(CONFIG, vocab, split="train", num_envs=4)
    warm = WarmupConfig(batch_size=32, learning_rate=5e-3, until=0.4, anneal_steps=20)
    steps = warm_up(TransformersPolicy(model, vocab), env.bank, warm, steps=600, seed=0)
    assert steps < 600, "it ended because enough was right"
    return model, vocab


def test_every_held_out_problem_is_asked_once(trained):
    model, vocab = trained
    evaluator = Evaluator(CONFIG, vocab, problems=10**6)
    result = evaluator(model)
    bank = evaluator.env.bank
    assert result.problems == len(bank) == evaluator.problems
    assert sorted(result.episodes[keys.PROBLEM].tolist()) == list(range(len(bank)))
    right = 0
    for row in result.episodes:
        text = vocab.decode(row[keys.TOKENS][row[keys.PROMPT_LENGTH] : row[keys.LENGTH]].tolist())
        correct = text == bank.answer_texts[int(row[keys.PROBLEM])]
        assert correct == (int(row[keys.VERDICT]) == int(Verdict.CORRECT)), text
        right += correct
    assert result.accuracy == pytest.approx(right / len(bank))
    assert sum(result.verdicts.values()) == len(bank)


def test_some_of_the_problems_are_drawn_from_all(trained):
    _, vocab = trained
    evaluator = Evaluator(EnvConfig("atrl/Addition-v0"), vocab, problems=100)
    chosen = problems_asked(evaluator)
    size = len(evaluator.env.bank)
    assert len(set(chosen)) == 100 and size > 700
    assert 0.4 < sum(chosen) / len(chosen) / size < 0.6, "not the first ones, which are the smallest sums"


def problems_asked(evaluator: Evaluator) -> list[int]:
    """The problems that an evaluation begins with."""
    return evaluator.env.reset()[keys.PROBLEM].flatten().tolist()


def test_evaluating_twice_gives_the_same_and_train_shares_no_prompt_with_test(trained):
    model, vocab = trained
    evaluator = Evaluator(CONFIG, vocab, problems=8)
    assert torch.equal(evaluator(model).episodes[keys.TOKENS], evaluator(model).episodes[keys.TOKENS])
    train = make_env(CONFIG, vocab, split="train", num_envs=4).bank.prompt_texts
    assert not set(train) & set(evaluator.env.bank.prompt_texts)


def test_pass_at_k_rises_and_a_checkpoint_gives_the_same_figures(trained, tmp_path):
    model, vocab = trained
    evaluator = Evaluator(CONFIG, vocab, problems=8, samples_per_prompt=4)
    result = evaluator(model, temperature=1.0)
    assert list(result.pass_at_k) == [1, 2, 4]
    assert result.pass_at_k[1] == pytest.approx(result.accuracy)
    assert result.pass_at_k[1] <= result.pass_at_k[2] <= result.pass_at_k[4]
    model.save_pretrained(tmp_path)
    vocab.tokenizer.save_pretrained(tmp_path)
    loaded = evaluate_checkpoint(tmp_path, CONFIG, problems=8, samples_per_prompt=4)
    assert loaded["sampled"]["accuracy"] == result.accuracy
    assert loaded["greedy"]["accuracy"] == Evaluator(CONFIG, vocab, problems=8)(model).accuracy


def test_gold_sequences_are_prompt_gold_and_end(trained):
    _, vocab = trained
    env = make_env(CONFIG, vocab, split="train", num_envs=4)
    tokens, prompt_length, length = env.bank.gold_sequences()
    for row in range(0, tokens.shape[0], 17):
        ids = tokens[row].tolist()
        assert vocab.decode(ids[: prompt_length[row]]) == env.bank.prompt_texts[row]
        assert vocab.decode(ids[prompt_length[row] : length[row] - 1]) == env.bank.answer_texts[row]
        assert ids[length[row] - 1] == vocab.eos_id


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_success(n, data):
    import itertools

    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(itertools.combinations([True] * correct + [False] * (n - correct), k))
    assert pass_at_k(n, correct, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))


def test_wilson_covers_what_it_promises():
    """95 % intervals hold the truth in about 95 % of repetitions (here: between 92.5 % and 97.5 % of 2,000)."""
    rng = random.Random(0)
    for share in (0.5, 0.9):
        held = 0
        for _ in range(2000):
            low, high = wilson(sum(rng.random() < share for _ in range(200)), 200)
            held += low <= share <= high
        assert 0.925 < held / 2000 < 0.975
    assert wilson(0, 0) == (0.0, 1.0) and wilson(10, 10)[1] == 1.0
    assert mean_interval([0.5]) == (0.0, 1.0)


def test_asking_for_more_than_was_sampled_is_refused():
    with pytest.raises(ValueError, match="pass@5"):
        pass_at_k(4, 1, 5)
