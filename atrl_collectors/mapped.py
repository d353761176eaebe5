"""A file of named tensors that processes share by its path; no lock exists that a killed process could keep.

    shared = mapped.create(path, {"head": ((1,), torch.int64), "rows": ((64, 8), torch.float32)})
    shared = mapped.attach(path)            # in any other process
    shared.tensors["head"][0] = 3           # every process sees it

The file begins with a JSON description, so that a reader needs nothing but the path.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

MAGIC = b"atrl-map"
ALIGNMENT = 64
Layout = Mapping[str, tuple[tuple[int, ...], torch.dtype]]

_SCRATCH = "atrl."
_YOUNG_SECONDS = 60.0
_held: dict[Path, int] = {}  # descriptors that lock this process's scratch directories

_first, _second = threading.Lock(), threading.Lock()


def fence() -> None:
    """Order the stores before this call ahead of those after it, for other processes on any processor."""
    # One lock lets earlier and later stores meet inside it; a release followed by an acquire does not.
    with _first:
        pass
    with _second:
        pass


@dataclass(frozen=True)
class Mapped:
    """A mapped file: its path, its tensors (views of the file) and what its creator noted about it."""

    path: Path
    tensors: dict[str, torch.Tensor]
    notes: dict[str, Any]


def create(path: str | os.PathLike[str], layout: Layout, notes: Mapping[str, Any] | None = None) -> Mapped:
    """Make the file, all zeros, and put it at `path` in one step (whoever opens it sees a complete one).

    The space is reserved at once: a full device raises OSError here, not a bus error in the middle of a run.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    entries, position = [], 0
    for name, (shape, dtype) in layout.items():
        entries.append([name, list(shape), str(dtype).removeprefix("torch."), position])
        position += _aligned(_nbytes(shape, dtype))
    header = json.dumps({"entries": entries, "notes": dict(notes or {})}).encode()
    start = _aligned(len(MAGIC) + 8 + len(header))
    size = start + max(position, ALIGNMENT)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "r+b") as file:
            _reserve(file.fileno(), size, path)
            file.write(MAGIC + len(header).to_bytes(8, "little") + header)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return attach(path)


def attach(path: str | os.PathLike[str]) -> Mapped:
    """Open a file that `create` made. FileNotFoundError: there is none; ValueError: it is another kind."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no shared file at {path}: its owner has not created it, or has removed it")
    with path.open("r+b") as file:
        prefix = file.read(len(MAGIC) + 8)
        if not prefix.startswith(MAGIC):
            raise ValueError(f"{path} is not a shared file of this package (it begins with {prefix[:8]!r})")
        length = int.from_bytes(prefix[len(MAGIC) :], "little")
        header = json.loads(file.read(length))
        memory = mmap.mmap(file.fileno(), 0)
    start = _aligned(len(MAGIC) + 8 + length)
    tensors = {}
    for name, shape, dtype_name, offset in header["entries"]:
        dtype = getattr(torch, dtype_name)
        count = torch.Size(shape).numel()
        if count:
            flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=start + offset)
        else:
            flat = torch.empty(0, dtype=dtype)
        tensors[name] = flat.view(shape)
    return Mapped(path, tensors, header["notes"])


def scratch_directory(needed: int = 1 << 28) -> Path:
    """A new private directory: in memory where the system has room for `needed` bytes there, else on disk.

    Give it to `discard` afterwards. Where a whole group of processes was killed at once, nobody could do that; this
    removes what such groups have left.
    """
    memory = Path("/dev/shm")
    there = memory.is_dir() and os.access(memory, os.W_OK)
    for parent in {Path(tempfile.gettempdir()), *([memory] if there else [])}:
        _sweep(parent)
    roomy = there and shutil.disk_usage(memory).free > needed
    path = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=memory if roomy else None))
    _held[path] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks: nobody will sweep there either
        fcntl.flock(_held[path], fcntl.LOCK_EX)
    return path


def discard(path: Path) -> None:
    """Remove a scratch directory, whoever made it."""
    shutil.rmtree(path, ignore_errors=True)
    if path in _held:
        os.close(_held.pop(path))


def _sweep(parent: Path) -> None:
    """Remove scratch directories of this user whose owner is dead: the kernel has let go of its lock."""
    for path in parent.glob(f"{_SCRATCH}*"):
        try:
            about = path.lstat()
            old = time.time() - about.st_mtime > _YOUNG_SECONDS  # a younger one may be about to be locked
            if not (stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and old):
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # removed meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:  # its owner lives
            continue
        finally:
            os.close(descriptor)


def _reserve(descriptor: int, size: int, path: Path) -> None:
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        hint = f"no room for a shared file of {size / 2**20:.1f} MiB at {path}; free some or use another disk"
        raise OSError(error.errno, hint) from error


def _nbytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return torch.Size(shape).numel() * dtype.itemsize


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
