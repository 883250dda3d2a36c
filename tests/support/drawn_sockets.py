"""ZeroMQ's sockets in memory: what passes between a ROUTER and its DEALERs, one packet at a time, as a schedule says.

They behave as ZeroMQ's do where Seedbus can tell: whole packets in order, watermarks, EAGAIN and EHOSTUNREACH, one
notice of input until something is done with the socket, a new routing id for each connection, reconnecting by
themselves, descriptors whose numbers are used again, and events of connections that come before or after the messages
around them. What the operating system says of a descriptor is said here too.
"""

from __future__ import annotations

import os
import select
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Self

import zmq
from drawn_threads import Schedule

from seedbus.bus.wire import PLAIN
from seedbus.bus.zeromq.descriptors import BYTES_RECEIVED, GONE

DELAYS_S = (0.0, 0.0, 0.001, 0.05, 0.3, 1.5)  # of a packet, or of a connection
CAPACITIES = (64, 64, 2, 1)  # packets that are under way in one direction
EVENT = struct.Struct("=HI")
FIRST_DESCRIPTOR = 50


class Frame:
    """Stands for `zmq.Frame`."""

    more = False

    def __init__(self, data: bytes, descriptor: int) -> None:
        self._data = data
        self._descriptor = descriptor

    def __len__(self) -> int:
        return len(self._data)

    @property
    def bytes(self) -> bytes:
        return self._data

    @property
    def buffer(self) -> memoryview:
        return memoryview(self._data)

    def get(self, option: Any) -> int:
        if option == zmq.SRCFD:
            return self._descriptor
        raise zmq.ZMQError(zmq.EINVAL)


class Way:
    """One direction of a connection.

    Attributes:
        under_way: (when it may arrive, packet).
        arrived: packets that the receiver has not read.
        sent_bytes, arrived_bytes: of all packets.
        is_ending: nothing is sent any more; what is under way still arrives.
    """

    def __init__(self, net: Net, capacity: int) -> None:
        self._net = net
        self.capacity = capacity
        self.under_way = deque[tuple[float, bytes]]()
        self.arrived = deque[bytes]()
        self.arrived_bytes = 0
        self.is_ending = False

    def put(self, data: bytes) -> None:
        """Send a packet. Raises `zmq.Again` if too many are under way."""
        if len(self.under_way) >= self.capacity:
            raise zmq.Again
        last_s = self.under_way[-1][0] if self.under_way else 0.0
        self.under_way.append((max(last_s, self._net.later_s()), data))

    def arrive(self) -> None:
        _, data = self.under_way.popleft()
        self.arrived.append(data)
        self.arrived_bytes += PLAIN.bytes_of(len(data))


class Connection:
    """A connection between a DEALER and a ROUTER."""

    def __init__(self, net: Net, number: int, dealer: Dealer, router: Router) -> None:
        capacity = CAPACITIES[net.draws.below(len(CAPACITIES), "capacity")]
        self.up, self.down = Way(net, capacity), Way(net, capacity)
        self.dealer, self.router = dealer, router
        self.peer = b"\0" + number.to_bytes(4, "big")
        self.name = f"10.0.0.{1 + number % 200}:{40_000 + number}"
        self.is_open = True
        self.descriptors = net.free_descriptor(self), net.free_descriptor(self)  # the router's, the dealer's
        self.has_notice_of_up = False  # the router knows that there is something to read


