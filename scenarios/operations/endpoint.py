"""A run's metrics and its health over HTTP, for Prometheus and for a supervisor.

One thread serves `GET /metrics` and `GET /healthz`. It never touches the run: once a second it asks the server's loop
for a reading, which the loop takes when it comes to it, and requests are answered from the newest. So requests cause no
work on the loop. Connections, the bytes that each may send, its time, and the requests in a second are limited, so that
strangers take little of the processor, too.
"""

from __future__ import annotations

import ipaddress
import selectors
import socket
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from seedbus.agents.monitor import Reading
from seedbus.bus.clock import wall_seconds
from seedbus.bus.errors import BadEndpoint
from seedbus.scenarios.operations.exposition import CONTENT_TYPE, exposition, health

EVERY_S = 1.0  # between two readings
MAX_CONNECTIONS = 16  # at a time; the oldest one is closed for another
MAX_SECONDS = 5.0  # of a connection
MAX_REQUEST = 4096  # bytes
MAX_RATE = 20.0  # connections that are accepted in a second; further ones wait in the system's queue, which is short
BACKLOG = 16
_EXPECTED = "HOST:PORT, like 127.0.0.1:9464, or a port of this machine alone, like 9464"


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    until_s: float
    request: bytes = b""
    answer: memoryview = field(default_factory=lambda: memoryview(b""))


class Endpoint:
    """Serves the metrics of one run; also its `Monitor`.

    Args:
        address: where to listen: HOST:PORT, or a port of the loopback interface; port 0: any free one.
        computes_here: whether clients compute in the server's process.

    Attributes:
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
        self._is_over = threading.Event()
        self._connections: dict[int, _Connection] = {}  # by descriptor, the oldest first
        self._selector = selectors.DefaultSelector()
        self._listener = _listener(address)
        host, port = self._listener.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close all connections."""
        self._is_over.set()
        self._thread.join()

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

    # -- on the endpoint's thread

    def _ask(self) -> None:
        loop = self._loop
        if loop is not None and self._asked_s is None:
            self._asked_s = wall_seconds()
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._take)

    def _page(self, path: str) -> tuple[str, str, str]:
        """Return the status, the content's type and the content of a page."""
        newest, asked_s, now_s = self._newest, self._asked_s, wall_seconds()
        reading, taken_s, lag_s = newest if newest is not None else (None, now_s, 0.0)
        if asked_s is not None and self._loop is not None:
            lag_s = max(lag_s, now_s - asked_s)
        if self._failure:
            return "500 Internal Server Error", "text/plain", f"{self._failure}\n"
        if path == "/metrics":
            return "200 OK", CONTENT_TYPE, exposition(reading, lag_s, now_s - taken_s)
        if path == "/healthz":
            is_well, why = health(reading, lag_s, computes_here=self._computes_here)
            return ("200 OK" if is_well else "503 Service Unavailable"), "text/plain", f"{why}\n"
        return "404 Not Found", "text/plain", "there are /metrics and /healthz\n"

    def _serve(self) -> None:
        tokens, before_s, ask_s = MAX_RATE, wall_seconds(), 0.0
        listens = False
        try:
            while not self._is_over.is_set():
                now_s = wall_seconds()
                tokens = min(MAX_RATE, tokens + (now_s - before_s) * MAX_RATE)
                before_s = now_s
                if now_s >= ask_s:
                    ask_s = now_s + EVERY_S
                    self._ask()
                if listens != (tokens >= 1):  # without tokens nobody is listened to, so that the thread sleeps
                    listens = not listens
                    if listens:
                        self._selector.register(self._listener, selectors.EVENT_READ)
                    else:
                        self._selector.unregister(self._listener)
                for connection in [each for each in self._connections.values() if each.until_s < now_s]:
                    self._hang_up(connection)
                for key, _ in self._selector.select(0.1):
                    if key.fileobj is self._listener:
                        tokens -= self._accept(now_s)
                    elif key.fd in self._connections:
                        self._continue(self._connections[key.fd])
        finally:
            for connection in list(self._connections.values()):
                self._hang_up(connection)
            self._selector.close()
            self._listener.close()

    def _accept(self, now_s: float) -> int:
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # it is gone again, or no file can be opened: the run may need them more
            return 1
        accepted.setblocking(False)
        if len(self._connections) >= MAX_CONNECTIONS:
            self._hang_up(next(iter(self._connections.values())))
        self._connections[accepted.fileno()] = _Connection(accepted, now_s + MAX_SECONDS)
        self._selector.register(accepted, selectors.EVENT_READ)
        return 1

    def _continue(self, connection: _Connection) -> None:
        """Read more of a request, or write more of an answer."""
        try:
            if connection.answer:
                connection.answer = connection.answer[connection.socket.send(connection.answer) :]
                is_done = not connection.answer
            else:
                received = connection.socket.recv(MAX_REQUEST)
                connection.request += received
                is_done = not received
                if b"\r\n\r\n" in connection.request or len(connection.request) >= MAX_REQUEST:
                    connection.answer = memoryview(self._answer(connection.request))
                    self._selector.modify(connection.socket, selectors.EVENT_WRITE)
        except BlockingIOError:
            return
        except OSError:
            is_done = True
        if is_done:
            self._hang_up(connection)

    def _answer(self, request: bytes) -> bytes:
        method, path, protocol = [*request.split(b"\r\n", 1)[0].split(b" "), b"", b""][:3]
        if not protocol.startswith(b"HTTP/1.") or b"\r\n\r\n" not in request:
            status, kind, text = "400 Bad Request", "text/plain", "this is no request of HTTP/1.1\n"
        elif method not in (b"GET", b"HEAD"):
            status, kind, text = "405 Method Not Allowed", "text/plain", "there are GET and HEAD\n"
        else:
            status, kind, text = self._page(path.partition(b"?")[0].decode("ascii", "replace"))
        content = text.encode()
        head = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(content)}", "Connection: close")
        return "\r\n".join([*head, "", ""]).encode() + (b"" if method == b"HEAD" else content)

    def _hang_up(self, connection: _Connection) -> None:
        del self._connections[connection.socket.fileno()]
        self._selector.unregister(connection.socket)
        connection.socket.close()


@contextmanager
def served(address: str | None, *, computes_here: bool) -> Iterator[Endpoint | None]:
    """Serve the metrics of a run that takes place in this context; None: do not.

    Raises:
        BadEndpoint: the address cannot be used.
    """
    if address is None:
        yield None
        return
    endpoint = Endpoint(address, computes_here=computes_here)
    try:
        yield endpoint
    finally:
        endpoint.close()


def _listener(address: str) -> socket.socket:
    """Return a socket that listens at an address. Raises `BadEndpoint`."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        raise BadEndpoint(f"--metrics {address}", f"{port or 'nothing'} is no port", _EXPECTED)
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    with suppress(ValueError):
        host = str(ipaddress.ip_address(host))
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "its host is no name"
        raise BadEndpoint(f"--metrics {address}", why or str(error), _EXPECTED) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise BadEndpoint(f"--metrics {address}", error.strerror or str(error), _EXPECTED) from None
    return listener
