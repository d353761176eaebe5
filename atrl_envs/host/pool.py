"""HostPool: jobs that may hang, crash or eat the machine, in processes that are killed and replaced.

    pool = HostPool(workers=1, cpu_seconds=2.0, wall_seconds=10.0, memory_mb=2048, retries=1)
    ticket = pool.submit("package.module:function", *args)
    for outcome in pool.collect(wait=0.0):          # what has finished since; an environment asks every step
        outcome.ticket, outcome.status, outcome.value, outcome.error

The caller's thread does everything here: nothing moves but in `submit` and `collect`, and neither waits for a job
unless it is told to. Every job ends in exactly one outcome, whatever it does to its process.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import select
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from atrl_envs.host.crew import Crew
from atrl_envs.host.functions import describe, pack
from atrl_envs.host.process import Answer, Job, Limits, Worker
from atrl_envs.host.wire import ERROR, OK

TIMEOUT, CRASH = "timeout", "crash"
QUEUE_BYTES = 256 << 20  # of arguments that wait; one job alone may have more
_FAILED_STARTS = 10  # of worker processes in a row, before the pool gives up
_COUNTED = {OK: "done", TIMEOUT: "timeouts", CRASH: "crashes", ERROR: "errors"}  # not a key


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    status: "ok" (value holds the result), "timeout" (CPU or wall time), "crash" (its process died, or it needed
    too much memory), "error" (the function raised, could not be loaded, or its result could not be sent); error
    says what happened, in one line and for exceptions with the traceback below it.
    """

    ticket: int
    status: str
    value: Any = None
    error: str = ""


