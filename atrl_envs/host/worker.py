"""A worker process: one job after the other, under limits that the kernel keeps.

    python -m atrl_envs.host.worker SOCKET PARENT CPU_SECONDS MEMORY_MB SIGNAL      # started by the pool

CPU time is a timer whose signal kills the process by default, so nothing in a job can hold it up; memory is a
limit on the address space. The worker ends when its socket closes, when its parent is gone (a thread looks twice
a second), and, where SIGNAL is 1, by a signal at the parent's death.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from atrl_envs.host.functions import CannotLoad, load
from atrl_envs.host.wire import (
    BEGUN,
    ERROR,
    LOAD_SECONDS,
    LOADING,
    OK,
    OUT_OF_MEMORY,
    READY,
    frame,
    read_message,
)

_LOOK_SECONDS = 0.5
_LONGEST_ERROR = 4000  # characters
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    descriptor, parent, cpu_seconds, memory_mb, by_signal = arguments
    sock = socket.socket(fileno=int(descriptor))
    os.set_inheritable(sock.fileno(), False)
    _die_with(int(parent), by_signal == "1")
    _limit_memory(int(memory_mb))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    with contextlib.suppress(Exception):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    bench = Bench(sock, float(cpu_seconds))
    try:
        sock.sendall(frame((READY,)))
        while True:
            ticket, name, code, packed = read_message(sock)
            sock.sendall(frame((ticket, *bench.run(ticket, name, code, packed))))
    except (EOFError, OSError):
        return
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


class Bench:
    """Where jobs run: the functions loaded so far, and the CPU time that a job gets."""

    def __init__(self, sock: socket.socket, cpu_seconds: float) -> None:
        self._sock, self._cpu_seconds = sock, cpu_seconds
        self._functions: dict[str, tuple[bytes, Callable[..., Any]]] = {}  # by name; the pickle it came from

    def run(self, ticket: int, name: str, code: bytes, packed: bytes) -> tuple[str, bytes, str]:
        """One job: (status, pickled value, error)."""
        known = self._functions.get(name)
        if known is None or known[0] != code:
            self._sock.sendall(frame((ticket, LOADING)))
            try:
                with cpu_time(LOAD_SECONDS):
                    known = (code, load(name, code))
            except CannotLoad as error:
                return ERROR, b"", str(error)
            self._functions[name] = known
            self._sock.sendall(frame((ticket, BEGUN)))
        with cpu_time(self._cpu_seconds):
            try:
                return OK, pickle.dumps(known[1](*pickle.loads(packed)), protocol=5), ""
            except MemoryError:
                raise
            except BaseException as error:  # SystemExit and KeyboardInterrupt are a function's own doing, too
                return ERROR, b"", _said(error)


def _said(error: BaseException) -> str:
    """The error in one line, then where it was raised."""
    lines = traceback.format_exception(error)
    return f"{lines[-1].strip()}\n{''.join(lines)}"[:_LONGEST_ERROR]


@contextlib.contextmanager
def cpu_time(seconds: float) -> Iterator[None]:
    """The kernel kills this process once it has used so much CPU time inside."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _limit_memory(megabytes: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if megabytes:
        with contextlib.suppress(OSError, ValueError):  # not every system has it
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def _die_with(parent: int, by_signal: bool) -> None:
    """End this process when the parent has ended, however that ended."""
    if by_signal and sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
