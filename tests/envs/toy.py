"""A deterministic typist: what it types is a function of (group, member, problem), whatever the env's block size."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase

import atrl_envs
from atrl_envs import keys


class Episode(NamedTuple):
    """A finished episode as plain Python."""

    tokens: tuple[int, ...]
    prompt_length: int
    problem: int
    verdict: int
    reward: float
    terminated: bool
    truncated: bool


Script = Callable[[Any, int, int, int], list[int]]


def script(env: Any, group: int, member: int, problem: int) -> list[int]:
    """Member 0 types the gold response, member 1 never ends, the others something of varying length."""
    vocab = env.vocab
    rng = random.Random(f"{group} {member}")
    letters = vocab.encode("0123456789+=abc")
    if member == 0:
        return [*vocab.encode(env.bank.response_texts[problem]), vocab.eos_id]
    length = env.max_new_tokens + 50 if member == 1 else rng.randrange(env.max_new_tokens + 1)
    return [*rng.choices(letters, k=length), vocab.eos_id]


def type_block(env: Any, state: TensorDictBase, write: Script = script) -> TensorDictBase:
    """The next block of every slot; what follows the end of a script is noise that the env must ignore."""
    block = torch.full((env.num_envs, env.block_size), env.vocab.eos_id)
    for row in range(env.num_envs):
        group, member, problem = (int(state[key][row]) for key in (keys.GROUP, keys.MEMBER, keys.PROBLEM))
        if group < 0:
            continue
        done = int(state[keys.LENGTH][row] - state[keys.PROMPT_LENGTH][row])
        ids = write(env, group, member, problem)[done : done + env.block_size]
        noise = [(7 * row + place) % env.vocab.size for place in range(env.block_size - len(ids))]
        block[row] = torch.tensor(ids + noise)
    return state.set(keys.ACTION, block)


def play(
    env: Any, episodes: int, write: Script = script, limit: int = 2_000
) -> dict[tuple[int, int], Episode]:
    """Episodes by (group, member), until so many have ended; fails if one comes twice."""
    found: dict[tuple[int, int], Episode] = {}
    state = env.reset()
    for _ in range(limit):
        step, state = env.step_and_maybe_reset(type_block(env, state, write))
        after = step[keys.NEXT]
        for row in (after[keys.DONE] & (after[keys.GROUP] >= 0)).squeeze(1).nonzero().squeeze(1).tolist():
            key = (int(after[keys.GROUP][row]), int(after[keys.MEMBER][row]))
            assert key not in found, f"{key} was handed out twice"
            found[key] = _episode(after[row])
        if len(found) >= episodes:
            return found
    raise AssertionError(f"only {len(found)} of {episodes} episodes ended in {limit} steps")


def _episode(row: TensorDictBase) -> Episode:
    length = int(row[keys.LENGTH])
    return Episode(
        tokens=tuple(row[keys.TOKENS][:length].tolist()),
        prompt_length=int(row[keys.PROMPT_LENGTH]),
        problem=int(row[keys.PROBLEM]),
        verdict=int(row[keys.VERDICT]),
        reward=float(row[keys.REWARD]),
        terminated=bool(row[keys.TERMINATED]),
        truncated=bool(row[keys.TRUNCATED]),
    )


def addition(**options: Any) -> Any:
    """A small addition env: 0..20, two operands."""
    return atrl_envs.make("atrl/Addition-v0", **{"low": 0, "high": 20, **options})
