"""A small HTTP server beside a run: a thread that answers from what it is given, and never touches the run.

Connections, the bytes that each may send, its time, and the requests in a second are limited, so that strangers take
little of the processor and of memory. Web pages of other sites get nothing: their requests name them as their origin,
or, if such a site's name has come to mean this machine (DNS rebinding), as the host.

A page may be followed by a stream of events (text/event-stream), of which a slow reader misses some: at most the event
that is being sent, and the newest, are kept for each.
"""

from __future__ import annotations

import ipaddress
import re
import selectors
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from seedbus.bus.clock import wall_seconds
from seedbus.bus.errors import BadEndpoint

EVERY_S = 1.0  # between two calls of `Site.tick`
MAX_CONNECTIONS = 16  # at a time; the oldest one that is no stream is closed for another
MAX_STREAMS = 4  # at a time, of these
MAX_SECONDS = 5.0  # for a request, and in which a reader must take some of an answer or of an event
MAX_REQUEST = 16_384  # bytes; cookies of all servers of this machine come along
MAX_PARTS = 64  # that a request may come in: each one wakes the thread
MAX_RATE = 20.0  # connections that are accepted in a second; further ones wait in the system's queue, which is short
BACKLOG = 16


class Answer(NamedTuple):
    """What a request gets.

    Attributes:
        status: such as "200 OK".
        kind: the type of the content.
        content: the content; of a stream, its first event.
        headers: further headers, a line each.
        is_stream: whether events follow.
    """

    status: str
    kind: str
    content: str
    headers: tuple[str, ...] = ()
    is_stream: bool = False


class Site(Protocol):
    """What a server shows; it is called on the server's thread."""

    def answer(self, path: str) -> Answer:
        """Answer a GET."""
        ...

    def tick(self) -> str | None:
        """Is called once a second; returns an event for all streams, or None."""
        ...


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    until_s: float
    request: bytes = b""
    parts: int = 0
    rest: memoryview = field(default_factory=lambda: memoryview(b""))
    newest: bytes = b""
    is_stream: bool = False


