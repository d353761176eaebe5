"""Weights travel as one complete copy with version and fingerprint; a reader never sees two versions mixed.

    mailbox = WeightMailbox.create(path, model.state_dict())         # the trainer: the only publisher
    mailbox.publish(model.state_dict(), version=3)

    mailbox = WeightMailbox.open(path)                               # any process; pickling sends the path
    update = mailbox.poll(newer_than=2)                              # at a block boundary; None: no news
    if update is not None:
        model.load_state_dict(update.tensors)                        # the reader's own copy

How: the file holds several slots. A publication marks its slot as being written, fills it, and only then
moves the pointer to it, so a publisher killed at any point leaves the last complete publication in place.
A reader copies the slot, looks whether the publisher came back to it meanwhile, and recomputes the
fingerprint over its own copy: a mixed copy fails both checks and is tried again.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from atrl_collectors import mapped
from atrl_collectors.fingerprints import fingerprint

NEVER = -1  # the version before the first publication
LATEST, ADMITTED, CLOSED = range(3)  # entries of the control row
BEGUN, WRITTEN_VERSION, WRITTEN_FINGERPRINT = range(3)  # entries of a slot's row
ATTEMPTS = 4  # copies that a reader tries before it goes on with what it has


@dataclass(frozen=True)
class WeightUpdate:
    """What `poll` found. The tensors are the reader's own buffer: valid until its next poll."""

    version: int
    fingerprint: int
    tensors: dict[str, torch.Tensor]


