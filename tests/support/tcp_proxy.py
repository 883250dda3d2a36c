"""A TCP proxy on loopback that counts every byte, and can slow, stall or break what passes through it: for tests.

It stands between a socket that connects and one that listens, and knows nothing of what they say to each other.
One thread serves all connections with sockets that never block, so none of them can hold up another.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
_CHUNK = 2**16
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing discards what is unsent and resets the connection
_JOIN_S = 1.0
_PACE_S = 0.01
_NARROW = 2**16  # bytes that the system takes in for a slow connection, so that its sender feels it


class _Flow:
    """One direction of a connection: what is read from `source` goes to `sink`, then the end of it does too.

    rate: bytes a second that are read, or 0 for as many as there are.
    """

    def __init__(self, source: socket.socket, sink: socket.socket, rate: float) -> None:
        self.source, self.sink, self._rate = source, sink, rate
        self._due_s = 0.0
        self.count = 0
        self.pending = b""  # nothing more is read before this is written: who sends too fast is held up, as on a wire
        self.has_ended = False

    def read(self) -> None:
        data = self.source.recv(max(1, int(self._rate * _PACE_S)) if self._rate else _CHUNK)
        if self._rate:
            self._due_s = max(self._due_s, time.monotonic() - _PACE_S) + len(data) / self._rate
        self.count += len(data)  # before it goes on: whoever has received bytes finds them counted
        self.pending = data
        if data:
            self.write()
        else:
            self.has_ended = True
            self.sink.shutdown(socket.SHUT_WR)

    @property
    def is_due(self) -> bool:
        return not self._rate or time.monotonic() >= self._due_s

    def write(self) -> None:
        with suppress(BlockingIOError):
            self.pending = self.pending[self.sink.send(self.pending) :]


class Connection:
    """A connection through the proxy. `up` and `down` go on being readable when it is closed."""

    def __init__(self, near: socket.socket, far: socket.socket, rate: float) -> None:
        self.sockets = near, far
        self.flows = _Flow(near, far, rate), _Flow(far, near, rate)
        self.is_open = True

    @property
    def up(self) -> int:
        """Bytes from whoever connected to the target."""
        return self.flows[0].count

    @property
    def down(self) -> int:
        """Bytes from the target to whoever connected."""
        return self.flows[1].count

    def waits(self) -> dict[socket.socket, int]:
        """What each socket has to be ready for."""
        masks: dict[socket.socket, int] = {}
        for flow in self.flows:
            if flow.pending:
                masks[flow.sink] = masks.get(flow.sink, 0) | selectors.EVENT_WRITE
            elif not flow.has_ended and flow.is_due:
                masks[flow.source] = masks.get(flow.source, 0) | selectors.EVENT_READ
        return masks

    def serve(self, ready: socket.socket, mask: int) -> None:
        """Carry on what the socket is ready for. An error on either side resets both, as one wire would."""
        try:
            for flow in self.flows:
                if flow.pending and flow.sink is ready and mask & selectors.EVENT_WRITE:
                    flow.write()
                elif not (flow.pending or flow.has_ended) and flow.source is ready and mask & selectors.EVENT_READ:
                    flow.read()
            if all(flow.has_ended and not flow.pending for flow in self.flows):
                self.close()
        except BlockingIOError:
            pass
        except OSError:
            self.close(abruptly=True)

    def close(self, abruptly: bool = False) -> None:
        self.is_open = False
        for end in self.sockets:
            if abruptly:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.close()


class CountingProxy:
    """A context in which `endpoint` leads to the target port of this machine.

    Bytes are counted as they are taken in to be passed on. Where nobody listens on the target port, connections are
    taken and then reset. Every method may be called from any thread and has had its effect when it returns.
    rate: bytes a second, each way of each connection, if that is limited.
    """

    def __init__(self, target: int, rate: float = 0.0) -> None:
        self.target, self._rate = target, rate
        self.connections: list[Connection] = []  # all there ever were, in the order in which they came
        self._listener = socket.create_server((HOST, 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._waker, self._wakened = socket.socketpair()
        self._lock = threading.Lock()  # held wherever bytes move or the state changes, never while waiting
        self._is_paused = self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name=f"proxy of port {target}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closing = True
        self._wake()
        self._thread.join(_JOIN_S)
        assert not self._thread.is_alive(), "the proxy's thread hangs"
        for connection in self._open():
            connection.close()
        for end in (self._listener, self._waker, self._wakened):
            end.close()

    @property
    def endpoint(self) -> str:
        return f"tcp://{HOST}:{self.port}"

    @property
    def up(self) -> int:
        """Bytes so far from all who connected to the target."""
        return sum(connection.up for connection in self.connections)

    @property
    def down(self) -> int:
        """Bytes so far from the target to all who connected."""
        return sum(connection.down for connection in self.connections)

    def pause(self) -> None:
        """Take in and pass on nothing more, and close nothing: a network that stalls."""
        with self._lock:
            self._is_paused = True
        self._wake()

    def resume(self) -> None:
        """Go on after a pause. Nothing is lost."""
        with self._lock:
            self._is_paused = False
        self._wake()

    def cut(self) -> None:
        """Reset all connections there are, with whatever is on its way; new ones are accepted."""
        with self._lock:
            self._accept()
            for connection in self._open():
                connection.close(abruptly=True)
        self._wake()

    def _open(self) -> Iterator[Connection]:
        return (connection for connection in self.connections if connection.is_open)

    def _wake(self) -> None:
        """Let the thread see that the state has changed."""
        self._waker.send(b"\0")

    def _serve(self) -> None:
        owners: dict[socket.socket, Connection] = {}
        while True:
            with self._lock:
                if self._is_closing:
                    return
                selector = self._selector(owners)
            ready = selector.select(_PACE_S / 2 if self._rate else None)
            with self._lock:
                for key, mask in ready:
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    if end is self._wakened:
                        end.recv(_CHUNK)
                    elif end is self._listener:
                        self._accept()
                    elif owners[end].is_open and not self._is_paused:
                        owners[end].serve(end, mask)

    def _selector(self, owners: dict[socket.socket, Connection]) -> selectors.PollSelector:
        """What to wait for now, made afresh each time: simple, and quick enough for the few connections of a test."""
        selector = selectors.PollSelector()
        owners.clear()
        for end in (self._wakened, self._listener):
            selector.register(end, selectors.EVENT_READ)
        for connection in () if self._is_paused else self._open():
            for end, mask in connection.waits().items():
                owners[end] = connection
                selector.register(end, mask)
        return selector

    def _accept(self) -> None:
        """Take all who wait, in a pause too, and connect each to the target."""
        while True:
            try:
                near, _ = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # gone before it was taken
                continue
            far = socket.socket()
            for end in (near, far):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._rate:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW)
            far.connect_ex((HOST, self.target))  # it goes on by itself; an error shows at the first use
            self.connections.append(Connection(near, far, self._rate))
