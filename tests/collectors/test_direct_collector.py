"""Collection in one process: the synchronous order, staleness, and the books."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from atrl_collectors import EpisodeCollector, StalenessPolicy, WeightMailbox, make_buffer, make_collector
from atrl_collectors.episodes import response_tokens
from atrl_envs import keys
from tests.collectors.toy_rollouts import MakeEnv, MakePolicy, S, ToyEnv, ToyPolicy, toy_weights, true_length


def run(
    tmp_path: Path, steps: int, policy: StalenessPolicy, **env: Any
) -> tuple[EpisodeCollector, list[Any], list[Any]]:
    buffer = make_buffer(policy, S, timeout=30)
    mailbox = WeightMailbox.create(tmp_path / "weights", toy_weights(0))
    block = env.get("block", 3)
    policy_fn = MakePolicy(mailbox, block=block)
    batches, ages = [], []
    with make_collector(MakeEnv(**env), policy_fn, buffer=buffer, mailbox=mailbox) as collector:
        for version in range(steps):
            mailbox.publish(toy_weights(version), version)
            collector.advance(version)
            batch = buffer.sample()
            ages.append(batch["staleness"])
            batches.append(batch.exclude("staleness", "index"))
            collector.check_books()
    collector.check_books()
    return collector, batches, ages


def test_no_staleness_is_the_synchronous_order(tmp_path: Path) -> None:
    policy = StalenessPolicy(prompts_per_batch=3, samples_per_prompt=2)
    collector, batches, ages = run(tmp_path, 5, policy)
    for step, batch in enumerate(batches):
        assert batch[keys.GROUP].tolist() == [g for g in range(3 * step, 3 * step + 3) for _ in (0, 1)]
        assert batch[keys.MEMBER].tolist() == [0, 1] * 3
        assert bool((batch[keys.VERSION][batch[keys.RESPONSE_MASK]] == step).all())
        assert torch.equal(response_tokens(batch), true_length(batch[keys.GROUP], batch[keys.MEMBER]))
    assert all(not age.any() for age in ages)
    books = collector.buffer.books
    assert books.generated == books.trained == sum(int(response_tokens(batch).sum()) for batch in batches)
    assert not +books.dropped


@pytest.mark.parametrize("env", [{"block": 1}, {"block": 14}, {"slots": 1}, {"slots": 17, "block": 4}])
def test_neither_blocks_nor_slots_change_a_synchronous_batch(tmp_path: Path, env: dict[str, int]) -> None:
    policy = StalenessPolicy(prompts_per_batch=3, samples_per_prompt=2)
    (tmp_path / "other").mkdir()
    _, expected, _ = run(tmp_path, 3, policy)
    _, batches, _ = run(tmp_path / "other", 3, policy, **env)
    for batch, other in zip(batches, expected, strict=True):
        assert bool((batch == other).all())


def test_progress_balances_in_the_middle_of_a_run(tmp_path: Path) -> None:
    policy = StalenessPolicy(prompts_per_batch=3, samples_per_prompt=2, max_staleness=2)
    buffer = make_buffer(policy, S, timeout=30)
    mailbox = WeightMailbox.create(tmp_path / "weights", toy_weights(0))
    with make_collector(MakeEnv(slots=10), MakePolicy(mailbox), buffer=buffer, mailbox=mailbox) as collector:
        for version in range(3):
            mailbox.publish(toy_weights(version), version)
            collector.advance(version)
            buffer.sample()
        assert collector.in_flight > 0
        later = make_buffer(policy, S)
        later.restore(buffer.progress())
        later.books.check(0)
        assert later.next_group == buffer.next_group
        collector.check_books()


@pytest.mark.parametrize(("eta", "uses"), [(1, 1), (3, 1), (2, 2)])
def test_staleness_is_bounded_and_every_token_accounted_for(tmp_path: Path, eta: int, uses: int) -> None:
    policy = StalenessPolicy(prompts_per_batch=3, samples_per_prompt=2, max_staleness=eta, max_uses=uses)
    collector, batches, ages = run(tmp_path, 12, policy, slots=10)
    assert all(int(age.max()) <= eta for age in ages)
    assert max(int(age.max()) for age in ages) > 0
    groups = [tuple(batch[keys.GROUP].tolist()) for batch in batches]
    assert all(len(set(batch)) == 3 for batch in groups)
    uses_of = torch.tensor([g for batch in groups for g in set(batch)]).bincount()
    assert int(uses_of.max()) == uses
    assert collector.in_flight == 0


def test_dynamic_sampling_fills_batches_with_contrast(tmp_path: Path) -> None:
    """Members of a toy group are right unless cut, so contrast is a function of the group."""
    policy = StalenessPolicy(prompts_per_batch=3, samples_per_prompt=2, dynamic_sampling=10)
    collector, batches, _ = run(tmp_path, 4, policy)
    for batch in batches:
        reward = batch[keys.REWARD].view(3, 2)
        assert bool((reward[:, 0] != reward[:, 1]).all())
    books = collector.buffer.books
    assert books.episodes["no contrast"] > 0
    assert books.trained == sum(int(response_tokens(batch).sum()) for batch in batches)


def test_the_environment_and_the_policy_may_be_given_themselves() -> None:
    buffer = make_buffer(StalenessPolicy(prompts_per_batch=2, samples_per_prompt=2), S, timeout=30)
    env, policy = ToyEnv(), ToyPolicy()
    policy.version.fill_(0)
    with make_collector(env, policy, buffer=buffer, sync=True) as collector:
        batch = buffer.sample()
        assert batch[keys.GROUP].tolist() == [0, 0, 1, 1]
        status = collector.status()[0]
        assert status.version == 0
        assert status.tokens_generated == int(response_tokens(batch).sum())
        assert abs(sum(status.fractions().values()) - 1) < 0.7
        assert "decoding" in collector.explain() or "waits for admission" in collector.explain()


def test_a_dead_end_is_an_error_not_a_wait() -> None:
    buffer = make_buffer(StalenessPolicy(prompts_per_batch=2, samples_per_prompt=3), S, timeout=30)
    policy = ToyPolicy()
    policy.version.fill_(0)
    with (
        make_collector(ToyEnv(group_size=2), policy, buffer=buffer),  # groups of two where three are wanted
        pytest.raises(RuntimeError, match="no more episodes can come.*group_size must be samples_per_prompt"),
    ):
        buffer.sample()


def test_an_interruption_ends_a_wait_between_blocks(tmp_path: Path) -> None:
    buffer = make_buffer(StalenessPolicy(prompts_per_batch=3, samples_per_prompt=2), S, timeout=30)
    policy, calls = ToyPolicy(), []

    def interrupt() -> None:
        calls.append(policy.blocks_at_work)
        if policy.blocks_at_work == 2:
            raise InterruptedError

    policy.version.fill_(0)
    with make_collector(ToyEnv(), policy, buffer=buffer) as collector:
        collector.interrupt = interrupt
        with pytest.raises(InterruptedError):
            buffer.sample()
        assert calls[-1] == 2
        collector.check_books()
        collector.interrupt = None
        assert buffer.sample()[keys.GROUP].tolist() == [0, 0, 1, 1, 2, 2]  # and it can go on


def test_closing_twice_is_fine_and_drops_what_is_in_flight(tmp_path: Path) -> None:
    policy = StalenessPolicy(prompts_per_batch=3, samples_per_prompt=2, max_staleness=2)
    collector, _, _ = run(tmp_path, 2, policy)
    assert collector.buffer.books.dropped["closed"] > 0
    before = collector.buffer.books.state_dict()
    collector.close()
    assert collector.buffer.books.state_dict() == before
    collector.check_books()
    with pytest.raises(RuntimeError, match="no more will come"):
        while True:
            collector.buffer.sample()


def test_a_version_must_be_published_before_it_is_advanced_to(tmp_path: Path) -> None:
    buffer = make_buffer(StalenessPolicy(prompts_per_batch=1, samples_per_prompt=2), S)
    mailbox = WeightMailbox.create(tmp_path / "weights", toy_weights(0))
    with (
        make_collector(ToyEnv(), ToyPolicy(), buffer=buffer, mailbox=mailbox) as collector,
        pytest.raises(RuntimeError, match="publish version 1 first: the mailbox holds -1"),
    ):
        collector.advance(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync": False}, "sync=False contradicts max_staleness=0"),
        ({"num_workers": 2}, "needs backend='process'"),
        ({"backend": "process"}, "needs a mailbox"),
        ({"backend": "thread"}, "unknown backend 'thread'"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], message: str) -> None:
    buffer = make_buffer(StalenessPolicy(prompts_per_batch=1, samples_per_prompt=2), S)
    with pytest.raises(ValueError, match=message):
        make_collector(MakeEnv(), MakePolicy(None), buffer=buffer, **options)
    with pytest.raises(TypeError, match="workers"):
        make_collector(MakeEnv(), MakePolicy(None), buffer=buffer, workers=2)


def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    policy = StalenessPolicy(prompts_per_batch=3, samples_per_prompt=2)
    (tmp_path / "whole").mkdir()
    _, expected, _ = run(tmp_path / "whole", 4, policy)
    first, batches, _ = run(tmp_path, 2, policy)
    first.buffer.consumer_version = 2
    progress = first.buffer.progress()

    buffer = make_buffer(policy, S, timeout=30)
    buffer.restore(progress)
    mailbox = WeightMailbox.create(tmp_path / "again", toy_weights(0))
    env = MakeEnv(start_group=buffer.next_group)
    with make_collector(env, MakePolicy(mailbox), buffer=buffer, mailbox=mailbox) as collector:
        for version in (2, 3):
            mailbox.publish(toy_weights(version), version)
            collector.advance(version)
            batches.append(buffer.sample().exclude("staleness", "index"))
            collector.check_books()
    assert all(bool((batch == other).all()) for batch, other in zip(batches, expected, strict=True))
