"""Timers, records and channels between processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from atrl_collectors import Waits
from atrl_collectors.channel import EpisodeChannel
from atrl_collectors.telemetry import FIELDS, WorkerRecord
from atrl_envs import keys
from tests.collectors.test_sampler import LENGTH, episode, episodes


def test_waits_inside_waits_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    waits = Waits()
    with waits("outer"):
        now[0] += 1
        with waits("inner"):
            now[0] += 2
            assert waits.current == ("inner", 2.0)
        now[0] += 4
    now[0] += 3
    assert dict(waits.seconds) == {"outer": 5.0, "inner": 2.0}
    assert waits.fractions() == {"outer": 0.5, "inner": 0.2}
    assert waits.current is None


def test_a_record_shows_only_what_was_committed(tmp_path: Path) -> None:
    writer = WorkerRecord.create(tmp_path / "record")
    reader = WorkerRecord.open(tmp_path / "record")
    writer["blocks"], writer["version"] = 7, 3
    assert reader.read().blocks == 0
    assert reader.read().version == -1
    writer.commit()
    assert (reader.read().blocks, reader.read().version) == (7, 3)
    assert "has not begun" in reader.read().describe()


def _count_for_ever(path: str) -> None:
    record = WorkerRecord.open(path)
    while True:
        for name in FIELDS:
            record[name] += 1
        record.commit()


def test_a_record_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "record")
    reader = WorkerRecord.create(path)
    reader["version"] = 0
    reader.commit()
    seen = 0
    for _ in range(4):
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=_count_for_ever, args=(path,), daemon=True)
        process.start()
        target = seen + 500
        deadline = time.monotonic() + 20
        while seen < target and time.monotonic() < deadline:
            values = set(vars(reader.read()).values())
            assert len(values) == 1
            assert values.pop() >= seen
            seen = reader.read().blocks
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert len(set(vars(reader.read()).values())) == 1
    assert seen > 1000


def test_a_channel_gives_every_episode_once_and_in_order(tmp_path: Path) -> None:
    reader = EpisodeChannel.create(tmp_path / "channel", LENGTH, capacity=4)
    writer = EpisodeChannel.open(tmp_path / "channel")
    written, taken = 0, []
    for count in (3, 1, 0, 2, 4, 4, 1):
        while writer.room(written) < count:
            rows = reader.take(written)
            assert rows is not None
            taken += rows[keys.GROUP].tolist()
        if count:
            writer.put(episodes(*[(written + n, n, 0) for n in range(count)]), written)
        written += count
    rows = reader.take(written)
    assert rows is not None
    taken += rows[keys.GROUP].tolist()
    assert taken == list(range(written))
    assert reader.take(written) is None
    assert set(rows.keys()) == set(episode(0, 0, 0).keys())


def test_rows_that_were_not_counted_do_not_exist(tmp_path: Path) -> None:
    channel = EpisodeChannel.create(tmp_path / "channel", LENGTH, capacity=4)
    channel.put(episodes((0, 0, 0), (0, 1, 0)), written=0)  # and killed here
    assert channel.take(written=0) is None
    with pytest.raises(ValueError, match="5 episodes do not fit"):
        channel.put(episodes(*[(0, n, 0) for n in range(5)]), written=0)
