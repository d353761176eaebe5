"""The sampler against a plain-Python oracle, in a plain TorchRL buffer; what it does when it must wait."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer, TensorDictReplayBuffer

from atrl_collectors import GroupStalenessSampler, StalenessPolicy, WaitTimeout, episode_layout
from atrl_collectors.samplers import WAIT
from atrl_envs import keys

LENGTH = 8


def episode(group: int, member: int, version: int, tokens: int = 2) -> TensorDict:
    """One episode [1] whose oldest token is of `version` and whose newest of a later one."""
    row = episode_layout(LENGTH)
    row[keys.GROUP][:], row[keys.MEMBER][:] = group, member
    row[keys.PROMPT_LENGTH][:], row[keys.LENGTH][:] = 2, 2 + tokens
    row[keys.VERSION].fill_(-1)
    row[keys.VERSION][0, 2 : 2 + tokens] = version
    row[keys.RESPONSE_MASK][0, 2 : 2 + tokens] = True
    return row


def episodes(*rows: tuple[int, int, int]) -> TensorDict:
    return torch.cat([episode(*row) for row in rows])


def make(policy: StalenessPolicy, capacity: int = 64, **options: Any) -> TensorDictReplayBuffer:
    """Somebody else's buffer with our sampler."""
    sampler = GroupStalenessSampler(policy, timeout=options.pop("timeout", 0.05))
    storage, size = LazyTensorStorage(capacity), policy.episodes_per_batch
    return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=size, **options)


class Oracle:
    """The same rules, episode by episode."""

    def __init__(self, policy: StalenessPolicy, capacity: int) -> None:
        self.policy, self.capacity = policy, capacity
        self.rows: list[dict[str, int] | None] = [None] * capacity
        self.cursor = 0
        self.dead: dict[int, str] = {}
        self.dropped: Counter[str] = Counter()
        self.trained = 0
        self.finished = 0

    def write(self, group: int, member: int, version: int, tokens: int) -> None:
        old = self.rows[self.cursor]
        self.rows[self.cursor] = {"g": group, "m": member, "v": version, "t": tokens, "u": 0}
        self.cursor = (self.cursor + 1) % self.capacity
        if old is not None:
            self.drop_rows([old], "overwritten")
            self.give_up(old["g"], "overwritten")
        if group in self.dead:
            self.give_up(group, self.dead[group])

    def live(self) -> list[dict[str, int]]:
        return [row for row in self.rows if row is not None]

    def drop_rows(self, rows: list[dict[str, int]], reason: str) -> None:
        for row in rows:
            if row["u"] == 0:
                self.dropped[reason] += row["t"]
        self.rows = [None if row in rows else row for row in self.rows]

    def give_up(self, group: int, reason: str) -> None:
        if group not in self.dead:
            self.dead[group] = reason
            self.finished += 1
        self.drop_rows([row for row in self.live() if row["g"] == group], self.dead[group])

    def ready(self, consumer: int) -> list[int]:
        for row in self.live():
            if consumer - row["v"] > self.policy.max_staleness:
                self.give_up(row["g"], "stale")
        count = Counter(row["g"] for row in self.live())
        return sorted(group for group, n in count.items() if n == self.policy.samples_per_prompt)

    def sample(self, consumer: int) -> list[tuple[int, int, int]] | None:
        groups = self.ready(consumer)[: self.policy.prompts_per_batch]
        if len(groups) < self.policy.prompts_per_batch:
            return None
        chosen = sorted((row for row in self.live() if row["g"] in groups), key=lambda r: (r["g"], r["m"]))
        result = [(row["g"], row["m"], consumer - row["v"]) for row in chosen]
        for row in chosen:
            self.trained += row["t"] if row["u"] == 0 else 0
            row["u"] += 1
        used_up = [row for row in chosen if row["u"] >= self.policy.max_uses]
        self.rows = [None if row in used_up else row for row in self.rows]
        return result


