"""Blocks become episodes, whatever the block size, and every token is counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.collectors import Collector

from atrl_collectors import EpisodeAssembler, episode_layout
from atrl_collectors.episodes import oldest_version, response_tokens
from atrl_envs import keys
from tests.collectors.toy_rollouts import EOS, LIMIT, PAD, PROMPT, S, ToyEnv, ToyPolicy, true_length, wanted


def rollouts(block: int, steps: int, count: int, groups: int = 9) -> Iterator[TensorDictBase]:
    """`count` rollouts [6, steps] of a plain TorchRL collector; the version goes up after each block."""
    env, policy = ToyEnv(block=block), ToyPolicy(block=block)
    env.admission, env.idle_wait = (lambda: groups), 0.0
    policy.on_block = lambda: policy.version.add_(1)  # type: ignore[method-assign]
    policy.version.fill_(0)
    collector = Collector(env, policy, frames_per_batch=6 * steps, trust_policy=True)
    iterator = iter(collector)
    for _ in range(count):
        yield next(iterator)
    collector.shutdown()


def assemble(block: int, steps: int) -> tuple[TensorDict, EpisodeAssembler]:
    assembler = EpisodeAssembler()
    count = 18 * (LIMIT // block + 2) // steps // 3 + 2
    found = [assembler(rollout) for rollout in rollouts(block, steps, count)]
    return torch.cat(found), assembler


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("block", [1, 3, 5, LIMIT, LIMIT + 3])
def test_every_block_size_gives_the_known_episodes(block: int, steps: int) -> None:
    episodes, assembler = assemble(block, steps)
    group, member = episodes[keys.GROUP], episodes[keys.MEMBER]
    pairs = sorted(zip(group.tolist(), member.tolist(), strict=True))
    assert pairs == [(g, m) for g in range(9) for m in (0, 1)]
    length = true_length(group, member)
    assert torch.equal(response_tokens(episodes), length)
    assert torch.equal(episodes[keys.TRUNCATED], wanted(group, member) > LIMIT)
    assert torch.equal(episodes[keys.REWARD], (~episodes[keys.TRUNCATED]).float())
    assert torch.equal(episodes[keys.VERDICT], episodes[keys.TRUNCATED].to(torch.int8))
    assert torch.equal(episodes[keys.PROBLEM], group % 7)
    assert int(assembler.in_flight) == 0
    assert assembler.generated == int(length.sum())

    index = torch.arange(S)
    offset = index - PROMPT
    mask = (offset >= 0) & (offset < length.unsqueeze(1))
    assert torch.equal(episodes[keys.RESPONSE_MASK], mask)
    last = offset == (wanted(group, member) - 1).unsqueeze(1)
    tokens = torch.where(mask, torch.where(last, EOS, 2 + offset % 50), PAD)
    tokens[:, 0], tokens[:, 1] = 2 + group % 7, 2 + member
    assert torch.equal(episodes[keys.TOKENS], tokens)

    version = episodes[keys.VERSION]
    assert bool((version[~mask] == -1).all())
    assert bool((version[mask] >= 0).all())
    expected = torch.where(mask, -(offset + version / 100).float(), 0.0)
    torch.testing.assert_close(episodes[keys.LOG_PROB], expected)
    # One version a block: the tokens of a block share it, and later blocks have later ones.
    for row in range(len(episodes)):
        mine = version[row][mask[row]]
        assert torch.equal(mine, mine[0] + torch.arange(len(mine)) // block)
    first = torch.stack([v[m][0] for v, m in zip(version, mask, strict=True)])
    assert torch.equal(oldest_version(episodes), first)


def test_the_layout_is_the_same_for_none_and_some() -> None:
    some, _ = assemble(3, 1)
    none = EpisodeAssembler()(list(rollouts(1, 1, 2))[1])  # nothing ends in the second step
    assert len(none) == 0
    layout = episode_layout(S)
    for episodes in (some, none):
        assert set(episodes.keys()) == set(layout.keys())
        for name, column in layout.items():
            assert episodes[name].dtype == column.dtype
            assert episodes[name].shape[1:] == column.shape[1:]


def test_tokens_are_counted_at_every_moment() -> None:
    assembler, emitted = EpisodeAssembler(), 0
    for rollout in rollouts(3, 1, 20):
        emitted += int(response_tokens(assembler(rollout)).sum())
        assert assembler.generated == emitted + assembler.in_flight + assembler.abandoned
    assert emitted > 0


def test_an_episode_that_the_environment_breaks_off_is_counted_as_abandoned() -> None:
    assembler = EpisodeAssembler()
    steps = list(rollouts(1, 1, 2))
    emitted = sum(int(response_tokens(assembler(step)).sum()) for step in steps)
    partial = assembler.in_flight
    assert partial > 0
    other = steps[0].clone()  # every slot is at the beginning of another group
    other[keys.GROUP] += 100
    other[keys.NEXT, keys.DONE].fill_(False)
    assert len(assembler(other)) == 0
    assert assembler.abandoned == partial
    assert assembler.in_flight == 6
    assert assembler.generated == emitted + partial + 6


def test_what_cannot_be_is_refused() -> None:
    step = next(rollouts(3, 1, 1))
    grown = step.clone()
    grown[keys.NEXT, keys.LENGTH] += 7
    with pytest.raises(ValueError, match="in a block of 3 tokens an episode grew by"):
        EpisodeAssembler()(grown)
    unversioned = step.clone()
    unversioned[keys.VERSION].fill_(-1)
    unversioned[keys.NEXT, keys.DONE].fill_(True)
    with pytest.raises(ValueError, match="below 0"):
        EpisodeAssembler()(unversioned)
