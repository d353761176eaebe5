"""Collection in worker processes that run on their own; the trainer empties their channels when it samples.

collector = ProcessCollector(env_fn, policy_fn, buffer, mailbox, CollectorOptions(backend="process"))
batch = buffer.sample()                  # looks into the channels until a batch of groups is complete
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from atrl_collectors import mapped
from atrl_collectors.buffer import EpisodeBuffer
from atrl_collectors.channel import EpisodeChannel
from atrl_collectors.collector import EpisodeCollector
from atrl_collectors.delivery import Desk, channel_path
from atrl_collectors.staleness import WORKER_DIED
from atrl_collectors.telemetry import WorkerStatus
from atrl_collectors.weights import WeightMailbox
from atrl_collectors.workers import EnvFn, PolicyFn, WorkerDied, Workers

if TYPE_CHECKING:
    from atrl_collectors.collect import CollectorOptions

POLL_SECONDS = 0.002  # how long the trainer sleeps between two looks at the workers' channels


class ProcessCollector(EpisodeCollector):
    """Workers in processes of their own; the trainer empties their channels when it samples."""

    def __init__(
        self,
        env_fn: EnvFn,
        policy_fn: PolicyFn,
        buffer: EpisodeBuffer,
        mailbox: WeightMailbox,
        options: CollectorOptions,
    ) -> None:
        self.options = options
        directory = mapped.scratch_directory() if options.directory is None else Path(options.directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        desk = Desk(directory, mailbox.path, temporary=options.directory is None)
        self._tidy = weakref.finalize(self, _remove, desk)  # also at the exit of the interpreter
        rows = max(64, (buffer.policy.max_staleness + 1) * buffer.policy.episodes_per_batch)
        self._channels = [
            EpisodeChannel.create(
                channel_path(directory, worker), buffer.sequence_length, rows, buffer.reward_parts
            )
            for worker in range(options.num_workers)
        ]
        self._dead: set[int] = set()
        self._written_off = 0
        try:
            self.workers = Workers(
                env_fn,
                policy_fn,
                desk,
                num_workers=options.num_workers,
                threads_per_worker=options.threads_per_worker,
                start_timeout=options.start_timeout,
            )
        except BaseException:
            self._tidy()
            raise
        super().__init__(buffer, mailbox)
        self.status()

    def collect_more(self) -> bool:
        received = self.buffer.received_tokens
        self.status()
        if self.buffer.received_tokens > received:
            return True
        self.workers.wait(POLL_SECONDS)
        return False

    def _look(self) -> list[WorkerStatus]:
        statuses = []
        for channel, record in zip(self._channels, self.workers.records, strict=True):
            status = record.read()
            episodes = channel.take(status.episodes_delivered)  # what this status counts, and no more
            if episodes is not None:
                self.buffer.extend(episodes)
            statuses.append(status)
        self._admit()
        return statuses

    def check(self) -> None:
        try:
            self.workers.check()
        except WorkerDied as death:
            self.status()
            if death.worker not in self._dead:
                self._dead.add(death.worker)
                self._write_off(death.worker)
            raise

    @property
    def in_flight(self) -> int:
        return super().in_flight - (0 if self.closed else self._written_off)

    def _write_off(self, worker: int) -> None:
        tokens = self._seen[worker].tokens_in_flight
        self.buffer.books.drop(WORKER_DIED, tokens)
        self._written_off += tokens

    def _close(self) -> None:
        assert self.mailbox is not None
        self.mailbox.closed = True  # workers finish their block and then listen to TorchRL's shutdown
        self.workers.close(self.options.close_timeout)
        self.status()
        self._tidy()


def _remove(desk: Desk) -> None:
    if desk.temporary:
        mapped.discard(desk.directory)