@st.composite
def histories(draw: st.DrawFn) -> tuple[StalenessPolicy, int, list[tuple[str, Any]]]:
    """A policy, a capacity and a mixed sequence of writes (shuffled members), version steps and samples."""
    size = draw(st.integers(1, 3))
    policy = StalenessPolicy(
        prompts_per_batch=draw(st.integers(1, 2)),
        samples_per_prompt=size,
        max_staleness=draw(st.integers(0, 2)),
        max_uses=draw(st.integers(1, 2)),
    )
    capacity = draw(st.integers(policy.episodes_per_batch, 12))
    pairs = [(g, m) for g in range(draw(st.integers(1, 9))) for m in range(size)]
    shift = {pair: pair[0] * size + pair[1] + draw(st.integers(0, 4)) for pair in pairs}  # about in order
    order = sorted(pairs, key=lambda pair: shift[pair])
    writes = [("write", pair, draw(st.integers(0, 2)), draw(st.integers(1, 5))) for pair in order]
    events: list[tuple[str, Any]] = []
    for write in writes:
        events.append(("write", write[1:]))
        events += [(kind, None) for kind in draw(st.lists(st.sampled_from(["step", "sample"]), max_size=2))]
    return policy, capacity, [*events, ("sample", None), ("step", None), ("sample", None)]


@settings(deadline=None, max_examples=150)
@given(histories())
def test_every_choice_and_every_token_is_the_oracles(history: tuple[StalenessPolicy, int, list[Any]]) -> None:
    policy, capacity, events = history
    buffer, oracle, version, generated = make(policy, capacity), Oracle(policy, capacity), 0, 0
    sampler = buffer.sampler
    for kind, data in events:
        if kind == "write":
            (group, member), age, tokens = data
            born = max(0, version - age)
            buffer.extend(episode(group, member, born, tokens))
            sampler.look(buffer.storage)
            oracle.write(group, member, born, tokens)
            generated += tokens
        elif kind == "step":
            version += 1
            sampler.consumer_version = version
        else:
            expected = oracle.sample(version)
            assert sampler.can_sample(buffer.storage, policy.episodes_per_batch) == (expected is not None)
            if expected is None:
                continue
            batch = buffer.sample()
            columns = (batch[keys.GROUP].tolist(), batch[keys.MEMBER].tolist(), batch["staleness"].tolist())
            assert list(zip(*columns, strict=True)) == expected
            assert batch.shape == (policy.episodes_per_batch,)
        books = sampler.books
        books.generated = generated
        books.check(sampler.resident_tokens)
        if kind != "step":
            oracle.ready(version) if kind == "sample" else None
            assert books.trained == oracle.trained
    sampler.consumer_version = version + 1
    sampler._ready(buffer.storage)
    oracle.ready(version + 1)
    assert +Counter(sampler.books.dropped) == +oracle.dropped
    assert sampler.rows.given_up == oracle.finished


def test_groups_are_complete_ordered_and_used_once() -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=2, samples_per_prompt=2))
    buffer.extend(episodes((5, 1, 0), (3, 0, 0), (9, 0, 0), (5, 0, 0), (3, 1, 0), (4, 0, 0)))
    batch = buffer.sample()
    assert batch[keys.GROUP].tolist() == [3, 3, 5, 5]
    assert batch[keys.MEMBER].tolist() == [0, 1, 0, 1]
    assert batch["staleness"].tolist() == [0, 0, 0, 0]
    assert not buffer.can_sample()
    assert buffer.sampler.finished == 0
    buffer.sampler.consumer_version = 1  # only now may new groups start: they get the new weights
    assert buffer.sampler.finished == 2
    assert buffer.sampler.admitted == 4


def test_a_stale_member_drops_its_group_and_those_who_come_late() -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=1, samples_per_prompt=3, max_staleness=1))
    sampler = buffer.sampler
    sampler.consumer_version = 2
    buffer.extend(episodes((0, 0, 0), (0, 1, 2), (1, 0, 1), (1, 1, 2), (1, 2, 2)))
    assert buffer.sample()[keys.GROUP].tolist() == [1, 1, 1]
    assert dict(sampler.books.dropped) == {"stale": 4}
    assert sampler.finished == 1
    buffer.extend(episodes((0, 2, 2)))
    assert not buffer.can_sample()
    assert dict(sampler.books.dropped) == {"stale": 6}
    assert dict(sampler.books.episodes) == {"stale": 3}
    assert sampler.finished == 1


def test_groups_may_be_used_twice() -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=1, samples_per_prompt=1, max_staleness=1, max_uses=2))
    buffer.extend(episodes((0, 0, 0), (1, 0, 0)))
    seen = [int(buffer.sample()[keys.GROUP]) for _ in range(3)]
    assert seen == [0, 0, 1]
    buffer.sampler.consumer_version = 2
    assert not buffer.can_sample()
    books = buffer.sampler.books
    assert (books.trained, dict(books.dropped)) == (4, {})  # once trained is trained
    assert buffer.sampler.finished == 2


