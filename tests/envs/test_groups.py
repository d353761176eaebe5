"""The stream of groups against a plain loop, with admission limits, and on a device that may not be asked."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_envs import groups
from atrl_envs.groups import GroupStream
from atrl_envs.streams import mix, permuted_index

CPU = torch.device("cpu")


def stream(**options: Any) -> GroupStream:
    return GroupStream(**{"size": 7, "group_size": 3, "seed": 5, "split": "train", "device": CPU, **options})


def expected(number: int, **options: Any) -> list[tuple[int, int, int]]:
    """(problem, group, member) in order, one at a time."""
    o = {"size": 7, "group_size": 3, "seed": 5, "worker": 0, "num_workers": 1, "start_group": 0, **options}
    found = []
    for place in range(number):
        index, member = divmod(place, o["group_size"])
        group = o["start_group"] + o["worker"] + index * o["num_workers"]
        epoch, item = divmod(group, o["size"])
        problem = int(permuted_index(mix(o["seed"], 0, epoch), torch.tensor([item]), o["size"]))
        found.append((problem, group, member))
    return found


def take(
    source: GroupStream, masks: list[list[bool]], admitted: int | None = None
) -> list[tuple[int, int, int]]:
    found = []
    for mask in masks:
        slots = source.assign(torch.tensor(mask), admitted)
        rows = torch.stack([slots.problem, slots.group, slots.member], 1)[torch.tensor(mask)]
        found += [tuple(row) for row in rows.tolist()]
    return found


@given(
    masks=st.lists(st.lists(st.booleans(), min_size=5, max_size=5), max_size=20),
    size=st.integers(1, 40),
    group_size=st.integers(1, 6),
    num_workers=st.integers(1, 4),
    start_group=st.integers(0, 30),
)
@settings(max_examples=60, deadline=None)
def test_slots_get_the_stream_in_slot_order(
    masks: list[list[bool]], size: int, group_size: int, num_workers: int, start_group: int
) -> None:
    options = {"size": size, "group_size": group_size, "num_workers": num_workers, "start_group": start_group}
    options["worker"] = num_workers - 1
    found = take(stream(**options), masks)
    assert found == expected(sum(map(sum, masks)), **options)


def test_an_epoch_asks_every_problem_once_and_the_next_in_another_order() -> None:
    source = stream(size=50, group_size=1)
    epochs = [[p for p, _, _ in take(source, [[True] * 50])] for _ in range(3)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    plain = stream(size=4, group_size=1, shuffle=False)
    assert [p for p, _, _ in take(plain, [[True] * 6])] == [0, 1, 2, 3, 0, 1]
    other = [p for p, _, _ in take(stream(size=50, group_size=1, seed=6), [[True] * 50])]
    assert sum(a == b for a, b in zip(epochs[0], other, strict=True)) < 10
    test = [p for p, _, _ in take(stream(size=50, group_size=1, split="test"), [[True] * 50])]
    assert test != epochs[0]


def test_two_workers_hand_out_what_one_does() -> None:
    alone = take(stream(), [[True] * 12] * 3)
    shared = [take(stream(worker=w, num_workers=2), [[True] * 6] * 3) for w in (0, 1)]
    assert sorted(shared[0] + shared[1]) == sorted(alone)
    assert {group % 2 for _, group, _ in shared[1]} == {1}


def test_only_admitted_groups_start_and_begun_groups_finish() -> None:
    source = stream(group_size=3)
    assert source.assign(torch.ones(2, dtype=torch.bool), 0).nothing
    first = source.assign(torch.ones(4, dtype=torch.bool), 1)
    assert first.group.tolist() == [0, 0, 0, -1]
    assert first.problem.tolist()[3] == first.member.tolist()[3] == -1
    assert not first.nothing
    assert source.assign(torch.ones(4, dtype=torch.bool), 1).nothing
    assert not source.assign(torch.tensor([True, False]), 1).nothing  # a slot is still busy
    assert take(source, [[True] * 4], admitted=3) == expected(7)[3:]
    # A limit that moves back does not strand group 2, of which one member is out.
    assert [group for _, group, _ in take(source, [[True] * 4], admitted=0)] == [2, 2, -1, -1]


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_admission_counts_groups_of_the_whole_run(num_workers: int) -> None:
    for admitted in range(9):
        started = set()
        for worker in range(num_workers):
            found = take(stream(worker=worker, num_workers=num_workers), [[True] * 40], admitted)
            started |= {group for _, group, _ in found if group >= 0}
        assert started == set(range(admitted))


def test_seek_continues_exactly() -> None:
    source, again = stream(), stream()
    take(source, [[True] * 8])
    again.seek(source.place)
    assert take(again, [[True] * 9]) == take(source, [[True] * 9]) == expected(17)[8:]


class BlindStream(GroupStream):
    """A stream that behaves as on an accelerator: the host keeps only an upper bound of the place."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked_device = 0
        self.on_host = False

    @property
    def place(self) -> int:
        self.asked_device += 1
        return super().place


def test_an_accelerator_is_asked_only_where_a_limit_may_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_WINDOW", 8)
    rng = random.Random(0)
    source = BlindStream(size=11, group_size=2, seed=5, split="train", device=CPU)
    masks = [[rng.random() < 0.2 for _ in range(6)] for _ in range(200)]
    found = take(source, masks)
    assert found == expected(len(found), size=11, group_size=2)
    assert source.asked_device == 0
    start = len(found)
    more = take(source, masks, admitted=10_000)
    assert more == expected(start + len(more), size=11, group_size=2)[start:]
    assert source.asked_device == 0
    admitted = (start + len(more)) // 2 + 3
    last = [row for row in take(source, masks, admitted) if row[1] >= 0]
    assert last == expected(2 * admitted, size=11, group_size=2)[start + len(more) :]
    assert source.asked_device > 0
