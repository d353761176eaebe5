"""A run folder for one run alone, from before its first file to after its last.

    with claimed(folder):          # ConfigError while another run has it
        ...

The claim is a lock on the folder itself, which the kernel lets go of however the process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from .complaints import ConfigError
from .config_check import reserved

# Shared weights, and drafts of files that are replaced as a whole; a killed run leaves them.
_LEFT_BEHIND = re.compile(r"\.weights(\..*)?|\.(config\.json|metrics\.csv|samples\.jsonl|summary\.json)\.\d+")


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make the folder and hold it; on leaving, remove it where it was made here and nothing came into it.

    Raises:
        ConfigError: another process holds it.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if reserved.pop(folder, False):
        made.append(folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, folder)
        for path in folder.iterdir():
            if _LEFT_BEHIND.fullmatch(path.name):
                path.unlink(missing_ok=True)
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty, most often
            for path in made:
                path.rmdir()
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"got --out {folder}; another run is writing in it; wait until that has ended, or give another --out"
        ) from None
    except OSError:  # a file system without locks
        return
