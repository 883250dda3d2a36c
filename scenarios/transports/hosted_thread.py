"""Clients on a thread of the server's process, connected by real sockets."""

from __future__ import annotations

import os
import threading
from typing import Any

from seedbus.bus import Recruit, Registration
from seedbus.bus.zeromq import Joining, follow
from seedbus.bus.zeromq.keys import Identity

PATIENCE_S = 60.0  # how long the thread waits for a server that does not answer
FAREWELL_S = 0.2  # how long the thread has to receive the message that the run is over


class HostedThread:
    """A thread that hosts all clients until the server tells it that the run is over, or until `close`."""

    def __init__(self, endpoint: str, recruit: Recruit, context: Any, identity: Identity | None) -> None:
        self._endpoint = endpoint
        self._recruit = recruit
        self._context = context
        self._identity = identity
        self._failure: BaseException | None = None
        self._parent_pipe, self._write_end = os.pipe()
        self._thread = threading.Thread(target=self._follow, name="worker", daemon=True)
        self._thread.start()

    def check(self, registration: Registration) -> None:
        """Raise the error that ended the thread, if there is one."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Wait for the thread to end; if it does not know that the run is over, closing its pipe ends it."""
        self._thread.join(FAREWELL_S)
        os.close(self._write_end)
        self._thread.join()
        os.close(self._parent_pipe)

    def _follow(self) -> None:
        try:
            joining = Joining(self._endpoint, patience_s=PATIENCE_S, identity=self._identity)
            follow(joining, self._recruit, context=self._context, parent_pipe=self._parent_pipe)
        except BaseException as error:
            self._failure = error