class Net:
    """All sockets, and the packets between them; a source of the schedule's."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.draws = schedule.draws
        self.routers: dict[str, Router] = {}
        self.connecting: list[tuple[float, Dealer]] = []
        self.connections: list[Connection] = []
        self.seen: list[bytes] = []  # the first packets that went up, and the latest
        self._by_descriptor: dict[int, Connection] = {}
        self._made = 0
        self._notices: list[Notice] = []
        schedule.sources.append(self)

    def notice(self) -> Notice:
        self._notices.append(Notice())
        return self._notices[-1]

    def close(self) -> None:
        """Close the descriptors that are left."""
        for each in self._notices:
            each.close()

    def later_s(self) -> float:
        return self.schedule.now_s + DELAYS_S[self.draws.below(len(DELAYS_S), "delay")]

    # -- a source of the schedule's

    def due(self, now_s: float) -> list[tuple[str, Callable[[], None]]]:
        found: list[tuple[str, Callable[[], None]]] = []
        for each in self.connections:
            up, down = each.up, each.down
            if up.under_way and up.under_way[0][0] <= now_s and len(up.arrived) < each.router.rcvhwm:
                found.append(("up", partial(self._up, each)))
            if down.under_way and down.under_way[0][0] <= now_s and len(down.arrived) < each.dealer.rcvhwm:
                found.append(("down", down.arrive))
            if any(way.is_ending and not way.under_way for way in (up, down)):
                found.append(("end", partial(self.reset, each)))
        found += [("connect", partial(self._connect, at)) for at in self.connecting if at[0] <= now_s]
        return found

    def next_s(self) -> float:
        ways = (way for each in self.connections for way in (each.up, each.down) if way.under_way)
        return min([way.under_way[0][0] for way in ways] + [at[0] for at in self.connecting], default=inf)

    def _up(self, connection: Connection) -> None:
        connection.up.arrive()
        if not connection.has_notice_of_up:
            connection.has_notice_of_up = True
            connection.router.notice.give()

    def _connect(self, at: tuple[float, Dealer]) -> None:
        self.connecting.remove(at)
        dealer = at[1]
        router = self.routers.get(dealer.endpoint)
        if router is None:
            self.connecting.append((self.schedule.now_s + dealer.wait_s(), dealer))
            return
        self._made += 1
        connection = Connection(self, self._made, dealer, router)
        self.connections.append(connection)
        if dealer.connection is not None:  # what has come over the last one can still be read
            connection.down.arrived.extend(dealer.connection.down.arrived)
        dealer.connection = connection
        dealer.waited_s = 0.0
        router.tell(zmq.EVENT_ACCEPTED, connection.descriptors[0])
        dealer.tell(zmq.EVENT_CONNECTED, connection.descriptors[1])

    # -- what happens to connections

    def reset(self, connection: Connection) -> None:
        """End a connection at once: what is under way is lost."""
        if not connection.is_open:
            return
        connection.is_open = False
        self.connections.remove(connection)
        for descriptor in connection.descriptors:
            del self._by_descriptor[descriptor]
        connection.up.under_way.clear()
        connection.down.under_way.clear()
        connection.router.ended(connection)
        connection.router.tell(zmq.EVENT_DISCONNECTED, connection.descriptors[0])
        dealer = connection.dealer
        dealer.tell(zmq.EVENT_DISCONNECTED, connection.descriptors[1])
        if not dealer.closed and dealer.connection is connection:
            self.connecting.append((self.schedule.now_s + dealer.wait_s(), dealer))

    def leave(self, connection: Connection, way: Way, linger_ms: int | None) -> None:
        """One end closes its socket: what it has sent may still arrive; without a linger, the first part of it."""
        if not linger_ms:
            for _ in range(self.draws.below(len(way.under_way) + 1, "lost")):
                way.under_way.pop()
        way.is_ending = True

    def cut(self, group: str) -> None:
        """End the connections of a process that has been killed."""
        for each in list(self.connections):
            if each.dealer.group == group:
                each.dealer.closed = True
                self.reset(each)
        self.connecting = [at for at in self.connecting if at[1].group != group]

    def free_descriptor(self, connection: Connection) -> int:
        descriptor = next(each for each in range(FIRST_DESCRIPTOR, 10_000) if each not in self._by_descriptor)
        self._by_descriptor[descriptor] = connection
        return descriptor

    # -- what stands for bus.zeromq.descriptors

    def name_of(self, descriptor: int) -> str:
        connection = self._by_descriptor.get(descriptor)
        return GONE if connection is None else connection.name

    def own_path(self, descriptor: int) -> str:
        return ""

    def ends(self, descriptor: int) -> tuple[object, object] | None:
        connection = self._by_descriptor.get(descriptor)
        return None if connection is None else (connection.name, descriptor)

    def counted(self, descriptor: int, offset: int) -> int | None:
        connection = self._by_descriptor.get(descriptor)
        if connection is None:
            return None
        is_up = (descriptor == connection.descriptors[0]) == (offset == BYTES_RECEIVED)
        return connection.up.arrived_bytes if is_up else connection.down.arrived_bytes

    def abort(self, descriptor: int) -> None:
        if descriptor in self._by_descriptor:
            self.reset(self._by_descriptor[descriptor])


class Notice:
    """A descriptor that is readable from a change until something is done with the socket."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK)
        self._is_open = True

    def give(self) -> None:
        if self._is_open:
            os.eventfd_write(self.descriptor, 1)

    def take(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            os.close(self.descriptor)


class Monitor:
    """Stands for the socket that tells of a socket's connections."""

    def __init__(self, net: Net) -> None:
        self._notice = net.notice()
        self._events = deque[bytes]()
        self.closed = False

    @property
    def FD(self) -> int:
        return self._notice.descriptor

    def tell(self, event: int, descriptor: int) -> None:
        self._events.append(EVENT.pack(event, descriptor))
        self._notice.give()

    def recv_multipart(self, flags: int) -> list[bytes]:
        self._notice.take()
        if not self._events:
            raise zmq.Again
        return [self._events.popleft(), b"an endpoint"]

    def close(self, linger: int | None = None) -> None:
        if not self.closed:
            self.closed = True
            self._notice.close()


class Socket:
    """What both kinds have in common."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.group = net.schedule.group
        self.closed = False
        self.rcvhwm = 64
        self._monitor: Monitor | None = None

    def get_monitor_socket(self, events: int) -> Monitor:
        self._monitor = Monitor(self.net)
        return self._monitor

    def disable_monitor(self) -> None:
        self._monitor = None

    def tell(self, event: int, descriptor: int) -> None:
        if self._monitor is not None and not self._monitor.closed:
            self._monitor.tell(event, descriptor)


class Dealer(Socket):
    """Stands for a DEALER."""

    def __init__(self, net: Net) -> None:
        super().__init__(net)
        self.endpoint = ""
        self.connection: Connection | None = None
        self.waited_s = 0.0

    def wait_s(self) -> float:
        """Return the time until it tries again to connect, which doubles."""
        self.waited_s = min(10.0, 2 * self.waited_s or 0.1)
        return self.waited_s

    def connect(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.net.connecting.append((self.net.later_s(), self))

    @property
    def can_send(self) -> bool:
        way = self._open_way
        return way is not None and len(way.under_way) < way.capacity

    @property
    def has_input(self) -> bool:
        return self.connection is not None and bool(self.connection.down.arrived)

    @property
    def _open_way(self) -> Way | None:
        return self.connection.up if self.connection is not None and self.connection.is_open else None

    def send(self, data: bytes, flags: int, copy: bool = True) -> None:
        self.net.schedule.pause()
        way = self._open_way
        if way is None:
            raise zmq.Again
        way.put(bytes(data))
        self.net.seen = [*self.net.seen[:6], *self.net.seen[6:][-13:], bytes(data)]

    def get(self, option: int) -> int:
        return zmq.POLLIN * self.has_input | zmq.POLLOUT * self.can_send

    def recv(self, flags: int, copy: bool = True) -> Frame:
        connection = self.connection
        if connection is None or not connection.down.arrived:
            raise zmq.Again
        return Frame(connection.down.arrived.popleft(), connection.descriptors[1])

    def close(self, linger: int | None = None) -> None:
        self.closed = True
        self.net.connecting = [at for at in self.net.connecting if at[1] is not self]
        if self.connection is not None and self.connection.is_open:
            self.net.leave(self.connection, self.connection.up, linger)


class Router(Socket):
    """Stands for a ROUTER."""

    def __init__(self, net: Net) -> None:
        super().__init__(net)
        self.notice = net.notice()
        self._endpoint = ""
        self._ended = list[Connection]()  # with packets that have not been read
        self._half: Frame | None = None  # of a packet whose routing id has been read

    def bind(self, endpoint: str) -> None:
        self._endpoint = endpoint.replace("*", "5555")
        self.net.routers[self._endpoint] = self

    def get_string(self, option: int) -> str:
        return self._endpoint

    @property
    def FD(self) -> int:
        return self.notice.descriptor

    @property
    def _present(self) -> list[Connection]:
        return [each for each in self.net.connections if each.router is self]

    def ended(self, connection: Connection) -> None:
        """Keep what has come over a connection until it is read."""
        if connection.up.arrived:
            self._ended.append(connection)

    def send_multipart(self, parts: list[bytes], flags: int, copy: bool = True) -> None:
        self.net.schedule.pause()  # what comes in meanwhile has its notice taken
        self.notice.take()
        peer, data = parts
        connection = next((each for each in self._present if each.peer == peer and not each.up.is_ending), None)
        if connection is None:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        connection.down.put(bytes(data))

    def recv(self, flags: int, copy: bool = True) -> bytes | Frame:
        self.notice.take()
        if self._half is not None:
            frame, self._half = self._half, None
            return frame
        readable = [each for each in (*self._ended, *self._present) if each.up.arrived]
        if not readable:
            for each in self._present:
                each.has_notice_of_up = False
            raise zmq.Again
        chosen = readable[self.net.draws.below(len(readable), "whose")]
        self._half = Frame(chosen.up.arrived.popleft(), chosen.descriptors[0])
        self._ended = [each for each in self._ended if each.up.arrived]
        return chosen.peer

    def poll(self, timeout_ms: int) -> bool:
        self.notice.take()
        until_s = self.net.schedule.now_s + max(0.01, timeout_ms) / 1000  # even a look takes time
        return self.net.schedule.wait(
            lambda: self._half is not None or any(each.up.arrived for each in (*self._ended, *self._present)), until_s
        )

    def close(self, linger: int | None = None) -> None:
        if self.closed:
            return
        self.closed = True
        self.net.routers.pop(self._endpoint, None)
        for each in self._present:
            self.net.leave(each, each.down, linger)
        self.notice.close()


class Context:
    """Stands for `zmq.Context`."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self.max_sockets = 0

    def socket(self, kind: int) -> Socket:
        return Router(self._net) if kind == zmq.ROUTER else Dealer(self._net)

    def term(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Poller:
    """Stands for `zmq.Poller`, also of descriptors of the system's."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._watched: dict[Any, int] = {}

    def register(self, what: Any, events: int) -> None:
        self._watched[what] = events

    def unregister(self, what: Any) -> None:
        del self._watched[what]

    def poll(self, timeout_ms: int) -> list[tuple[Any, int]]:
        until_s = self._schedule.now_s + timeout_ms / 1000
        self._schedule.wait(lambda: bool(self._ready()), until_s)
        ready = self._ready()
        if len(ready) > 1 and (some := self._schedule.draws.below(len(ready) + 1, "ready")):
            del ready[some - 1]  # it becomes ready a moment later
        return ready

    def _ready(self) -> list[tuple[Any, int]]:
        return [(what, 1) for what, events in self._watched.items() if _is_ready(what, events)]


def _is_ready(what: Any, events: int) -> bool:
    if isinstance(what, Dealer):
        return bool(what.get(zmq.EVENTS) & events)
    return bool(select.select([what], [], [], 0)[0])
