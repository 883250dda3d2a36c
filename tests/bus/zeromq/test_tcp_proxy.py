"""The counting proxy counts exactly, stalls, breaks and recovers; it measures ZMTP's overhead per message."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import zmq
from tcp_proxy import HOST, Connection, CountingProxy

TIMEOUT_S = 120.0
HANDSHAKE = 107  # ZMTP 3.1: a greeting of 64 bytes, then READY with Socket-Type and an empty Identity


class Lines:
    """A proxy and a listener behind it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.listener = stack.enter_context(socket.create_server((HOST, 0)))
        self.listener.settimeout(TIMEOUT_S)
        self.proxy = stack.enter_context(CountingProxy(self.listener.getsockname()[1]))

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of a new connection through the proxy."""
        near = self._stack.enter_context(socket.create_connection((HOST, self.proxy.port), TIMEOUT_S))
        far, _ = self.listener.accept()
        far.settimeout(TIMEOUT_S)
        return near, self._stack.enter_context(far)


@pytest.fixture
def lines() -> Iterator[Lines]:
    with ExitStack() as stack:
        yield Lines(stack)


def receive(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        assert part, "the connection has ended early"
        data += part
    return data


def is_broken(end: socket.socket) -> bool:
    try:
        return end.recv(1) == b""
    except ConnectionError:
        return True


def leads_nowhere(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), TIMEOUT_S) as near:
            return is_broken(near)
    except ConnectionError:  # a reset may come before the connection is visible
        return True


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)
    return condition()


def counts(link: Connection | CountingProxy) -> tuple[int, int]:
    return link.up, link.down


def test_bytes_are_passed_on_and_counted_by_direction_and_connection(lines: Lines) -> None:
    for number in (1, 2, 3):
        near, far = lines.connect()
        near.sendall(b"question" * number)
        assert receive(far, 8 * number) == b"question" * number
        far.sendall(b"answer" * number)
        assert receive(near, 6 * number) == b"answer" * number
    assert [counts(connection) for connection in lines.proxy.connections] == [(8, 6), (16, 12), (24, 18)]
    assert counts(lines.proxy) == (48, 36)


def test_more_data_than_any_buffer_holds_arrives_complete_in_both_directions_at_once(lines: Lines) -> None:
    near, far = lines.connect()
    data = bytes(range(256)) * 32_768
    writers = [threading.Thread(target=end.sendall, args=(data,)) for end in (near, far)]
    received: dict[socket.socket, bytes] = {}
    readers = [
        threading.Thread(target=lambda end=end: received.update({end: receive(end, len(data))})) for end in (far, near)
    ]
    for thread in (*writers, *readers):
        thread.start()
    for thread in (*writers, *readers):
        thread.join()
    assert received == {near: data, far: data} and counts(lines.proxy) == (len(data), len(data))


def test_the_end_of_one_direction_is_passed_on_and_the_other_goes_on(lines: Lines) -> None:
    near, far = lines.connect()
    near.sendall(b"all")
    near.shutdown(socket.SHUT_WR)
    assert receive(far, 3) == b"all" and far.recv(1) == b""
    far.sendall(b"understood")
    assert receive(near, 10) == b"understood" and lines.proxy.connections[0].is_open
    far.close()
    assert near.recv(1) == b"" and eventually(lambda: not lines.proxy.connections[0].is_open)
    assert counts(lines.proxy) == (3, 10)


def test_a_reset_is_passed_on_and_hurts_no_other_connection(lines: Lines) -> None:
    (near, far), (other_near, other_far) = lines.connect(), lines.connect()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    assert is_broken(far)
    other_near.sendall(b"still here")
    assert receive(other_far, 10) == b"still here"
    assert [connection.is_open for connection in lines.proxy.connections] == [False, True]


def test_a_connection_without_a_listener_ends_and_a_later_one_reaches_a_new_listener(lines: Lines) -> None:
    target = lines.proxy.target
    lines.listener.close()
    assert leads_nowhere(lines.proxy.port)
    with socket.create_server((HOST, target)) as lines.listener:
        near, far = lines.connect()
        near.sendall(b"again")
        assert receive(far, 5) == b"again"


def test_a_pause_holds_everything_up_and_loses_nothing(lines: Lines) -> None:
    near, far = lines.connect()
    lines.proxy.pause()
    near.sendall(b"held up")
    later = socket.create_connection((HOST, lines.proxy.port), TIMEOUT_S)
    later.sendall(b"too")
    far.settimeout(0.1)
    with pytest.raises(TimeoutError):
        far.recv(1)
    assert counts(lines.proxy) == (0, 0) and lines.proxy.connections[0].is_open
    far.settimeout(TIMEOUT_S)
    lines.proxy.resume()
    assert receive(far, 7) == b"held up"
    with later, lines.listener.accept()[0] as accepted:
        assert receive(accepted, 3) == b"too"


@pytest.mark.parametrize("paused", [False, True])
def test_a_cut_breaks_all_connections_and_new_ones_are_accepted(lines: Lines, paused: bool) -> None:
    ends = [end for _ in range(3) for end in lines.connect()]
    if paused:
        lines.proxy.pause()
    lines.proxy.cut()
    assert all(is_broken(end) for end in ends) and not any(cut.is_open for cut in lines.proxy.connections)
    lines.proxy.resume()
    near, far = lines.connect()
    far.sendall(b"new")
    assert receive(near, 3) == b"new"


@pytest.mark.parametrize("paused", [False, True])
def test_leaving_closes_everything_at_once(paused: bool) -> None:
    threads = threading.active_count()
    with socket.create_server((HOST, 0)) as listener:
        with CountingProxy(listener.getsockname()[1]) as proxy:
            near = socket.create_connection((HOST, proxy.port), TIMEOUT_S)
            near.setblocking(False)
            with pytest.raises(BlockingIOError):  # there is no reader, so the proxy has more to write than it can
                while True:
                    near.send(bytes(2**20))
            if paused:
                proxy.pause()
        assert threading.active_count() == threads
        near.settimeout(TIMEOUT_S)
        with near, pytest.raises(ConnectionRefusedError):
            assert is_broken(near)
            socket.create_connection((HOST, proxy.port))


class Pair:
    """A DEALER connected to a ROUTER through a proxy; neither has set an identity or heartbeats."""

    def __init__(self, stack: ExitStack) -> None:
        context = stack.enter_context(zmq.Context())
        self.router: zmq.Socket[bytes] = stack.enter_context(context.socket(zmq.ROUTER))
        self.dealer: zmq.Socket[bytes] = stack.enter_context(context.socket(zmq.DEALER))
        for end in (self.router, self.dealer):
            end.setsockopt(zmq.LINGER, 0)
            end.setsockopt(zmq.RCVTIMEO, int(1_000 * TIMEOUT_S))
            end.setsockopt(zmq.HEARTBEAT_IVL, 0)
            end.setsockopt(zmq.RECONNECT_IVL, 10)
        self.proxy = stack.enter_context(CountingProxy(self.router.bind_to_random_port(f"tcp://{HOST}")))
        self.dealer.connect(self.proxy.endpoint)

    def shakes_hands(self, connection: int) -> bool:
        """Tell whether a connection carries exactly one handshake and then nothing more for a moment."""
        connections, handshake = self.proxy.connections, (HANDSHAKE, HANDSHAKE)
        if not eventually(lambda: len(connections) > connection and counts(connections[connection]) >= handshake):
            return False
        time.sleep(0.05)
        return counts(connections[connection]) == handshake


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


def test_a_handshake_is_107_bytes_each_way_and_messages_add_2_or_9(pair: Pair) -> None:
    assert pair.shakes_hands(0)
    expected_up = expected_down = HANDSHAKE
    for size in (0, 1, 255, 256, 70_000, 1_000_000):
        added = size + (2 if size <= 255 else 9)
        pair.dealer.send(bytes(size))
        identity, content = pair.router.recv_multipart()
        expected_up += added
        assert content == bytes(size) and counts(pair.proxy) == (expected_up, expected_down)
        pair.router.send_multipart([identity, content])  # the identity is the ROUTER's own and is not sent
        expected_down += added
        assert pair.dealer.recv() == content and counts(pair.proxy) == (expected_up, expected_down)


def test_zeromq_reconnects_with_a_new_handshake_after_a_cut(pair: Pair) -> None:
    assert pair.shakes_hands(0)
    pair.proxy.cut()
    assert pair.shakes_hands(1)
    pair.dealer.send(b"after")
    assert pair.router.recv_multipart()[1] == b"after"


def test_messages_sent_during_a_pause_arrive_after_it(pair: Pair) -> None:
    assert pair.shakes_hands(0)
    pair.proxy.pause()
    pair.dealer.send(b"late")
    assert not pair.router.poll(100)
    pair.proxy.resume()
    assert pair.router.recv_multipart()[1] == b"late"


def test_messages_of_several_parts_cost_their_frames(pair: Pair) -> None:
    assert pair.shakes_hands(0)
    pair.dealer.send_multipart([b"", bytes(300)])
    assert [len(part) for part in pair.router.recv_multipart()[1:]] == [0, 300]
    assert counts(pair.proxy) == (HANDSHAKE + 2 + 309, HANDSHAKE)
