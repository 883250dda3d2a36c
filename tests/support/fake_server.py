"""A server that says to its clients whatever a test wants, and notes what they say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

import msgpack
import zmq
from hostile_packets import column

from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import Packet, Type

SESSION = b"a stay 1"
RUN = b"this run"
HOST = -3
Answer = Callable[[Packet], Iterable[bytes]]
SCENARIO: dict[str, Any] = {
    "name": "asked",
    "task": {"name": "quadratic", "dimension": 20},
    "algorithm": {"name": "decomfl"},
    "participation": {"clients": 8},
    "stop": {"rounds": 3},
}


class FakeServer(threading.Thread):
    """A context in which a server listens on a free port of this machine. answer: what it says to a packet."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(name="fake server", daemon=True)
        self._answer, self._is_over = answer, threading.Event()
        self.heard: list[Packet] = []

    def __enter__(self) -> Self:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self.endpoint = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()
        self._socket.close()
        self._context.term()

    def run(self) -> None:
        while not self._is_over.is_set() or self._socket.poll(50):  # what was said before the end is heard
            if self._socket.poll(10):
                peer, data = self._socket.recv_multipart()
                got = packet.read(data)
                self.heard.append(got)
                for said in self._answer(got):
                    self._socket.send_multipart([peer, said])

    @property
    def farewells(self) -> list[bytes]:
        """What its clients said last."""
        return [bytes(got.content) for got in self.heard if got.type is Type.FAREWELL]

    def has_heard(self, words: str) -> bool:
        return any(words.encode() in bytes(got.content) for got in self.heard)


def offering(scenario: bytes | dict[str, Any] = b"{}", **changes: Any) -> Answer:
    """A server that offers a client: what is sound but for the changes."""
    content = scenario if isinstance(scenario, bytes) else json.dumps(SCENARIO | scenario).encode()
    sound: dict[str, Any] = {"run": RUN, "host": HOST, "spans": column(0, 0), "evaluates": 0, "heartbeat": 2000}
    sound |= {"nonce": bytes(16), "scenario": content}
    offer = msgpack.packb(list((sound | changes).values()))
    return lambda got: [packet.packet(Type.OFFER, SESSION, offer)] if got.type is Type.HELLO else []


def declining(reason: str, detail: str) -> Answer:
    """A server that sends everybody away."""
    said = packet.packet(Type.DECLINE, SESSION, msgpack.packb([reason, detail]))
    return lambda got: [said] if got.type is Type.HELLO else []