class HostPool:
    """Runs functions in worker processes, each job under limits.

    workers: processes at most; they start at the first job, and as they are needed. cpu_seconds: CPU time of a
    job, kept by the kernel. wall_seconds: time on the clock, looked at when the pool is called. memory_mb: address
    space of a worker (0: no limit). retries: how often a job is tried again, in another process, after it timed out
    or crashed; an exception of its own is not tried again. queue_limit: unfinished jobs that the pool holds;
    beyond it (or QUEUE_BYTES of arguments) `submit` waits for one to finish, which the budgets make a short wait.

    Starting a process and importing a function are not part of a job's budgets (a minute for each).
    A pool pickles as its settings: a copy has workers of its own. Use a pool from one thread at a time.
    Raises ValueError for settings that no job could meet.
    """

    def __init__(
        self,
        workers: int = 1,
        cpu_seconds: float = 2.0,
        wall_seconds: float = 10.0,
        memory_mb: int = 2048,
        retries: int = 1,
        queue_limit: int = 4096,
    ) -> None:
        if workers < 1 or queue_limit < 1 or retries < 0 or memory_mb < 0:
            raise ValueError(
                f"want workers >= 1, queue_limit >= 1, retries >= 0, memory_mb >= 0 (0: no limit); got {workers}, "
                f"{queue_limit}, {retries}, {memory_mb}"
            )
        if not (0.0 < cpu_seconds < 1e6 and 0.0 < wall_seconds < 1e6):
            raise ValueError(f"want budgets in seconds, above 0; got {cpu_seconds} and {wall_seconds}")
        self.workers, self.retries, self.queue_limit = workers, retries, queue_limit
        self.limits = Limits(cpu_seconds, wall_seconds, memory_mb)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._crew = Crew(self.limits, self.workers)
        self._queue: deque[Job] = deque()
        self._bytes = self._unfinished = self._failed_starts = 0
        self._finished: list[Outcome] = []
        self._next_ticket = 0
        self._counts = dict.fromkeys([*_COUNTED.values(), "retries", "restarts"], 0)
        self._tidy = weakref.finalize(self, self._crew.end)  # also at the exit of the interpreter
        if multiprocessing.parent_process() is not None:
            # Processes that multiprocessing started leave without that kind of exit.
            multiprocessing.util.Finalize(self, self._crew.end, exitpriority=10)

    def __getstate__(self) -> dict[str, Any]:
        limits = self.limits
        return {
            "workers": self.workers,
            "cpu_seconds": limits.cpu_seconds,
            "wall_seconds": limits.wall_seconds,
            "memory_mb": limits.memory_mb,
            "retries": self.retries,
            "queue_limit": self.queue_limit,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        HostPool.__init__(self, **state)

    def __enter__(self) -> HostPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pending(self) -> int:
        """Jobs whose outcome `collect` has not returned yet."""
        return self._unfinished + len(self._finished) if self._crew.is_mine else 0

    @property
    def counts(self) -> dict[str, int]:
        """Jobs by outcome (done, timeouts, crashes, errors), attempts repeated (retries), processes lost (restarts).

        The first four add up to the jobs that have finished: a job that crashed once and then succeeded is one
        `done` and one of `retries`.
        """
        return dict(self._counts)

    @property
    def pids(self) -> list[int]:
        """The worker processes alive."""
        return [worker.pid for worker in self._crew.workers]

    def submit(self, function: str | Callable[..., Any], *args: Any) -> int:
        """Queue `function(*args)` and return its ticket; tickets count from 0.

        function: best by name, "package.module:function". Functions of the main program, lambdas and closures are
        sent by value. Raises ValueError and TypeError for a function or arguments that cannot be sent, RuntimeError
        on a closed pool or where worker processes do not start.
        """
        if self._closed:
            raise RuntimeError("the pool is closed; make another one")
        self._own()
        name, code = describe(function)
        job = Job.of(self._next_ticket, name, code, pack(args, name))
        while self._unfinished and (
            self._unfinished >= self.queue_limit or self._bytes + len(job.message) > QUEUE_BYTES
        ):
            self._move(1.0)
        self._next_ticket += 1
        self._unfinished += 1
        self._bytes += len(job.message)
        self._queue.append(job)
        self._hand_out()
        return job.ticket

    def collect(self, wait: float = 0.0) -> list[Outcome]:
        """Outcomes since the last call, in the order in which the jobs finished.

        wait: seconds to wait for the first one, if there is a job to wait for.
        """
        self._own()
        if self._unfinished == 0 and not self._finished:
            for worker in self._crew.gone():
                self._bury(worker)
            return []
        until = time.monotonic() + wait
        self._move(0.0)
        while self._unfinished and not self._finished and (left := until - time.monotonic()) > 0:
            self._move(left)
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        """End all processes; jobs that have not finished are dropped. A closed pool takes no more jobs."""
        self._closed = True
        self._own()
        self._crew.end()
        self._queue.clear()
        self._finished, self._unfinished, self._bytes = [], 0, 0

    def _own(self) -> None:
        """In a forked copy of the process, begin anew: the workers belong to the original."""
        if not self._crew.is_mine:
            self._tidy.detach()
            self._begin()

    def _move(self, wait: float) -> None:
        """Hear all workers, for `wait` seconds at most until one speaks; bury the dead, hand out jobs."""
        poll = select.poll()
        now = time.monotonic()
        by_descriptor = {}
        for worker in self._crew.workers:
            by_descriptor[worker.socket.fileno()] = worker
            poll.register(worker.socket, select.POLLIN | (select.POLLOUT if worker.waits_to_send else 0))
            if worker.deadline is not None:
                wait = min(wait, max(0.0, worker.deadline - now))
        for descriptor, events in poll.poll(wait * 1000.0):
            worker = by_descriptor[descriptor]
            if events & select.POLLOUT:
                worker.flush()
            self._note(worker.hear())
        now = time.monotonic()
        for worker in list(self._crew.workers):
            overdue = worker.deadline is not None and now > worker.deadline
            if overdue or worker.gone:
                self._bury(worker, overdue)
        self._hand_out()

    def _hand_out(self) -> None:
        """Give waiting jobs to workers that can take them."""
        for worker in self._crew.gone():
            self._bury(worker)
        while self._queue and (free := self._crew.worker_for(self._queue[0])) is not None:
            free.give(self._queue.popleft())

    def _bury(self, worker: Worker, overdue: bool = False) -> None:
        """Take leave of a process; its jobs go back to the queue, the one being done is charged with an attempt."""
        self._crew.workers.remove(worker)
        last_words, out_of_time, reason = worker.end(overdue)
        self._note(last_words)
        self._counts["restarts"] += 1
        jobs = list(worker.jobs)
        # Where it had just answered, the next job was not the one that took too long.
        if worker.ready and jobs and not (overdue and last_words):
            job = jobs.pop(0)
            job.attempts += 1
            if job.attempts > self.retries:
                self._finish(job, TIMEOUT if out_of_time else CRASH, error=f"{job.name}: {reason}")
            else:
                self._counts["retries"] += 1
                self._queue.append(job)  # behind the others: they should not wait for a second failure
        self._queue.extendleft(reversed(jobs))
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= _FAILED_STARTS:
                self._failed_starts = 0
                raise RuntimeError(
                    f"{_FAILED_STARTS} worker processes in a row did not start: {reason}. Their own messages are on "
                    f"the error stream; memory_mb={self.limits.memory_mb} may be too little for this Python"
                )

    def _note(self, answers: list[Answer]) -> None:
        for answer in answers:
            self._failed_starts = 0
            self._finish(answer.job, *answer.read())

    def _finish(self, job: Job, status: str, value: Any = None, error: str = "") -> None:
        self._unfinished -= 1
        self._bytes -= len(job.message)
        self._counts[_COUNTED[status]] += 1
        self._finished.append(Outcome(job.ticket, status, value, error))
