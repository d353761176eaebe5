"""The real environment behind the collectors: groups, lengths and rewards arrive as it made them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

import atrl_envs
from atrl_collectors import StalenessPolicy, make_buffer, make_collector
from atrl_envs import keys


class Answers(TensorDictModuleBase):
    """Even members write the gold answer of their problem and EOS, odd ones something else."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.in_keys = [keys.LENGTH, keys.PROMPT_LENGTH, keys.PROBLEM, keys.MEMBER]
        self.out_keys = [keys.ACTION, keys.LOG_PROB, keys.VERSION]
        self.block, vocab = env.block_size, env.vocab
        texts = [vocab.encode(text) for text in env.bank.answer_texts]
        self.answers = torch.full((len(texts), env.max_new_tokens + env.block_size), vocab.eos_id)
        for row, ids in enumerate(texts):
            self.answers[row, : len(ids)] = torch.tensor(ids)
        self.wrong = torch.tensor(vocab.encode("7")[0])
        self.register_buffer("version", torch.zeros(1, dtype=torch.int64))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        start = tensordict[keys.LENGTH] - tensordict[keys.PROMPT_LENGTH]
        place = start + torch.arange(self.block)
        gold = self.answers[tensordict[keys.PROBLEM].clamp(min=0).squeeze(-1)].gather(1, place)
        tensordict[keys.ACTION] = torch.where(tensordict[keys.MEMBER] % 2 == 0, gold, self.wrong)
        tensordict[keys.LOG_PROB] = torch.zeros(place.shape)
        tensordict[keys.VERSION] = self.version.expand_as(place).clone()
        return tensordict


@pytest.mark.parametrize("block", [1, 4])
def test_rewards_and_order_survive_the_way_to_the_batch(block: int) -> None:
    env = atrl_envs.make("atrl/Addition-v0", num_envs=8, group_size=4, block_size=block, bank_size=50, seed=3)
    policy = StalenessPolicy(prompts_per_batch=3, samples_per_prompt=4)
    buffer = make_buffer(policy, env.observation_spec[keys.TOKENS].shape[-1], timeout=60)
    answers = Answers(env)
    with make_collector(env, answers, buffer=buffer) as collector:
        for version in range(3):
            answers.version.fill_(version)
            collector.advance(version)
            batch = buffer.sample()
            collector.check_books()
            groups = range(3 * version, 3 * version + 3)
            assert batch[keys.GROUP].tolist() == [group for group in groups for _ in range(4)]
            assert batch[keys.MEMBER].tolist() == [0, 1, 2, 3] * 3
            assert torch.equal(batch[keys.REWARD], (batch[keys.MEMBER] % 2 == 0).float())
            assert bool((batch[keys.TRUNCATED] == (batch[keys.MEMBER] % 2 == 1)).all())
            _same_problem_in_a_group(batch[keys.PROBLEM].view(3, 4))
            prompts = [env.bank.prompt_texts[problem] for problem in batch[keys.PROBLEM].tolist()]
            for row, prompt in enumerate(prompts):
                ids = batch[keys.TOKENS][row][: int(batch[keys.PROMPT_LENGTH][row])]
                assert env.vocab.decode(ids.tolist()) == prompt


def _same_problem_in_a_group(problem: Tensor) -> None:
    assert bool((problem == problem[:, :1]).all())
