"""One worker process as the pool sees it: what it was given, what it said, until when it may work.

    worker = Worker(limits)
    worker.give(job)
    for message in worker.hear(): ...
    answers, out_of_time, reason = worker.end()        # kills it, waits for it, says how it ended

Nothing here blocks: the socket takes what it can, the rest waits in the parent until `flush`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from atrl_envs.host.wire import (
    BEGUN,
    ERROR,
    LOAD_SECONDS,
    LOADING,
    OK,
    OUT_OF_MEMORY,
    READY,
    Received,
    WireError,
    frame,
)

_CHUNK = 1 << 20
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Limits:
    """What one job may use: CPU time and wall time in seconds, address space in MB (0: no limit)."""

    cpu_seconds: float
    wall_seconds: float
    memory_mb: int


@dataclass
class Job:
    """A job on its way; attempts: how many have failed so far."""

    ticket: int
    name: str
    message: bytes
    attempts: int = 0

    @classmethod
    def of(cls, ticket: int, name: str, code: bytes, arguments: bytes) -> Job:
        return cls(ticket, name, frame((ticket, name, code, arguments)))


@dataclass(frozen=True)
class Answer:
    """What became of a job in a process that lived on: status "ok" or "error", the pickled value, the error."""

    job: Job
    status: str
    value: bytes
    error: str

    def read(self) -> tuple[str, Any, str]:
        """Status, value and error; a value that cannot be read here is an error."""
        if self.status != OK:
            return ERROR, None, self.error
        try:
            return OK, pickle.loads(self.value), ""
        except Exception as error:
            return ERROR, None, f"the result of {self.job.name!r} cannot be read here: {error}"


class Worker:
    """A process that does the jobs it was given, in order.

    jobs: given and not answered; the first is the one being done. ready: the process has started. closed: it has
    hung up, or talks nonsense. deadline: `time.monotonic()` after which it is overdue; None: it has nothing to do.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.jobs: deque[Job] = deque()
        self.ready = self.closed = self._loading = False
        self.deadline: float | None = time.monotonic() + LOAD_SECONDS
        self._unsent: deque[memoryview] = deque()
        self._received = Received()
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        try:
            self._process = subprocess.Popen(
                _command(theirs.fileno(), limits),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=_where_prints_go(),
                env=_environment(),
                process_group=0,  # what a job starts dies with the worker, and Ctrl-C is the parent's alone
            )
        except BaseException:
            self.socket.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def waits_to_send(self) -> bool:
        return bool(self._unsent)

    @property
    def gone(self) -> bool:
        """Whether the process has ended by itself, or will not be understood any more."""
        if self.closed:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody else has waited for it
            return True

    def give(self, job: Job) -> None:
        """Queue a job for this process."""
        self.jobs.append(job)
        self._unsent.append(memoryview(job.message))
        if self.ready and len(self.jobs) == 1:
            self._allow(self.limits.wall_seconds)
        self.flush()

    def flush(self) -> None:
        """Send as much as the socket takes."""
        try:
            while self._unsent:
                sent = self.socket.send(self._unsent[0])
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def hear(self) -> list[Answer]:
        """What the process has answered since; sets `closed` where nothing more will come."""
        try:
            while True:
                data = self.socket.recv(_CHUNK)
                self._received.feed(data)
                if not data:
                    self.closed = True
                if len(data) < _CHUNK:
                    break
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        answers: list[Answer] = []
        try:
            for message in self._received.messages():
                answers.extend(self._understand(message))
        except WireError:
            self.closed = True
        return answers

    def end(self, overdue: bool = False) -> tuple[list[Answer], bool, str]:
        """Kill the process and all that it started; wait for it: (last answers, it was out of time, how it ended)."""
        # A dead process that nobody has waited for still owns its number, so this hits no stranger.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        status = self._process.wait()
        answers = self.hear()
        self.socket.close()
        return answers, *self._how(status, overdue)

    def _how(self, status: int, overdue: bool) -> tuple[bool, str]:
        """Whether the process ran out of time, and how it ended."""
        limits = self.limits
        if self.ready and (overdue or status == -signal.SIGPROF):
            if self._loading:
                return True, f"was not loaded within {LOAD_SECONDS:g} s"
            budget = f"{limits.wall_seconds:g} s" if overdue else f"{limits.cpu_seconds:g} s of CPU time"
            return True, f"took more than {budget}"
        if status == OUT_OF_MEMORY:
            return False, f"needed more than {limits.memory_mb} MB of memory"
        if status < 0:
            return False, f"the worker process was killed by {_signal_name(-status)}"
        return False, f"the worker process ended with status {status}"

    def _understand(self, message: Any) -> list[Answer]:
        if message == (READY,):
            self.ready = True
            self._allow(self.limits.wall_seconds if self.jobs else None)
            return []
        if not (isinstance(message, tuple) and len(message) in (2, 4) and self.jobs):
            raise WireError("not an answer")
        if message[0] != self.jobs[0].ticket:
            raise WireError("an answer to another question")
        if message[1] in (LOADING, BEGUN):
            self._loading = message[1] == LOADING
            self._allow(LOAD_SECONDS if self._loading else self.limits.wall_seconds)
            return []
        job, self._loading = self.jobs.popleft(), False
        self._allow(self.limits.wall_seconds if self.jobs else None)
        return [Answer(job, *message[1:])]

    def _allow(self, seconds: float | None) -> None:
        self.deadline = None if seconds is None else time.monotonic() + seconds


def _command(descriptor: int, limits: Limits) -> list[str]:
    # Linux sends the signal when the thread that started the process ends, so only the main thread asks for it.
    by_signal = threading.current_thread() is threading.main_thread()
    arguments = (descriptor, os.getpid(), limits.cpu_seconds, limits.memory_mb, int(by_signal))
    return [sys.executable, "-P", "-m", "atrl_envs.host.worker", *map(str, arguments)]


def _environment() -> dict[str, str]:
    """The environment of this process, in which modules are found where they are found here.

    One thread a worker; a fixed hash seed, so that what depends on the order of a set does not vary by process.
    """
    path = [os.path.abspath(folder) for folder in sys.path if isinstance(folder, str)]
    fixed = {"PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0"}
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), **fixed}


def _where_prints_go() -> int:
    """What a job prints goes to the error stream, if there is one."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