def test_it_works_in_a_plain_replay_buffer() -> None:
    policy = StalenessPolicy(prompts_per_batch=1, samples_per_prompt=2)
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), sampler=GroupStalenessSampler(policy), batch_size=2)
    buffer.extend(episodes((0, 0, 0), (0, 1, 0)))
    batch, info = buffer.sample(return_info=True)
    assert batch[keys.MEMBER].tolist() == [0, 1]
    assert info["staleness"].tolist() == [0, 0]


def test_a_timeout_says_who_waits_for_what() -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=2, samples_per_prompt=2))
    buffer.extend(episodes((0, 0, 0), (0, 1, 0), (1, 0, 0)))
    buffer.sampler.explain = lambda: "worker 0 sleeps"
    message = r"(?s)for 2 complete groups of 2.*and 1 came. 1 groups are.*worker 0 sleeps"
    with pytest.raises(WaitTimeout, match=message):
        buffer.sample()
    assert buffer.sampler.waits.seconds[WAIT] >= 0.05
    with pytest.raises(ValueError, match="batch of 3 episodes does not hold complete groups"):
        buffer.sample(3)


def test_a_dead_writer_ends_the_wait() -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=1, samples_per_prompt=1), timeout=60)

    def check() -> None:
        raise ChildProcessError("worker 7 died")

    buffer.sampler.check_alive = check
    with pytest.raises(ChildProcessError, match="worker 7"):
        buffer.sample()
    buffer.extend(episodes((0, 0, 0)))  # the locks are free again
    assert buffer.can_sample()


@pytest.mark.parametrize("shared", [False, True])
def test_a_writer_can_write_while_the_trainer_waits(shared: bool) -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=2, samples_per_prompt=1), timeout=60, shared=shared)
    buffer.extend(episodes((0, 0, 0)))
    waiting = threading.Event()
    buffer.sampler.check_alive = waiting.set

    def write() -> None:
        assert waiting.wait(30)
        buffer.extend(episodes((1, 0, 0)))

    thread = threading.Thread(target=write)
    thread.start()
    assert buffer.sample()[keys.GROUP].tolist() == [0, 1]
    thread.join(30)
    assert not thread.is_alive()
    if shared:
        assert buffer._write_lock.acquire(timeout=5)  # given back after the sample
        buffer._write_lock.release()


def test_more_is_collected_in_the_same_thread() -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=2, samples_per_prompt=2), timeout=60)
    rows = [(0, 0, 0), (1, 1, 0), (1, 0, 0), (0, 1, 0)]

    def more() -> bool:
        buffer.extend(episodes(rows.pop()))
        return True

    buffer.sampler.collect_more = more
    assert buffer.sample()[keys.GROUP].tolist() == [0, 0, 1, 1]
    assert not rows


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))])
def test_its_state_survives(copier: Callable[[Any], Any], tmp_path: Any) -> None:
    policy = StalenessPolicy(prompts_per_batch=1, samples_per_prompt=2, max_staleness=1, max_uses=2)
    first = make(policy)
    first.sampler.consumer_version = 3
    first.extend(episodes((0, 0, 1), (1, 0, 3), (1, 1, 2), (2, 0, 3), (2, 1, 3)))
    first.sample()
    second = make(policy)
    second.extend(episodes((9, 9, 3)))
    second.load_state_dict(copier(first.state_dict()))
    first.sampler.dumps(tmp_path / "sampler")
    third = make(policy)
    third.extend(episodes((0, 0, 1), (1, 0, 3), (1, 1, 2), (2, 0, 3), (2, 1, 3)))
    third.sampler.loads(tmp_path / "sampler")
    for buffer in (first, second, third):
        assert buffer.sampler.consumer_version == 3
        assert buffer.sample()[keys.GROUP].tolist() == [1, 1]
        buffer.extend(episodes((0, 1, 3)))  # late: its group was given up
        assert buffer.sample()[keys.GROUP].tolist() == [2, 2]
        assert buffer.sampler.books.trained == 8
        assert dict(buffer.sampler.books.dropped) == {"stale": 4}


