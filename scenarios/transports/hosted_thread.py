"""Clients on a thread of the server's process, connected by real sockets."""

from __future__ import annotations

import os
import threading
from typing import Any

from seedbus.bus import HostRequest, Recruit, Registration
from seedbus.bus.zeromq import follow
from seedbus.bus.zeromq.keys import Identity

PATIENCE_S = 5.0
FAREWELL_S = 0.2  # that the thread has to hear that the run is over


class HostedThread:
    """A thread that hosts all clients, and ends when it is told that the run is over, or at `close`."""

    def __init__(self, endpoint: str, recruit: Recruit, context: Any, identity: Identity | None) -> None:
        self._endpoint = endpoint
        self._recruit = recruit
        self._context = context
        self._identity = identity
        self._failure: BaseException | None = None
        self._parent_pipe, self._end = os.pipe()
        self._thread = threading.Thread(target=self._follow, name="worker", daemon=True)
        self._thread.start()

    def check(self, registration: Registration) -> None:
        """Raise what the thread failed with, if it did."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Wait for the thread; if it has not heard of the run's end, closing its pipe ends it."""
        self._thread.join(FAREWELL_S)
        os.close(self._end)
        self._thread.join()
        os.close(self._parent_pipe)

    def _follow(self) -> None:
        try:
            follow(
                self._endpoint,
                [HostRequest()],
                self._recruit,
                context=self._context,
                patience_s=PATIENCE_S,
                parent_pipe=self._parent_pipe,
                identity=self._identity,
            )
        except BaseException as error:
            self._failure = error
