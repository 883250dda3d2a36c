"""A TCP proxy on loopback that counts every byte, and can slow, stall or break its connections, or damage bytes.

It forwards bytes between a socket that connects and one that listens, whatever their protocol. One thread serves all
connections with sockets that never block, so no connection can hold up another.
"""

from __future__ import annotations

import random
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
_CHUNK = 2**16
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing discards what is unsent and resets the connection
_JOIN_S = 120.0
_PACE_S = 0.01
_NARROW = 2**16  # bytes that the system buffers for a slow connection, so few that its sender is slowed down


Damage = Callable[[bytes], bytes]


class FlippedBytes:
    """Changes one byte of about every `every` that pass, at random places, in all directions together.

    Attributes:
        count: how many it has changed.
    """

    def __init__(self, every: int, seed: int) -> None:
        self.count = 0
        self._every = every
        self._draw = random.Random(seed)
        self._left = self._next()

    def __call__(self, data: bytes) -> bytes:
        changed = bytearray(data)
        while self._left < len(data):
            changed[self._left] ^= self._draw.randrange(1, 256)
            self.count += 1
            self._left += self._next()
        self._left -= len(data)
        return bytes(changed)

    def _next(self) -> int:
        return self._draw.randrange(1, 2 * self._every)


class _Flow:
    """One direction of a connection: bytes, and then the end of the stream, go from `source` to `sink`.

    Attributes:
        count: bytes read so far.
        pending: bytes read and not yet written. Nothing more is read before, so a fast sender is held up as by a wire.
        has_ended: whether the source has ended.
    """

    def __init__(self, source: socket.socket, sink: socket.socket, rate: float, damage: Damage) -> None:
        self.source = source
        self.sink = sink
        self._rate = rate  # bytes a second; 0: unlimited
        self._due_s = 0.0
        self.count = 0
        self.pending = b""
        self.has_ended = False
        self._damage = damage

    def read(self) -> None:
        data = self.source.recv(max(1, int(self._rate * _PACE_S)) if self._rate else _CHUNK)
        if self._rate:
            self._due_s = max(self._due_s, time.monotonic() - _PACE_S) + len(data) / self._rate
        self.count += len(data)  # before they are written: received bytes have always been counted
        self.pending = self._damage(data)
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
    """A connection through the proxy. `up` and `down` can be read after it is closed."""

    def __init__(self, near: socket.socket, far: socket.socket, rate: float, damage: Damage) -> None:
        self.sockets = near, far
        self.flows = _Flow(near, far, rate, damage), _Flow(far, near, rate, damage)
        self.is_open = True

    @property
    def up(self) -> int:
        """Bytes from the connecting peer to the target."""
        return self.flows[0].count

    @property
    def down(self) -> int:
        """Bytes from the target to the connecting peer."""
        return self.flows[1].count

    def waits(self) -> dict[socket.socket, int]:
        """Return socket → events of `selectors` that the connection waits for."""
        masks: dict[socket.socket, int] = {}
        for flow in self.flows:
            if flow.pending:
                masks[flow.sink] = masks.get(flow.sink, 0) | selectors.EVENT_WRITE
            elif not flow.has_ended and flow.is_due:
                masks[flow.source] = masks.get(flow.source, 0) | selectors.EVENT_READ
        return masks

    def serve(self, ready: socket.socket, mask: int) -> None:
        """Read or write as far as a socket is ready. An error on either side resets both."""
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

    Bytes are counted when they are read. If nobody listens on the target port, connections are accepted and then reset.
    Every method may be called from any thread, and has had its effect when it returns.

    Args:
        target: the TCP port to forward to.
        rate: the limit for each direction of each connection, bytes a second; 0 for none.
        damage: returns what becomes of bytes that pass.

    Attributes:
        connections: all connections so far, oldest first.
    """

    def __init__(self, target: int, rate: float = 0.0, damage: Damage = bytes) -> None:
        self.target = target
        self._rate = rate
        self._damage = damage
        self.connections: list[Connection] = []
        self._listener = socket.create_server((HOST, 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._waker, self._wakened = socket.socketpair()
        self._lock = threading.Lock()  # held while bytes move or the state changes, never while waiting
        self._is_paused = False
        self._is_closing = False
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
        """Bytes so far from all connecting peers to the target."""
        return sum(connection.up for connection in self.connections)

    @property
    def down(self) -> int:
        """Bytes so far from the target to all connecting peers."""
        return sum(connection.down for connection in self.connections)

    def pause(self) -> None:
        """Stop reading and writing without closing anything, as a stalled network does."""
        with self._lock:
            self._is_paused = True
        self._wake()

    def resume(self) -> None:
        """Go on after a pause. No byte is lost."""
        with self._lock:
            self._is_paused = False
        self._wake()

    def cut(self) -> None:
        """Reset all connections, dropping the bytes in flight. New connections are accepted."""
        with self._lock:
            self._accept()
            for connection in self._open():
                connection.close(abruptly=True)
        self._wake()

    def _open(self) -> Iterator[Connection]:
        return (connection for connection in self.connections if connection.is_open)

    def _wake(self) -> None:
        """Wake the thread after a change of the state."""
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
        """Return a new selector for what to wait for, which is quick enough for the few connections of a test."""
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
        """Accept all waiting connections, in a pause too, and connect each to the target."""
        while True:
            try:
                near, _ = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # gone before it was accepted
                continue
            far = socket.socket()
            for end in (near, far):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._rate:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW)
            far.connect_ex((HOST, self.target))  # does not block; an error shows at the first use
            self.connections.append(Connection(near, far, self._rate, self._damage))