def test_what_cannot_be_is_refused() -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=1, samples_per_prompt=2))
    buffer.sampler.consumer_version = 4
    with pytest.raises(ValueError, match="only grow"):
        buffer.sampler.consumer_version = 3
    buffer.extend(episodes((0, 0, 5), (0, 1, 5)))
    with pytest.raises(ValueError, match="newer than the consumer"):
        buffer.sample()
    crowded = make(StalenessPolicy(prompts_per_batch=1, samples_per_prompt=2))
    crowded.extend(episodes((0, 0, 0), (0, 1, 0), (0, 2, 0)))
    with pytest.raises(ValueError, match="group 0 has 3 episodes"):
        crowded.sample()
    doubled = make(StalenessPolicy(prompts_per_batch=1, samples_per_prompt=2))
    doubled.extend(episodes((4, 1, 0), (4, 1, 0)))
    with pytest.raises(ValueError, match="group 4 has a member twice"):
        doubled.sample()


def test_emptying_keeps_the_version_and_the_books() -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=1, samples_per_prompt=1, max_staleness=0))
    buffer.sampler.consumer_version = 5
    buffer.extend(episodes((0, 0, 5)))
    buffer.can_sample()
    buffer.empty()
    assert buffer.sampler.consumer_version == 5
    assert dict(buffer.sampler.books.dropped) == {"emptied": 2}
    buffer.extend(episodes((1, 0, 5)))
    assert buffer.sample()[keys.GROUP].tolist() == [1]


# Dynamic sampling


def rewarded(group: int, *rewards: float | None) -> TensorDict:
    """A whole group [n] of version 0; None is a member that could not be judged."""
    rows = episodes(*((group, member, 0) for member in range(len(rewards))))
    rows[keys.REWARD] = torch.tensor([float(reward or 0) for reward in rewards])
    rows[keys.SCORED] = torch.tensor([reward is not None for reward in rewards])
    return rows


DYNAMIC = StalenessPolicy(prompts_per_batch=2, samples_per_prompt=2, max_staleness=3, dynamic_sampling=1)


def test_groups_without_contrast_are_replaced() -> None:
    buffer = make(DYNAMIC)
    buffer.extend(torch.cat([rewarded(0, 1, 1), rewarded(1, 0, 1), rewarded(2, None, 1), rewarded(3, 1, 0)]))
    assert buffer.sample()[keys.GROUP].tolist() == [1, 1, 3, 3]
    sampler = buffer.sampler
    assert sampler.books.dropped == {"no contrast": 8} and sampler.books.episodes == {"no contrast": 4}
    assert sampler.finished == 2  # two more may start in their place
    sampler.books.generated = 16
    sampler.books.check(sampler.resident_tokens)


def test_no_more_than_the_limit_is_replaced_for_a_version() -> None:
    """A policy that is always right must not sample for ever: of three flat groups, one batch (two) is dropped."""
    buffer = make(DYNAMIC)
    buffer.extend(torch.cat([rewarded(group, 1, 1) for group in range(4)]))
    assert buffer.sample()[keys.GROUP].tolist() == [2, 2, 3, 3]
    with pytest.raises(WaitTimeout):
        buffer.sample()
    buffer.sampler.consumer_version = 1
    buffer.extend(torch.cat([rewarded(group, 0, 0) for group in range(4, 8)]))
    assert buffer.sample()[keys.GROUP].tolist() == [6, 6, 7, 7]


def test_without_it_nothing_is_replaced() -> None:
    buffer = make(StalenessPolicy(prompts_per_batch=2, samples_per_prompt=2))
    buffer.extend(torch.cat([rewarded(0, 1, 1), rewarded(1, 0, 0)]))
    assert buffer.sample()[keys.GROUP].tolist() == [0, 0, 1, 1]
    assert not buffer.sampler.books.dropped


def test_it_survives_a_checkpoint_of_the_sampler() -> None:
    buffer = make(DYNAMIC)
    buffer.extend(torch.cat([rewarded(0, 1, 1), rewarded(1, 1, 1), rewarded(2, 1, 1), rewarded(3, 0, 1)]))
    buffer.sample()
    state = copy.deepcopy(buffer.sampler.state_dict())
    other = GroupStalenessSampler(DYNAMIC)
    other.load_state_dict(state)
    assert other.rows._refilled == buffer.sampler.rows._refilled == (0, 2)
