"""The processes of a pool, apart from it, so that they can be ended when the pool is gone.

crew = Crew(limits, size=2)
worker = crew.worker_for(job)          # one with nothing to do, a new one, or one with room ahead; or None
crew.end()
"""

from __future__ import annotations

import os

from atrl_envs.host.process import Job, Limits, Worker

AHEAD = 16  # jobs that a worker may hold, so that it need not wait for the pool to be called again
AHEAD_BYTES = 1 << 16  # a larger job is given only to a worker that has nothing else


class Crew:
    """At most `size` workers, which start as they are needed."""

    def __init__(self, limits: Limits, size: int) -> None:
        self.limits, self.size = limits, size
        self.workers: list[Worker] = []
        self.owner = os.getpid()

    @property
    def is_mine(self) -> bool:
        """Whether these are children of this process, and not of the one that it was forked from."""
        return self.owner == os.getpid()

    def gone(self) -> list[Worker]:
        """The workers that have ended by themselves."""
        return [worker for worker in self.workers if worker.gone]

    def worker_for(self, job: Job) -> Worker | None:
        """Who may be given the job now; None: all have enough to do."""
        idle = next((worker for worker in self.workers if not worker.jobs), None)
        if idle is not None:
            return idle
        if len(self.workers) < self.size:
            self.workers.append(Worker(self.limits))
            return self.workers[-1]
        least = min(self.workers, key=lambda worker: len(worker.jobs))
        return least if len(least.jobs) < AHEAD and len(job.message) <= AHEAD_BYTES else None

    def end(self) -> None:
        """Kill all, wait for all; in a forked copy of the owner, leave them alone."""
        while self.is_mine and self.workers:
            self.workers.pop().end()
