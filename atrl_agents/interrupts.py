"""Ctrl-C as a request: the run stops at the next safe point and saves; a second Ctrl-C stops at once.

with Interrupts() as interrupts:
    while not interrupts.asked:
        ...                          # interrupts.check() raises Interrupted inside a wait
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_REQUEST = 0.5  # seconds: wrappers such as `timeout` pass a signal on that their child got already
_SAID = b"\natrl: stopping at the next safe point, and saving; Ctrl-C again stops at once\n"


class Interrupted(Exception):
    """The person at the keyboard (or the system, by SIGTERM or SIGHUP) asked the run to stop."""


class Interrupts:
    """Catches SIGINT, SIGTERM and SIGHUP while it is open; does nothing outside the main thread.

    A SIGHUP that is ignored stays ignored: `nohup` asks for that.
    """

    def __init__(self) -> None:
        self.asked = False
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def check(self) -> None:
        """Raise Interrupted if a stop was asked for; call it where waiting or repeating."""
        if self.asked:
            raise Interrupted

    def wait(self, seconds: float) -> bool:
        """Whether a stop was asked for, or is within that time."""
        until = time.monotonic() + seconds
        while not self.asked and time.monotonic() < until:
            time.sleep(0.01)
        return self.asked

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._handle)
                for number in SIGNALS
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.asked:
            self.asked, self._since = True, now
            with contextlib.suppress(OSError):  # the terminal may be gone; print() could be running already
                os.write(2, _SAID)
        elif number == signal.SIGINT and now - self._since > _SAME_REQUEST:
            raise KeyboardInterrupt  # systems repeat SIGTERM as a matter of course, people press keys
