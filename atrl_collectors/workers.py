"""Rollout workers as processes: started, watched, named when they die, and gone when the trainer is.

    workers = Workers(env_fn, policy_fn, desk, num_workers=2, threads_per_worker=1, start_timeout=300.0)
    workers.check()                          # WorkerDied: "rollout worker 1 of 2 (pid 4711) died ... SIGKILL"
    workers.close()

TorchRL's process backend runs them. Added here: Ctrl-C reaches the trainer only; a worker whose trainer is
gone leaves at once; a worker that dies in any phase, the start included, is reported by name with its cause.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from multiprocessing import connection, resource_tracker
from typing import Any

import torch
from torchrl.collectors import MultiAsyncCollector

from atrl_collectors.blocks import BlockCollector, admit
from atrl_collectors.delivery import Desk, failure_path, record_path, write_failure
from atrl_collectors.telemetry import STARTING, STATES, WorkerRecord
from atrl_collectors.weights import WeightMailbox

EnvFn = Callable[..., Any]
PolicyFn = Callable[[], Any]


class WorkerDied(RuntimeError):
    """A rollout worker ended by itself: `worker`, `pid`, `cause` (a signal's name, a traceback), `signal` (or None)."""

    def __init__(
        self,
        worker: int,
        num_workers: int,
        pid: int | None,
        phase: str,
        cause: str,
        signal: int | None = None,
    ) -> None:
        super().__init__(f"rollout worker {worker} of {num_workers} (pid {pid}) died ({phase}): {cause}")
        self.worker, self.num_workers, self.pid = worker, num_workers, pid
        self.phase, self.cause, self.signal = phase, cause, signal

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerDied, (
            self.worker,
            self.num_workers,
            self.pid,
            self.phase,
            self.cause,
            self.signal,
        )


class Workers:
    """The processes of one collector. Construction returns when all of them are ready to collect."""

    def __init__(
        self,
        env_fn: EnvFn,
        policy_fn: PolicyFn,
        desk: Desk,
        *,
        num_workers: int,
        threads_per_worker: int,
        start_timeout: float,
    ) -> None:
        self.desk = desk
        self.num_workers = num_workers
        self.records = [WorkerRecord.create(record_path(desk.directory, w)) for w in range(num_workers)]
        self._threads = torch.get_num_threads()
        self._pool: _Pool | None = None
        self._starter: threading.Thread | None = None
        self._closing = False
        create = partial(
            _Pool,
            create_env_fn=[partial(_build_env, env_fn, desk, w, num_workers) for w in range(num_workers)],
            policy_factory=[partial(_build_policy, policy_fn, desk, w) for w in range(num_workers)],
            on_birth=self._born,
            collector_class=BlockCollector,
            replay_buffer=desk,
            frames_per_batch=1,  # one step of the environment, however many slots it has
            num_threads=self._threads,  # the trainer keeps its own
            num_sub_threads=threads_per_worker,
            init_fn=partial(_enter, desk),
            auto_register_policy_transforms=False,
        )
        try:
            self._start(create, start_timeout)
        except BaseException:
            self.close(timeout=2.0)
            raise

    def check(self) -> None:
        """WorkerDied when a worker has ended that was not told to."""
        if self._pool is None or self._closing:
            return
        processes = dict(enumerate(self._pool.procs))
        # A worker that raised says so before it is gone, which takes seconds; it may take others along.
        failed = [w for w in processes if failure_path(self.desk.directory, w).exists()]
        dead = failed or [w for w, process in processes.items() if not process.is_alive()]
        if dead:
            worker = max(dead, key=lambda w: processes[w].exitcode not in (None, 0))
            raise self._obituary(worker, processes[worker])

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until a worker ends."""
        sentinels = [process.sentinel for process in self.processes]
        connection.wait(sentinels, timeout=seconds)

    @property
    def processes(self) -> list[Any]:
        return [] if self._pool is None else list(self._pool.procs)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def close(self, timeout: float = 10.0) -> None:
        """End all workers: they finish their block; those that do not within `timeout` seconds are killed."""
        if self._closing:
            return
        self._closing = True
        if self._pool is not None:
            if self._starter is not None and self._starter.is_alive():
                self._break_off()
            self._pool.shutdown(timeout=timeout, raise_on_error=False)
            self._bury()
            self._forgotten.detach()
        torch.set_num_threads(self._threads)

    def _break_off(self) -> None:
        """Stop the start of a pool: without its processes it fails, but it may be about to add one."""
        assert self._starter is not None
        while self._starter.is_alive():
            self._bury()
            self._starter.join(0.05)

    def _bury(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def _born(self, pool: _Pool) -> None:
        self._pool = pool
        self._forgotten = weakref.finalize(self, _end, pool)  # also at the exit of the interpreter

    def _start(self, create: Callable[[], _Pool], timeout: float) -> None:
        """Build the pool in a thread, so that this one can watch the workers and hear Ctrl-C meanwhile."""
        outcome: list[BaseException | None] = []
        self._starter = thread = threading.Thread(target=_build, args=(create, outcome), daemon=True)
        resource_tracker.ensure_running()  # it would unblock the signal that the thread blocks
        began = time.monotonic()
        thread.start()
        while thread.is_alive():
            thread.join(0.05)
            self.check()
            if time.monotonic() - began > timeout:
                raise TimeoutError(
                    f"the rollout workers were not ready after {timeout:.0f} s, but live ({self.pids}): "
                    "building the environment or the policy takes long; give a longer start_timeout"
                )
        self.check()
        if outcome[0] is not None:
            raise outcome[0]
        assert self._pool is not None
        self._pool.start()

    def _obituary(self, worker: int, process: Any) -> WorkerDied:
        status = self.records[worker].read()
        phase = status.state_name if status.heartbeat else STATES[STARTING]
        code, cause = process.exitcode, self._cause(worker, process.exitcode)
        number = -code if code is not None and code < 0 else None
        return WorkerDied(worker, self.num_workers, process.pid, phase, cause, number)

    def _cause(self, worker: int, exitcode: int | None) -> str:
        failure = failure_path(self.desk.directory, worker)
        if failure.exists():
            return f"it raised\n{failure.read_text().rstrip()}"
        if exitcode is not None and exitcode < 0:
            name = signal.Signals(-exitcode).name
            hint = "; when nobody sent it, the kernel did: out of memory" if name == "SIGKILL" else ""
            return f"killed by {name}{hint}"
        return f"it left with exit code {exitcode}; what it printed last is in its standard error"


class _Pool(MultiAsyncCollector):
    """TorchRL's process collector, known to its owner before the first process starts."""

    def __init__(self, *args: Any, on_birth: Callable[[_Pool], None], **options: Any) -> None:
        self.procs: list[Any] = []
        on_birth(self)
        super().__init__(*args, **options)


def _build(create: Callable[[], _Pool], outcome: list[BaseException | None]) -> None:
    # Children inherit the mask: Ctrl-C in the terminal never reaches them, from their first instruction on.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        create()
        outcome.append(None)
    except BaseException as error:
        outcome.append(error)


def _end(pool: _Pool) -> None:
    """For workers that nobody closed."""
    for process in pool.procs:
        process.kill()
        process.join()
    pool.shutdown(timeout=1.0, raise_on_error=False)


def _enter(desk: Desk) -> None:
    """First thing in a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for what the worker may start itself
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent, desk), daemon=True).start()


def _leave_with(parent: Any, desk: Desk) -> None:
    parent.join()  # however the trainer ends, SIGKILL included
    if desk.temporary:
        shutil.rmtree(desk.directory, ignore_errors=True)
        desk.mailbox.unlink(missing_ok=True)  # nobody will publish in it again
    os._exit(1)


def _build_env(env_fn: EnvFn, desk: Desk, worker: int, num_workers: int) -> Any:
    try:
        mailbox = WeightMailbox.open(desk.mailbox)
        return admit(env_fn(worker=worker, num_workers=num_workers), lambda: mailbox.admitted)
    except BaseException:
        write_failure(failure_path(desk.directory, worker))
        raise


def _build_policy(policy_fn: PolicyFn, desk: Desk, worker: int) -> Any:
    try:
        return policy_fn()
    except BaseException:
        write_failure(failure_path(desk.directory, worker))
        raise
