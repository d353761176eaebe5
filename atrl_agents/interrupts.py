"""Ctrl-C as a request: the run stops at the next safe point and saves; a second Ctrl-C stops at once.

with Interrupts() as interrupts:
    while not interrupts.asked:
        ...                          # interrupts.check() raises Interrupted inside a wait
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupted(Exception):
    """The person at the keyboard (or the system, by SIGTERM) asked the run to stop."""


class Interrupts:
    """Catches SIGINT and SIGTERM while it is open; does nothing outside the main thread."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def check(self) -> None:
        """Raise Interrupted if a stop was asked for; call it where waiting or repeating."""
        if self.asked:
            raise Interrupted

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
