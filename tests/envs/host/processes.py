"""What the system says about processes: alive, or dead and not waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path


def state(pid: int) -> str:
    """The letter of /proc: R, S, D, Z, ...; "" where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return ""


def alive(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if state(pid) not in ("", "Z")]


def zombies() -> list[int]:
    """Children of this process that died and were not waited for."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == os.getpid():
            found.append(int(folder.name))
    return found


def vanish(pids: Iterable[int], seconds: float = 10.0) -> bool:
    """Whether all of them are gone before the time is up."""
    pids, end = list(pids), time.monotonic() + seconds
    while alive(pids) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pids)
