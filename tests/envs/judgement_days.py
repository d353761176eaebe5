"""A task whose tensor program decides nothing: everything goes to a host job that does what its text says."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from tensordict import TensorDict
from torch import Tensor

import atrl_envs
from atrl_envs import keys
from atrl_envs.verify import Verdict


class AsksTheHost:
    """A verifier that knows nothing by itself."""

    def encode_answers(self, answers: list[str]) -> TensorDict:
        return TensorDict({"none": torch.zeros(len(answers))}, batch_size=[len(answers)])

    def __call__(self, tokens: Tensor, start: Tensor, answers: Any, end: Tensor | None = None) -> Tensor:
        return torch.full_like(start, int(Verdict.UNDECIDED), dtype=torch.int8)

    def host_job(self, completion: str, answer: str, data: Any) -> tuple[str, tuple[str, str]]:
        return "tests.envs.host_jobs:decide", (completion, answer)


class Echo(atrl_envs.Task):
    """Repeat a number."""

    def problem(self, rng: numpy.random.Generator) -> atrl_envs.Problem:
        n = int(rng.integers(100, 1000))
        return atrl_envs.Problem(f"{n}:", str(n))

    def verifier(self, vocab: Any, style: str) -> AsksTheHost:
        return AsksTheHost()


atrl_envs.register("test/Echo-v0", Echo, max_new_tokens=6)


def echo(**options: Any) -> atrl_envs.VerifiableEnv:
    """The env, with a quick executioner."""
    env = atrl_envs.make("test/Echo-v0", **options)
    env.judge.cases._settings["verdicts"] = {"cpu_seconds": 0.3, "wall_seconds": 5.0}
    return env


def write(env: atrl_envs.VerifiableEnv, state: Any, texts: list[str]) -> Any:
    """The state with whole responses as its action."""
    block = torch.full((env.num_envs, env.block_size), env.vocab.pad_id)
    for row, text in enumerate(texts):
        ids = [*env.vocab.encode(text), env.vocab.eos_id][: env.block_size]
        block[row, : len(ids)] = torch.tensor(ids)
    return state.set(keys.ACTION, block)
