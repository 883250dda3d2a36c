"""The hub's socket alone: messages from its connections, in an order that the test chooses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq
from hostile_peers import MORE, Peer, frame
from processes import wait_for

from seedbus.bus.zeromq import sockets
from seedbus.bus.zeromq.keys import Identity, KeyPair
from seedbus.bus.zeromq.server.connection import STRANGERS_STRIKES, Connection
from seedbus.bus.zeromq.server.router_socket import Entrance, RouterSocket

WITHIN_MS = 120_000


@contextmanager
def listening(heard: Any, refused: Any, keys: KeyPair | None = None) -> Iterator[RouterSocket]:
    context = zmq.Context[zmq.Socket[bytes]]()
    here = Entrance("tcp://127.0.0.1:*", keys=keys)
    router = RouterSocket(context, here, 2**20, heard=heard, left=lambda connection, why: None, refused=refused)
    try:
        yield router
    finally:
        router.close(0)
        context.term()


def port(router: RouterSocket) -> int:
    return int(router.endpoint.rpartition(":")[2])


def test_a_closed_connection_does_not_mix_up_the_frames_of_another() -> None:
    """A connection's first message makes the socket read which peers have gone and their last messages. While that
    message is not read completely, its own frames would be read instead, the first one as a peer's routing id."""
    messages: list[tuple[bytes, int]] = []

    def on_message(peer: bytes, connection: Connection, frames: int, last: zmq.Frame, size: int) -> None:
        assert connection.peer == peer
        messages.append((peer, frames))

    with listening(on_message, lambda *refusal: None) as router:
        with Peer(port(router)) as first:
            first.send(b"hello")
            router.wait(WITHIN_MS)
        with Peer(port(router)) as second:
            for frames in [(b"", b"", b"of three"), (b"of one",)]:
                second.send(*frames)
                assert router._socket.poll(WITHIN_MS)  # `wait` would read the departed peers before there is a message
                router._read_one()
    (one, _), *others = messages
    assert [frames for _, frames in messages] == [1, 3, 1]
    assert len({peer for peer, _ in others} - {one}) == 1


def test_nothing_is_heard_over_a_connection_that_was_hung_up_on() -> None:
    """Hanging up discards what the kernel has, while ZeroMQ may be in the middle of it: what it then takes for messages
    are none."""
    heard: list[int] = []
    refused: list[str] = []

    def on_message(peer: bytes, connection: Connection, frames: int, last: zmq.Frame, size: int) -> None:
        heard.append(frames)

    with listening(on_message, lambda *why: refused.append(why[1])) as router, Peer(port(router)) as peer:
        peer.raw(frame(b"", MORE) * STRANGERS_STRIKES + frame(b"") + frame(b"later"))
        assert router._socket.poll(WITHIN_MS)
        assert router._read_one() and router._read_one()
    assert (heard, refused) == ([STRANGERS_STRIKES + 1], ["too-many-refusals"])


async def test_a_socket_stops_once_though_closing_is_interrupted_and_done_again() -> None:
    with listening(lambda *message: None, lambda *refusal: None) as router:
        assert not router.stop()
    with listening(lambda *message: None, lambda *refusal: None) as router:
        router.start(1000.0, lambda: None, lambda: None)
        assert [router.stop(), router.stop()] == [True, False]


def test_a_handshake_for_a_server_with_another_key_is_not_said_to_be_another_protocol() -> None:
    refused: list[str] = []
    with (
        listening(lambda *message: None, lambda *why: refused.append(why[2]), KeyPair.new()) as router,
        zmq.Context() as context,
        sockets.make(context, zmq.DEALER, identity=Identity(KeyPair.new(), KeyPair.new().public)) as peer,
    ):
        peer.connect(router.endpoint)

        def is_refused() -> bool:
            router._connections.read_events()
            return bool(refused)

        wait_for(is_refused)
    assert set(refused) == {"it expects a server with another key"}
