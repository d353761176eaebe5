"""Weights arrive whole or not at all, whoever is killed when."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atrl_collectors import WeightMailbox, fingerprint
from atrl_collectors.weights import BEGUN, LATEST


def some_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(17, 5, generator=generator),
        "half": torch.randn(3, 3, generator=generator).to(torch.bfloat16),
        "scalar": torch.tensor(seed),
        "nothing": torch.empty(0, 4),
        "flags": torch.tensor([True, False, seed % 2 == 0]),
        "transposed": torch.randn(4, 6, generator=generator).t(),
    }


@pytest.fixture
def mailbox(tmp_path: Path) -> WeightMailbox:
    return WeightMailbox.create(tmp_path / "weights", some_tensors())


def test_a_reader_gets_what_was_published(mailbox: WeightMailbox) -> None:
    reader = WeightMailbox.open(mailbox.path)
    assert reader.poll() is None
    assert reader.version == -1
    for version in (0, 1, 5):
        tensors = some_tensors(version)
        digest = mailbox.publish(tensors, version)
        update = reader.poll(newer_than=version - 1)
        assert update is not None
        assert (update.version, update.fingerprint) == (version, digest)
        assert digest == fingerprint(tensors)
        for name, tensor in tensors.items():
            assert update.tensors[name].dtype == tensor.dtype
            assert torch.equal(update.tensors[name], tensor)
        assert reader.poll(newer_than=version) is None


def test_an_update_stays_what_it_was_while_others_are_published(mailbox: WeightMailbox) -> None:
    mailbox.publish(some_tensors(1), 1)
    update = WeightMailbox.open(mailbox.path).poll()
    assert update is not None
    for version in range(2, 6):
        mailbox.publish(some_tensors(version), version)
    assert fingerprint(update.tensors) == update.fingerprint
    assert torch.equal(update.tensors["weight"], some_tensors(1)["weight"])


def test_pickling_sends_the_path(mailbox: WeightMailbox) -> None:
    mailbox.publish(some_tensors(), 3)
    data = pickle.dumps(mailbox)
    assert len(data) < 500
    other = pickle.loads(data)
    assert other.version == 3
    mailbox.admitted, mailbox.closed = 12, True
    assert (other.admitted, other.closed) == (12, True)


@pytest.mark.parametrize("version", [2, 3, -1])
def test_versions_only_grow(mailbox: WeightMailbox, version: int) -> None:
    mailbox.publish(some_tensors(), 3)
    with pytest.raises(ValueError, match="only grow"):
        mailbox.publish(some_tensors(), version)


def test_other_weights_are_refused(mailbox: WeightMailbox) -> None:
    tensors = some_tensors()
    with pytest.raises(ValueError, match=r"missing \['half'\].*unknown \['more'\]"):
        mailbox.publish({**{n: t for n, t in tensors.items() if n != "half"}, "more": tensors["half"]}, 1)
    with pytest.raises(ValueError, match=r"'weight'.*\(5, 17\).*holds \(17, 5\)"):
        mailbox.publish({**tensors, "weight": tensors["weight"].t()}, 1)
    with pytest.raises(ValueError, match=r"'scalar'.*float64"):
        mailbox.publish({**tensors, "scalar": torch.tensor(1.0, dtype=torch.float64)}, 1)
    assert mailbox.poll() is None


def test_there_is_one_publisher(mailbox: WeightMailbox) -> None:
    with pytest.raises(RuntimeError, match="has a publisher"):
        WeightMailbox.open(mailbox.path).publish(some_tensors(), 1)


def test_a_missing_or_foreign_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no shared file"):
        WeightMailbox.open(tmp_path / "nowhere")
    (tmp_path / "text").write_text("something else entirely")
    with pytest.raises(ValueError, match="not a shared file"):
        WeightMailbox.open(tmp_path / "text")


def test_a_publisher_that_dies_while_writing_leaves_the_last_version(mailbox: WeightMailbox) -> None:
    mailbox.publish(some_tensors(1), 1)
    # What a publication does until just before its end.
    slot = (int(mailbox._control[LATEST]) + 1) % len(mailbox._slots)
    mailbox._slots[slot, BEGUN] = int(mailbox._control[LATEST]) + 1
    mailbox._weights[slot].fill_(77)
    update = WeightMailbox.open(mailbox.path).poll()
    assert update is not None
    assert update.version == 1
    assert torch.equal(update.tensors["weight"], some_tensors(1)["weight"])
    mailbox.publish(some_tensors(2), 2)  # and a successor goes on
    assert WeightMailbox.open(mailbox.path).version == 2


@pytest.mark.parametrize("laps", [1, 2, 3])
def test_a_reader_that_is_lapped_tries_again(mailbox: WeightMailbox, laps: int) -> None:
    mailbox.publish(some_tensors(1), 1)
    reader = WeightMailbox.open(mailbox.path)
    take = reader._take

    def slow(slot: int) -> dict[str, torch.Tensor]:
        reader._take = take  # type: ignore[method-assign]
        for version in range(2, 2 + laps):
            mailbox.publish(some_tensors(version), version)
        return take(slot)

    reader._take = slow  # type: ignore[method-assign]
    update = reader.poll()
    assert update is not None
    assert torch.equal(update.tensors["weight"], some_tensors(update.version)["weight"])
    assert reader.torn == (laps > 1)  # one lap fills the other slot, two come back to ours


def test_a_mixed_copy_fails_the_fingerprint(mailbox: WeightMailbox) -> None:
    mailbox.publish(some_tensors(1), 1)
    slot = int(mailbox._control[LATEST]) % len(mailbox._slots)
    mailbox._weights[slot, 40] += 1  # as if a store of somebody else had arrived late
    reader = WeightMailbox.open(mailbox.path)
    assert reader.poll() is None
    assert reader.torn > 0


def _publish_for_ever(mailbox_path: str) -> None:
    mailbox = WeightMailbox.open(mailbox_path)
    version = mailbox.version
    while True:
        version += 1
        tensors = {"a": torch.full((20_000,), float(version)), "b": torch.full((77,), version)}
        mailbox.publish(tensors, version)


def test_killing_publishers_at_any_moment_never_mixes_versions(tmp_path: Path) -> None:
    mailbox = WeightMailbox.create(tmp_path / "w", {"a": torch.zeros(20_000), "b": torch.zeros(77).long()})
    path = str(mailbox.path)
    del mailbox  # gives up being the publisher
    reader = WeightMailbox.open(path)
    seen = -1
    for attempt in range(6):  # fork: what is tested is the moment, and a fork starts at once
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=_publish_for_ever, args=(path,), daemon=True)
        process.start()
        deadline = time.monotonic() + 20
        before = seen
        while seen < before + 3 + attempt and time.monotonic() < deadline:
            update = reader.poll(newer_than=seen)
            if update is not None:
                assert bool((update.tensors["a"] == update.version).all())
                assert bool((update.tensors["b"] == update.version).all())
                seen = update.version
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert seen > before
        assert WeightMailbox.open(path).poll() is not None  # the last complete one is still there
    update = reader.poll()
    assert update is not None
    assert bool((update.tensors["a"] == update.version).all())


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3000), st.data())
def test_a_fingerprint_sees_every_byte_and_its_place(size: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(size)
    raw = torch.randint(0, 256, (size,), generator=generator, dtype=torch.uint8)
    base = fingerprint({"w": raw})
    assert fingerprint({"w": raw.clone()}) == base
    position = data.draw(st.integers(0, size - 1))
    changed = raw.clone()
    changed[position] ^= 1 << data.draw(st.integers(0, 7))
    assert fingerprint({"w": changed}) != base
    other = data.draw(st.integers(0, size - 1))
    swapped = raw.clone()
    swapped[position], swapped[other] = raw[other], raw[position]
    assert (fingerprint({"w": swapped}) == base) == bool(raw[position] == raw[other])
    assert fingerprint({"v": raw}) != base
    assert fingerprint({"w": raw.view(1, -1)}) != base


def test_a_fingerprint_sees_order_dtype_and_any_mixture_of_versions() -> None:
    a, b = torch.zeros(4), torch.zeros(4, dtype=torch.int32)
    assert fingerprint({"a": a, "b": a}) != fingerprint({"b": a, "a": a})
    assert fingerprint({"a": a}) != fingerprint({"a": b})
    assert fingerprint({}) == fingerprint({})
    assert -(1 << 63) <= fingerprint({"a": a}) < 1 << 63
    torch.tensor([fingerprint({"a": a})], dtype=torch.int64)  # fits the policy's buffer
    old, new = torch.full((100_000,), 1.0), torch.full((100_000,), 2.0)
    digests = {fingerprint({"w": torch.cat([new[:cut], old[cut:]])}) for cut in range(0, 100_001, 2_000)}
    assert len(digests) == 51  # chunks do not cancel
    words = torch.arange(50_000) ** 3
    for first, second in [
        (0, 1),
        (3, 40_000),
        (32_767, 32_768),
        (5, 32_773),
    ]:  # in a chunk and between chunks
        swapped = words.clone()
        swapped[first], swapped[second] = words[second], words[first]
        assert fingerprint({"w": swapped}) != fingerprint({"w": words})
    unaligned = torch.arange(9, dtype=torch.uint8)[1:]
    assert fingerprint({"w": unaligned}) == fingerprint({"w": unaligned.clone()})
