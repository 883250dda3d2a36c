"""A run's metrics and its health over HTTP, for Prometheus and for a supervisor.

It serves `GET /metrics` and `GET /healthz` (`http.py`). Once a second it asks the run's loop for a reading, which the
loop takes when it comes to it, and requests are answered from the newest. So requests cause no work on the loop.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from seedbus.agents.monitor import Reading
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.operations.exposition import CONTENT_TYPE, exposition, health
from seedbus.scenarios.operations.http import Answer, Server

_EXPECTED = "HOST:PORT, like 127.0.0.1:9464, or a port of this machine alone, like 9464"


class Endpoint:
    """Serves the metrics of one run; also its `Monitor`.

    Args:
        address: where to listen: HOST:PORT, or a port of the loopback interface; port 0: any free one.
        computes_here: whether clients compute in the server's process.

    Attributes:
        server: answers the requests.
        url: where the metrics are.

    Raises:
        BadEndpoint: the address cannot be used.
    """

    def __init__(self, address: str, *, computes_here: bool) -> None:
        self._computes_here = computes_here
        self._loop: AbstractEventLoop | None = None
        self._read: Callable[[], Reading] | None = None
        self._newest: tuple[Reading, float, float] | None = None  # the reading, when it was taken, the loop's lag then
        self._asked_s: float | None = None  # since when the loop owes a reading
        self._failure = ""
        self.server = Server(self, address, "--metrics", _EXPECTED)
        self.url = f"{self.server.origin}/metrics"

    def close(self) -> None:
        """End the thread and close all connections."""
        self.server.close()

    # -- on the run's thread

    def attach(self, loop: AbstractEventLoop, read: Callable[[], Reading]) -> None:
        self._read, self._asked_s = read, None
        self._loop = loop

    def detach(self) -> None:
        self._loop = None

    def _take(self) -> None:
        """Take a reading; called by the loop."""
        asked_s, now_s = self._asked_s, wall_seconds()
        try:
            if self._read is not None and asked_s is not None:
                self._newest = self._read(), now_s, now_s - asked_s
        except Exception as error:  # a bug here must not end a run
            self._failure = f"{type(error).__name__} in a reading"
        self._asked_s = None

    # -- on the server's thread

    def tick(self) -> str | None:
        """Ask the run's loop for a reading."""
        loop = self._loop
        if loop is not None and self._asked_s is None:
            self._asked_s = wall_seconds()
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._take)
        return None

    def answer(self, path: str) -> Answer:
        newest, asked_s, now_s = self._newest, self._asked_s, wall_seconds()
        reading, taken_s, lag_s = newest if newest is not None else (None, now_s, 0.0)
        if asked_s is not None and self._loop is not None:
            lag_s = max(lag_s, now_s - asked_s)
        if self._failure:
            return Answer("500 Internal Server Error", "text/plain", f"{self._failure}\n")
        if path == "/metrics":
            return Answer("200 OK", CONTENT_TYPE, exposition(reading, lag_s, now_s - taken_s))
        if path == "/healthz":
            is_well, why = health(reading, lag_s, computes_here=self._computes_here)
            return Answer("200 OK" if is_well else "503 Service Unavailable", "text/plain", f"{why}\n")
        return Answer("404 Not Found", "text/plain", "there are /metrics and /healthz\n")


@contextmanager
def served(address: str | None, *, computes_here: bool) -> Iterator[Endpoint | None]:
    """Serve the metrics of a run that takes place in this context; None: do not.

    Raises:
        BadEndpoint: the address cannot be used.
    """
    if address is None:
        yield None
        return
    with closing(Endpoint(address, computes_here=computes_here)) as endpoint:
        yield endpoint
