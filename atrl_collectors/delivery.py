"""Where a worker hands over its episodes and says how it is doing; opened by path inside the worker.

deliver = Delivery(record, put=buffer.extend)                    # in one process
deliver = Desk(directory, mailbox.path).for_worker(1)            # in worker 1 of several
deliver(episodes)                                                # [n]; waits while the channel is full
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tensordict import TensorDictBase

from atrl_collectors import telemetry
from atrl_collectors.channel import EpisodeChannel
from atrl_collectors.episodes import response_tokens
from atrl_collectors.telemetry import WorkerRecord
from atrl_collectors.weights import WeightMailbox


@dataclass
class Delivery:
    """Where a collector hands its episodes, and where it says how it is doing."""

    record: WorkerRecord
    put: Callable[[TensorDictBase], Any] | None = None  # in the same process
    channel: EpisodeChannel | None = None  # or to another one
    closed: Callable[[], bool] = lambda: False
    failure: Path | None = None  # the file that tells the trainer why this worker failed

    def for_worker(self, worker: int) -> Delivery:
        """The part of one worker: here there is only one."""
        return self

    def __call__(self, episodes: TensorDictBase) -> None:
        """Deliver episodes [n] and count them, in one commit. Waits while the channel is full."""
        start = 0
        while start < len(episodes):
            count = self._wait_for_room(len(episodes) - start)
            if not count:
                return  # closed: nobody will take them; they stay in flight
            part = episodes[start : start + count]
            if self.channel is not None:
                self.channel.put(part, self.record["episodes_delivered"])
            elif self.put is not None:
                self.put(part)
            tokens = int(response_tokens(part).sum())
            self.record["episodes_delivered"] += count
            self.record["tokens_delivered"] += tokens
            self.record["tokens_in_flight"] -= tokens
            self.record.commit()
            start += count

    def fail(self) -> None:
        """Leave the traceback of the exception that is being handled where the trainer finds it."""
        if self.failure is not None:
            write_failure(self.failure)

    def _wait_for_room(self, wanted: int) -> int:
        if self.channel is None:
            return wanted
        began = time.monotonic_ns()
        while not (room := self.channel.room(self.record["episodes_delivered"])) and not self.closed():
            self.record["state"] = telemetry.WAITS_FOR_ROOM
            self.record["heartbeat"] = time.monotonic_ns()
            self.record.commit()
            time.sleep(0.002)
        self.record["room_ns"] += time.monotonic_ns() - began
        return min(room, wanted)


@dataclass(frozen=True)
class Desk:
    """The paths through which the workers of one collector deliver; stands in for TorchRL's replay buffer."""

    directory: Path
    mailbox: Path
    temporary: bool = False  # the directory goes with the run

    _storage = SimpleNamespace(initialized=True, device=None)  # what TorchRL looks for; rows are elsewhere
    shared = True

    def for_worker(self, worker: int) -> Delivery:
        """Open the channel and the record of worker number `worker`."""
        mailbox = WeightMailbox.open(self.mailbox)
        return Delivery(
            record=WorkerRecord.open(record_path(self.directory, worker)),
            channel=EpisodeChannel.open(channel_path(self.directory, worker)),
            closed=lambda: mailbox.closed,
            failure=failure_path(self.directory, worker),
        )


def write_failure(path: Path) -> None:
    """The traceback of the exception that is being handled, as a file that appears complete."""
    temporary = path.with_suffix(".writing")
    temporary.write_text(traceback.format_exc())
    temporary.replace(path)


def record_path(directory: Path, worker: int) -> Path:
    return directory / f"worker-{worker}.record"


def channel_path(directory: Path, worker: int) -> Path:
    return directory / f"worker-{worker}.episodes"


def failure_path(directory: Path, worker: int) -> Path:
    return directory / f"worker-{worker}.failure"
