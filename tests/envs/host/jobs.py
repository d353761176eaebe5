"""Jobs that behave badly, for workers to import by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atrl_envs.host import prepared_by

prepared: list[int] = []


def echo(value: Any) -> Any:
    return value


def twice(data: bytes) -> bytes:
    return data + data


def whoami() -> int:
    return os.getpid()


def raises(text: str) -> None:
    raise ValueError(text)


def leaves() -> None:
    sys.exit(3)


def dies(status: int) -> None:
    os._exit(status)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def spins() -> int:
    """Holds the interpreter in C for longer than anybody waits."""
    return len(str(pow(7, 10**8)))


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def hoards() -> int:
    held = []
    while True:
        held.append(bytearray(1 << 24))


def prints_rubbish() -> str:
    print("\x00\x00\x00 rubbish", flush=True)
    os.write(1, b"\xff" * 4096)
    return "done"


def fails_once(flag: str) -> str:
    """Dies the first time, and leaves a file that says so."""
    if not Path(flag).exists():
        Path(flag).write_text("tried")
        os._exit(9)
    return "second time"


def starts_a_child(note: str) -> None:
    """Starts a process that would outlive it, and hangs."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(note).write_text(str(child.pid))
    time.sleep(60)


def yields() -> Iterator[int]:
    yield 1


def modules() -> list[str]:
    return [name for name in ("torch", "tensordict", "sympy") if name in sys.modules]


def _prepare() -> None:
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass
    prepared.append(os.getpid())


@prepared_by(_prepare)
def with_preparation() -> int:
    return len(prepared)
