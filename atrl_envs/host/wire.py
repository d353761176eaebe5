"""Messages between the pool and a worker: frames of eight bytes of length and a pickle, on one socket.

    sock.sendall(frame((ticket, OK, payload, "")))
    received.feed(sock.recv(1 << 20))
    for message in received.messages(): ...

Pool to worker: (ticket, name, code, arguments), the last two pickled already. Worker to pool: (READY,) once, then
for each job (ticket, status, payload, error), with (ticket, LOADING) and (ticket, BEGUN) before it where the
function had to be loaded first.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any

OK, ERROR = "ok", "error"
READY, LOADING, BEGUN = "ready", "loading", "begun"
LOAD_SECONDS = 60.0  # to start a worker, and to import a function; not part of a job's budgets
OUT_OF_MEMORY = 86  # exit status of a worker that met its memory limit
_HEAD = struct.Struct("!Q")
_LARGEST = 1 << 36  # bytes of a message; a longer one is rubbish


class WireError(Exception):
    """What arrived is not a message."""


def frame(message: Any) -> bytes:
    """The bytes of a message."""
    data = pickle.dumps(message, protocol=5)
    return _HEAD.pack(len(data)) + data


class Received:
    """Bytes as they arrive, and the messages that are complete."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    def messages(self) -> Iterator[Any]:
        """Complete messages, in order; WireError where the bytes are no messages."""
        while len(self._data) >= _HEAD.size:
            (size,) = _HEAD.unpack_from(self._data)
            if size > _LARGEST:
                raise WireError(f"a message of {size} bytes")
            if len(self._data) < _HEAD.size + size:
                return
            with memoryview(self._data) as view:
                try:
                    message = pickle.loads(view[_HEAD.size : _HEAD.size + size])
                except Exception as error:
                    raise WireError(f"a message that cannot be read: {error}") from error
            del self._data[: _HEAD.size + size]
            yield message


def read_message(sock: socket.socket) -> Any:
    """The next message of a blocking socket; EOFError where the other side has gone."""
    (size,) = _HEAD.unpack(_read(sock, _HEAD.size))
    return pickle.loads(_read(sock, size))


def _read(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    with memoryview(data) as view:
        at = 0
        while at < size:
            count = sock.recv_into(view[at:])
            if count == 0:
                raise EOFError
            at += count
    return data
