"""Who waits for whom, and what every worker is doing: read without sending a message.

waits = Waits()
with waits("trainer waits for episodes"):
    ...
waits.fractions()                        # {"trainer waits for episodes": 0.31}

record = WorkerRecord.create(path)       # a worker writes ...
record["tokens_generated"] += 512
record.commit()
WorkerRecord.open(path).read()           # ... and the trainer reads one consistent WorkerStatus
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from atrl_collectors import mapped

STATES = ("starting", "decoding", "waits for admission", "waits for the trainer to take", "closed")
STARTING, DECODING, WAITS_FOR_ADMISSION, WAITS_FOR_ROOM, CLOSED = range(len(STATES))


class Waits:
    """Named timers of one side. A wait inside a wait counts for the inner name only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.began = time.monotonic()
        self._open: list[tuple[str, float]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        now = time.monotonic()
        if self._open:
            outer, since = self._open[-1]
            self.seconds[outer] += now - since
        self._open.append((name, now))
        try:
            yield
        finally:
            now = time.monotonic()
            _, since = self._open.pop()
            self.seconds[name] += now - since
            if self._open:
                self._open[-1] = (self._open[-1][0], now)

    @property
    def current(self) -> tuple[str, float] | None:
        """What is waited for at this moment, and for how many seconds so far."""
        if not self._open:
            return None
        name, since = self._open[-1]
        return name, time.monotonic() - since

    def fractions(self) -> dict[str, float]:
        """The share of the time since this object was made that each name took."""
        elapsed = max(time.monotonic() - self.began, 1e-9)
        return {name: seconds / elapsed for name, seconds in self.seconds.items()}


@dataclass
class WorkerStatus:
    """One worker at one moment. Times are nanoseconds of the system's monotonic clock, counts are totals.

    tokens_generated = tokens_in_flight + tokens_abandoned + tokens_delivered, always.
    """

    pid: int = 0
    state: int = STARTING
    heartbeat: int = 0  # when the worker last wrote this
    started: int = 0  # when it began to collect
    blocks: int = 0
    tokens_generated: int = 0
    tokens_in_flight: int = 0
    tokens_abandoned: int = 0
    tokens_delivered: int = 0
    episodes_delivered: int = 0
    slots: int = 0
    slots_busy: int = 0  # summed over blocks: divide by blocks * slots for the occupancy
    busy_ns: int = 0  # in blocks, the waits below not counted
    decode_ns: int = 0  # of that, inside the policy
    admission_ns: int = 0  # every slot idle: no group may be started
    room_ns: int = 0  # the channel is full: the trainer takes no episodes
    version: int = -1  # the weights that it serves, and their fingerprint
    fingerprint: int = 0

    @property
    def state_name(self) -> str:
        return STATES[self.state]

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last sign of life; infinity when there was none."""
        return (time.monotonic_ns() - self.heartbeat) / 1e9 if self.heartbeat else float("inf")

    def fractions(self) -> dict[str, float]:
        """The share of the time since it began to collect that the worker spent on each thing."""
        elapsed = max(self.heartbeat - self.started, 1) if self.started else 1
        names = {
            "decodes": self.decode_ns,
            "steps its environment": self.busy_ns - self.decode_ns,
            STATES[WAITS_FOR_ADMISSION]: self.admission_ns,
            STATES[WAITS_FOR_ROOM]: self.room_ns,
        }
        return {name: ns / elapsed for name, ns in names.items()}

    def describe(self) -> str:
        """One line for people: state, silence, weights, tokens."""
        if not self.heartbeat:
            return "has not begun"
        return (
            f"pid {self.pid}: {self.state_name}, last sign of life {self.silent_seconds:.1f} s ago, serves "
            f"version {self.version}, {self.episodes_delivered} episodes delivered, "
            f"{self.tokens_in_flight} tokens in flight"
        )


FIELDS = {field.name: index for index, field in enumerate(fields(WorkerStatus))}
_RECORD = {"counter": ((1,), torch.int64), "copies": ((2, len(FIELDS)), torch.int64)}


class WorkerRecord:
    """A WorkerStatus in shared memory: one writer, readers at any time, whole or not at all.

    Two copies and a counter: `commit` fills the copy that is not current and then counts up, so a writer
    killed at any point leaves the last complete one.
    """

    def __init__(self, shared: mapped.Mapped) -> None:
        self.path = shared.path
        self._counter = shared.tensors["counter"].numpy()
        self._copies = shared.tensors["copies"].numpy()
        self._values = self._copies[int(self._counter[0]) % 2].copy()

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> WorkerRecord:
        return cls(mapped.create(path, _RECORD))._begun()

    @classmethod
    def private(cls) -> WorkerRecord:
        """A record of this process alone, without a file."""
        tensors = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in _RECORD.items()}
        return cls(mapped.Mapped(Path(), tensors, {}))._begun()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> WorkerRecord:
        return cls(mapped.attach(path))

    def _begun(self) -> WorkerRecord:
        self["version"] = -1  # not a key
        self.commit()
        return self

    def __getitem__(self, name: str) -> int:
        """The writer's own value, committed or not."""
        return int(self._values[FIELDS[name]])

    def __setitem__(self, name: str, value: int) -> None:
        self._values[FIELDS[name]] = value

    def commit(self) -> None:
        """Make the values the ones that readers see."""
        following = int(self._counter[0]) + 1
        self._copies[following % 2] = self._values
        mapped.fence()
        self._counter[0] = following

    def read(self) -> WorkerStatus:
        """The values as of one commit."""
        while True:
            current = int(self._counter[0])
            values = self._copies[current % 2].tolist()
            mapped.fence()
            if int(self._counter[0]) == current:
                return WorkerStatus(*values)
