"""A request to stop a run after the round in progress, so that it can be resumed without repeating anything."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopRequest:
    """A request that may be made at any time, by a signal or by code of the same process.

    Attributes:
        is_made: whether it was made.
    """

    def __init__(self) -> None:
        self.is_made = False
        self._wake: Callable[[], None] = lambda: None

    def make(self) -> None:
        """Ask the run to stop. It may be called by a signal handler."""
        self.is_made = True
        self._wake()

    def wakes(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when the request is made."""
        self._wake = wake

    @contextmanager
    def by_signal(self) -> Iterator[bool]:
        """Within this context SIGUSR1 makes the request; afterwards it is ignored, because it may come too late.

        Yields:
            Whether it does. Only the main thread can handle signals, and a handler of the program's own is kept.
        """
        is_ours = threading.current_thread() is threading.main_thread() and (
            signal.getsignal(signal.SIGUSR1) in (signal.SIG_DFL, signal.SIG_IGN)
        )
        if is_ours:
            signal.signal(signal.SIGUSR1, lambda number, frame: self.make())
        try:
            yield is_ours
        finally:
            if is_ours:
                signal.signal(signal.SIGUSR1, signal.SIG_IGN)