class WeightMailbox:
    """One publisher, any number of readers, one file. Also carries `admitted` and `closed` to the workers."""

    def __init__(self, shared: mapped.Mapped) -> None:
        self._shared = shared
        self._control = shared.tensors["control"].numpy()
        self._slots = shared.tensors["slots"].numpy()
        self._weights = shared.tensors["weights"]
        self._layout: list[tuple[str, tuple[int, ...], torch.dtype, int]] = [
            (name, tuple(shape), getattr(torch, dtype), offset)
            for name, shape, dtype, offset in shared.notes["weights"]
        ]
        self._publisher: int | None = None  # a descriptor that holds the file lock of the only publisher
        self._copy: torch.Tensor | None = None
        self._views: dict[str, torch.Tensor] = {}
        self.torn = 0  # copies thrown away because the publisher came back to the slot

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], tensors: Mapping[str, torch.Tensor], *, slots: int = 2
    ) -> WeightMailbox:
        """A new mailbox for tensors of these names, shapes and dtypes (the values are not published yet)."""
        if slots < 2:
            raise ValueError(f"a mailbox needs at least 2 slots (one to read, one to write), got {slots}")
        entries, offset = [], 0
        for name, tensor in tensors.items():
            entries.append([name, list(tensor.shape), str(tensor.dtype).removeprefix("torch."), offset])
            offset += -(-tensor.numel() * tensor.element_size() // mapped.ALIGNMENT) * mapped.ALIGNMENT
        layout = {
            "control": ((8,), torch.int64),
            "slots": ((slots, 8), torch.int64),
            "weights": ((slots, max(offset, 8)), torch.uint8),
        }
        mailbox = cls(mapped.create(path, layout, notes={"weights": entries}))
        mailbox._slots[:, WRITTEN_VERSION] = NEVER
        mailbox._become_publisher()
        return mailbox

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> WeightMailbox:
        """The mailbox at `path`; FileNotFoundError when its publisher has not created it."""
        return cls(mapped.attach(path))

    def __reduce__(self) -> tuple[Any, ...]:
        return WeightMailbox.open, (str(self.path),)

    def __repr__(self) -> str:
        return f"WeightMailbox({str(self.path)!r}, version={self.version})"

    @property
    def path(self) -> Path:
        return self._shared.path

    @property
    def version(self) -> int:
        """The version that was published last; -1 before the first."""
        latest = int(self._control[LATEST])
        return int(self._slots[latest % len(self._slots), WRITTEN_VERSION]) if latest else NEVER

    @property
    def fingerprint(self) -> int:
        """The fingerprint of what was published last; 0 before the first."""
        return int(self._slots[int(self._control[LATEST]) % len(self._slots), WRITTEN_FINGERPRINT])

    @property
    def admitted(self) -> int:
        """How many groups of the global stream may be started: written by the publisher, read by workers."""
        return int(self._control[ADMITTED])

    @admitted.setter
    def admitted(self, groups: int) -> None:
        mapped.fence()  # weights published before this number are seen before it
        self._control[ADMITTED] = groups

    @property
    def closed(self) -> bool:
        """True once the publisher is done: workers finish their block and leave."""
        return bool(self._control[CLOSED])

    @closed.setter
    def closed(self, value: bool) -> None:
        self._control[CLOSED] = int(value)

    def publish(self, tensors: Mapping[str, torch.Tensor], version: int) -> int:
        """Publish a copy of `tensors` as `version` and return its fingerprint.

        ValueError: the version is not newer than the last, or a name, shape or dtype is not the mailbox's.
        RuntimeError: another process publishes here.
        """
        self._become_publisher()
        self._check(tensors)
        if version <= self.version or version < 0:
            raise ValueError(f"versions only grow: got {version} after {self.version}")
        # The number of a publication decides its slot, which is marked with it while it is being filled.
        latest = int(self._control[LATEST]) + 1
        slot = latest % len(self._slots)
        self._slots[slot, BEGUN] = latest
        mapped.fence()
        target = self._weights[slot]
        written = self._views_of(target)
        for name, view in written.items():
            view.copy_(tensors[name].detach())
        digest = fingerprint(written)
        self._slots[slot, WRITTEN_VERSION] = version
        self._slots[slot, WRITTEN_FINGERPRINT] = digest
        mapped.fence()
        self._control[LATEST] = latest
        return digest

    def poll(self, newer_than: int = NEVER) -> WeightUpdate | None:
        """The newest complete publication, copied and checked, or None when its version is not newer.

        A publisher that laps the reader again and again makes it return None: it goes on with what it has.
        """
        for _ in range(ATTEMPTS):
            latest = int(self._control[LATEST])
            slot = latest % len(self._slots)
            if latest == 0 or int(self._slots[slot, WRITTEN_VERSION]) <= newer_than:
                return None
            version, digest = self._slots[slot, 1:3].tolist()
            mapped.fence()
            tensors = self._take(slot)
            mapped.fence()
            if int(self._slots[slot, BEGUN]) == latest and fingerprint(tensors) == digest:
                return WeightUpdate(version, digest, tensors)
            self.torn += 1
        return None

    def _take(self, slot: int) -> dict[str, torch.Tensor]:
        if self._copy is None:
            self._copy = torch.empty_like(self._weights[slot])
            self._views = self._views_of(self._copy)
        self._copy.copy_(self._weights[slot])
        return self._views

    def _views_of(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: _view(flat, shape, dtype, offset) for name, shape, dtype, offset in self._layout}

    def _check(self, tensors: Mapping[str, torch.Tensor]) -> None:
        expected = {name: (shape, dtype) for name, shape, dtype, _ in self._layout}
        missing, unknown = expected.keys() - tensors.keys(), tensors.keys() - expected.keys()
        if missing or unknown:
            raise ValueError(
                f"the mailbox at {self.path} was made for other weights: missing {sorted(missing)[:5]}, "
                f"unknown {sorted(unknown)[:5]}; create a new one for this model"
            )
        for name, (shape, dtype) in expected.items():
            got = tensors[name]
            if tuple(got.shape) != shape or got.dtype != dtype:
                raise ValueError(
                    f"weights {name!r}: got {tuple(got.shape)} {got.dtype}, the mailbox at {self.path} "
                    f"holds {shape} {dtype}; create a new one for this model"
                )

    def _become_publisher(self) -> None:
        if self._publisher is not None:
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lets go of it when we die
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise RuntimeError(f"{self.path} has a publisher already; a mailbox has only one") from None
        self._publisher = descriptor

    def __del__(self) -> None:
        if getattr(self, "_publisher", None) is not None:
            os.close(self._publisher)  # type: ignore[arg-type]


def _view(flat: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return flat[offset : offset + count * dtype.itemsize].view(dtype).view(shape)
