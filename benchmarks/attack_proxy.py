"""A machine in the middle: a proxy between an honest client and its server that reads packets and may change them.

It saves an attacker the computation of what only an honest client can compute: the proof of a JOIN and the digests of a
replica.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgpack
from attack_wire import (
    ANSWER,
    DECLINE,
    EVALUATION,
    HELLO,
    HOST,
    NO_CLIENTS,
    OFFER,
    Peer,
    answers,
    envelope,
    hello,
    opened,
    pack_answers,
    packet,
    tag_of,
    type_of,
)

Hook = Callable[[bytes], bytes | None]


def _as_it_is(data: bytes) -> bytes | None:
    return data


class Proxy:
    """A context in which connections to `port` are forwarded to the server.

    Args:
        target: the server's port.
        up: changes each packet on its way to the server; a result of None drops the packet.

    Attributes:
        port: the proxy's port.
        said: the packets that clients sent.
        declined: reasons of the server's refusals.
        was_offered: whether the server has made an offer.
    """

    def __init__(self, target: int, up: Hook = _as_it_is) -> None:
        self._target = target
        self._up = up
        self._listening = socket.create_server((HOST, 0))
        self.port = int(self._listening.getsockname()[1])
        self._open: list[Peer] = []
        self.said: list[bytes] = []
        self.declined: list[str] = []
        self.was_offered = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        for peer in self._open:
            peer.close()

    def session(self) -> bytes:
        """Return the last session seen; empty if there was none."""
        return next((data[1:9] for data in reversed(self.said) if type_of(data) != HELLO), b"")

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError):
            server = Peer(self._target)
            self._open.append(server)
            client = Peer(near=near)
            self._open.append(client)
            server.socket.settimeout(None)
            client.socket.settimeout(None)
            threading.Thread(target=self._carry_down, args=(server, client), daemon=True).start()
            try:
                while True:
                    data = client.receive()
                    self.said.append(data)
                    changed = self._up(data)
                    if changed is not None:
                        server.send(changed)
            finally:
                server.close()
                client.close()
        near.close()

    def _carry_down(self, server: Peer, client: Peer) -> None:
        with suppress(OSError):
            try:
                while True:
                    data = server.receive()
                    self.was_offered = self.was_offered or type_of(data) == OFFER
                    if type_of(data) == DECLINE:
                        self.declined.append(str(msgpack.unpackb(data[9:])[0]))
                    client.send(data)
            finally:
                server.close()
                client.close()


def silent(data: bytes) -> bytes | None:
    """A member that sends PINGs and no answers."""
    return None if type_of(data) == ANSWER else data


def lying(
    metrics: Callable[[dict[str, bytes]], dict[str, bytes]] = dict, digest: Callable[[bytes], bytes] = bytes
) -> Hook:
    """Return the hook of a process that hosts only the evaluator and falsifies its results.

    Args:
        metrics: changes the metrics, name → eight bytes of a value.
        digest: changes each digest.
    """

    def up(data: bytes) -> bytes | None:
        if type_of(data) == HELLO:
            run, *_ = msgpack.unpackb(data[9:])
            return hello((), NO_CLIENTS, True, session=data[1:9], run=run)
        if type_of(data) != ANSWER:
            return data
        first, each = answers(data[9:])
        changed = [[told(frame) for frame in frames] for frames in each]
        return packet(ANSWER, data[1:9], pack_answers(first, changed))

    def told(frame: bytes) -> bytes:
        if tag_of(frame) != EVALUATION:
            return frame
        tag, client, round, base, (names, values, proof) = opened(frame)
        found = {name: values[8 * i : 8 * i + 8] for i, name in enumerate(names)}
        found = metrics(found) if found else found
        proof = [[name, digest(each)] for name, each in proof]
        return envelope(tag, client, [list(found), b"".join(found.values()), proof], round, base)

    return up
