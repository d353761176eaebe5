"""What every collector does for the trainer: fill the buffer on demand, admit groups, keep the books.

collector.advance(version)               # after publishing: admits the groups that may start with it
batch = collector.buffer.sample()        # calls collect_more() until the batch is complete
collector.check_books()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from atrl_collectors.buffer import EpisodeBuffer
from atrl_collectors.staleness import ABANDONED, CLOSED
from atrl_collectors.telemetry import WorkerStatus
from atrl_collectors.weights import NEVER, WeightMailbox


class EpisodeCollector(ABC):
    """What `make_collector` returns: it fills the buffer whenever the buffer is sampled and lacks groups.

    `interrupt`, if set, is called while `buffer.sample()` waits; what it raises ends the wait.
    """

    def __init__(self, buffer: EpisodeBuffer, mailbox: WeightMailbox | None) -> None:
        self.buffer = buffer
        self.mailbox = mailbox
        self.closed = False
        self.interrupt: Callable[[], object] | None = None
        self._opening = buffer.books.generated, buffer.books.dropped[ABANDONED]
        sampler = buffer.sampler
        buffer.before_sample, sampler.check_alive = self._before_sample, self._heed
        sampler.collect_more, sampler.explain = self.collect_more, self.explain

    @abstractmethod
    def collect_more(self) -> bool:
        """Bring episodes into the buffer; whether there were any. The buffer calls it while it waits."""

    @abstractmethod
    def check(self) -> None:
        """WorkerDied when a worker has died. `buffer.sample()` calls it; so should long computations."""

    @abstractmethod
    def _look(self) -> list[WorkerStatus]:
        """Read every worker's status, and take in the episodes that were finished by then."""

    @abstractmethod
    def _close(self) -> None: ...

    def advance(self, version: int) -> None:
        """The trainer is at `version` now; call it after publishing. Admits the groups that may start."""
        if self.mailbox is not None and self.mailbox.version < version:
            raise RuntimeError(f"publish version {version} first: the mailbox holds {self.mailbox.version}")
        self.buffer.consumer_version = version
        self._admit()

    def status(self) -> list[WorkerStatus]:
        """What each worker is doing, without a message to it; its finished episodes enter the buffer."""
        if not self.closed:
            self._enter_books(self._look())
        return self._seen

    def check_books(self) -> None:
        """BooksError unless every generated token was trained, dropped with a reason, or is still there."""
        self.status()
        self.buffer.books.check(self.buffer.resident_tokens + self.in_flight)

    @property
    def in_flight(self) -> int:
        """Response tokens of episodes that the workers have not delivered (as of the last look)."""
        return 0 if self.closed else sum(status.tokens_in_flight for status in self._seen)

    def waits(self) -> dict[str, float]:
        """Who waits for whom: the share of its time, for the trainer and for every worker."""
        shares = dict(self.buffer.waits.fractions())
        for worker, status in enumerate(self.status()):
            for name, share in status.fractions().items():
                shares[f"rollout worker {worker} {name}"] = share
        return shares

    def explain(self) -> str:
        """One line a worker."""
        lines = [f"rollout worker {w}: {status.describe()}" for w, status in enumerate(self.status())]
        return "\n".join(lines)

    def close(self) -> None:
        """End the collection; calling it twice is fine. What is in flight is dropped as "closed"."""
        if self.closed:
            return
        self._close()
        self.buffer.books.drop(CLOSED, self.in_flight)
        self.closed = True
        sampler = self.buffer.sampler
        if sampler.collect_more == self.collect_more:  # and not a later collector's
            self.buffer.before_sample = sampler.check_alive = None
            sampler.collect_more = _nobody_writes

    def __enter__(self) -> EpisodeCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _heed(self) -> None:
        if self.interrupt is not None:
            self.interrupt()
        self.check()

    def _before_sample(self) -> None:
        self._heed()
        self.status()

    def _admit(self) -> None:
        """Tell the workers how many groups may start, once there are weights to start them with."""
        mailbox = self.mailbox
        if mailbox is not None and mailbox.version != NEVER and mailbox.admitted != self.buffer.admitted:
            mailbox.admitted = self.buffer.admitted

    _seen: list[WorkerStatus]

    def _enter_books(self, statuses: list[WorkerStatus]) -> None:
        self._seen = statuses
        generated, abandoned = self._opening
        books = self.buffer.books
        books.generated = generated + sum(status.tokens_generated for status in statuses)
        if any(status.tokens_abandoned for status in statuses):
            books.dropped[ABANDONED] = abandoned + sum(status.tokens_abandoned for status in statuses)


def _nobody_writes() -> bool:
    raise RuntimeError("the buffer lacks complete groups and its collector is closed: no more will come")
