"""The hub's socket alone: messages from its connections, in an order that the test chooses."""

from __future__ import annotations

import zmq
from hostile_peers import Peer

from seedbus.bus.zeromq.server.connections import Connection
from seedbus.bus.zeromq.server.router_socket import RouterSocket

WITHIN_MS = 10_000


def test_a_closed_connection_does_not_mix_up_the_frames_of_another() -> None:
    """A connection's first message makes the socket read which peers have gone and their last messages. While that
    message
    is not read completely, its own frames would be read instead, the first one as a peer's routing id."""
    messages: list[tuple[bytes, int]] = []

    def on_message(peer: bytes, connection: Connection, frames: int, last: zmq.Frame, size: int) -> None:
        assert connection.peer == peer
        messages.append((peer, frames))

    context = zmq.Context[zmq.Socket[bytes]]()
    router = RouterSocket(
        context,
        "tcp://127.0.0.1:*",
        2**20,
        heard=on_message,
        left=lambda connection, why: None,
        refused=lambda who, reason, detail: None,
    )
    try:
        with Peer(int(router.endpoint.rpartition(":")[2])) as first:
            first.send(b"hello")
            router.wait(WITHIN_MS)
        with Peer(int(router.endpoint.rpartition(":")[2])) as second:
            for frames in [(b"", b"", b"of three"), (b"of one",)]:
                second.send(*frames)
                assert router._socket.poll(WITHIN_MS)  # `wait` would read the departed peers before there is a message
                router._read_one()
    finally:
        router.close(0)
        context.term()
    (one, _), *others = messages
    assert [frames for _, frames in messages] == [1, 3, 1]
    assert len({peer for peer, _ in others} - {one}) == 1