class Server:
    """Serves a site.

    Args:
        site: what it shows.
        address: where to listen: HOST:PORT, or a port of the loopback interface; port 0: any free one.
        option: the option that gave the address, for sentences.
        expected: what the option accepts.

    Attributes:
        origin: its address as browsers write it, such as http://127.0.0.1:9464.
        connections: those that are open, by descriptor, the oldest first.

    Raises:
        BadEndpoint: the address cannot be used.
    """

    def __init__(self, site: Site, address: str, option: str, expected: str) -> None:
        self._site = site
        self._is_over = threading.Event()
        self._last = ""
        self.connections: dict[int, _Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = _listener(address, f"{option} {address}", expected)
        host, self.port = self._listener.getsockname()[:2]
        self._is_loopback = ipaddress.ip_address(host.partition("%")[0]).is_loopback
        self.origin = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self.thread = threading.Thread(target=self._serve, name=option, daemon=True)
        self.thread.start()

    def close(self, last: str = "") -> None:
        """End the thread and close all connections; last: an event that streams still get, if they read it."""
        self._last = last
        self._is_over.set()
        self.thread.join()

    def _serve(self) -> None:
        tokens, before_s, tick_s = MAX_RATE, wall_seconds(), 0.0
        listens = False
        try:
            while not self._is_over.is_set():
                now_s = wall_seconds()
                tokens = min(MAX_RATE, tokens + (now_s - before_s) * MAX_RATE)
                before_s = now_s
                if now_s >= tick_s:
                    tick_s = now_s + EVERY_S
                    if event := self._site.tick():
                        self._publish(event)
                if listens != (tokens >= 1):  # without tokens nobody is listened to, so that the thread sleeps
                    listens = not listens
                    if listens:
                        self._selector.register(self._listener, selectors.EVENT_READ)
                    else:
                        self._selector.unregister(self._listener)
                tokens -= self._wait()
            if self._last:
                self._publish(self._last)
                until_s = wall_seconds() + 1.0
                while any(each.rest for each in self._streams) and wall_seconds() < until_s:
                    self._wait()
        finally:
            for connection in list(self.connections.values()):
                self._hang_up(connection)
            self._selector.close()
            self._listener.close()

    @property
    def is_watched(self) -> bool:
        """Whether anybody reads events."""
        return bool(self._streams)

    @property
    def _streams(self) -> list[_Connection]:
        return [each for each in self.connections.values() if each.is_stream]

    def _wait(self) -> int:
        """Act upon what happens within a tenth of a second. Returns how many connections were accepted."""
        accepted, now_s = 0, wall_seconds()
        for connection in [each for each in self.connections.values() if each.until_s < now_s]:
            self._hang_up(connection)
        for key, events in self._selector.select(0.1):
            if key.fileobj is self._listener:
                accepted += self._accept(now_s)
            elif key.fd in self.connections:
                self._continue(self.connections[key.fd], events)
        return accepted

    def _accept(self, now_s: float) -> int:
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # it is gone again, or no file can be opened: the run may need them more
            return 1
        accepted.setblocking(False)
        if len(self.connections) >= MAX_CONNECTIONS:
            self._hang_up(next(each for each in self.connections.values() if not each.is_stream))
        self.connections[accepted.fileno()] = _Connection(accepted, now_s + MAX_SECONDS)
        self._selector.register(accepted, selectors.EVENT_READ)
        return 1

    def _continue(self, connection: _Connection, events: int) -> None:
        """Read more of a request, or write more of an answer."""
        is_done = False
        try:
            if events & selectors.EVENT_WRITE:
                connection.rest = connection.rest[connection.socket.send(connection.rest) :]
                connection.until_s = wall_seconds() + MAX_SECONDS
                if not connection.rest:
                    is_done = not connection.is_stream
                    self._send(connection)
            elif connection.rest or connection.is_stream:
                is_done = True  # it was closed, or says more than a request
            else:
                received = connection.socket.recv(MAX_REQUEST)
                connection.request += received
                connection.parts += 1
                is_done = not received or connection.parts > MAX_PARTS
                if b"\r\n\r\n" in connection.request or len(connection.request) >= MAX_REQUEST:
                    answered, connection.is_stream = self._answer(connection.request)
                    connection.request, connection.rest = b"", memoryview(answered)
                    self._selector.modify(connection.socket, self._awaited(connection))
        except BlockingIOError:
            return
        except OSError:
            is_done = True
        if is_done:
            self._hang_up(connection)

    def _publish(self, event: str) -> None:
        for connection in self._streams:
            connection.newest = _event(event)
            if not connection.rest:
                self._send(connection)

    def _send(self, connection: _Connection) -> None:
        """Begin to send the newest event, if there is one; until the next, a stream has all the time."""
        if connection.is_stream:
            connection.rest, connection.newest = memoryview(connection.newest), b""
            connection.until_s = wall_seconds() + MAX_SECONDS if connection.rest else float("inf")
            self._selector.modify(connection.socket, self._awaited(connection))

    def _awaited(self, connection: _Connection) -> int:
        """What a connection is waited for; of a stream also its end."""
        reads = selectors.EVENT_READ if connection.is_stream else 0
        return reads | (selectors.EVENT_WRITE if connection.rest else 0)

    def _answer(self, request: bytes) -> tuple[bytes, bool]:
        """Return what is sent for a request, and whether events follow."""
        first, *lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
        method, path, protocol = [*first.split(b" "), b"", b""][:3]
        if not protocol.startswith(b"HTTP/1.") or b"\r\n\r\n" not in request:
            answer = Answer("400 Bad Request", "text/plain", "this is no request of HTTP/1.1\n")
        elif method not in (b"GET", b"HEAD"):
            answer = Answer("405 Method Not Allowed", "text/plain", "there are GET and HEAD\n")
        else:
            headers: dict[str, str] = {}
            for line in lines:
                name, _, value = line.decode("latin-1").partition(":")
                before = headers.get(name.lower())
                headers[name.lower()] = value.strip() if before is None else f"{before}, {value.strip()}"
            host, origin = headers.get("host"), headers.get("origin")
            if self._is_loopback and host is not None and not _is_this_machine(host):
                answer = Answer(
                    "421 Misdirected Request", "text/plain", "expected an IP address or localhost as host\n"
                )
            elif origin not in (None, f"http://{host}"):
                answer = Answer("403 Forbidden", "text/plain", "another page asks\n")
            else:
                answer = self._site.answer(path.partition(b"?")[0].decode("ascii", "replace"))
        is_stream = answer.is_stream and method == b"GET"
        if is_stream and len(self._streams) >= MAX_STREAMS:
            answer = Answer("503 Service Unavailable", "text/plain", f"{MAX_STREAMS} streams are open already\n")
            is_stream = False
        content = _event(answer.content) if is_stream else answer.content.encode()
        length = () if answer.is_stream else (f"Content-Length: {len(content)}",)
        head = (f"HTTP/1.1 {answer.status}", f"Content-Type: {answer.kind}", *length, *answer.headers)
        text = "\r\n".join([*head, "Connection: close", "", ""]).encode()
        return text + (b"" if method == b"HEAD" else content), is_stream

    def _hang_up(self, connection: _Connection) -> None:
        del self.connections[connection.socket.fileno()]
        self._selector.unregister(connection.socket)
        connection.socket.close()


def _event(text: str) -> bytes:
    """Return an event of a stream as it is sent; text: without line ends but "\\n"."""
    return "".join(f"data: {line}\n" for line in text.split("\n")).encode() + b"\n"


def _is_this_machine(host: str) -> bool:
    """Whether a host, with or without a port, is an IP address or localhost, which nobody's name server answers for."""
    name = re.sub(r":\d*$", "", host.lower()).removeprefix("[").removesuffix("]")
    with suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return name == "localhost"


def _listener(address: str, given: str, expected: str) -> socket.socket:
    """Return a socket that listens at an address. Raises `BadEndpoint`."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) < 2**16):
        raise BadEndpoint(given, f"{port or 'nothing'} is no port", expected)
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    with suppress(ValueError):
        host = str(ipaddress.ip_address(host))
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "its host is no name"
        raise BadEndpoint(given, why or str(error), expected) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise BadEndpoint(given, error.strerror or str(error), expected) from None
    return listener
