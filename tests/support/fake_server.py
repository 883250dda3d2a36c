"""A server that sends its clients what a test chooses, and records what they send."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

import msgpack
import zmq
from hostile_packets import column

from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.checksums import Checksums
from seedbus.bus.zeromq.packet import Packet, Type
from seedbus.versions import minor_of, version

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
OFFERED = {"seedbus": minor_of(version("seedbus"))} | SCENARIO


class FakeServer(threading.Thread):
    """A context in which a server listens on a free port of this machine.

    Args:
        answer: returns the messages with which it answers a packet.

    Attributes:
        received: all packets so far, oldest first.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(name="fake server", daemon=True)
        self._answer = answer
        self._is_over = threading.Event()
        self.received: list[Packet] = []
        self._checksums: dict[bytes, Checksums] = {}  # by routing id

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
        while not self._is_over.is_set() or self._socket.poll(50):  # packets sent before the end are still received
            if self._socket.poll(10):
                peer, data = self._socket.recv_multipart()
                checksums = self._checksums.setdefault(peer, Checksums(True))
                incoming = packet.read(checksums.removed(data))
                self.received.append(incoming)
                for message in self._answer(incoming):
                    self._socket.send_multipart([peer, checksums.added(message)])

    @property
    def farewells(self) -> list[bytes]:
        """The contents of the FAREWELLs of its clients."""
        return [bytes(each.content) for each in self.received if each.type is Type.FAREWELL]

    def has_received(self, words: str) -> bool:
        """Whether any packet contained these words."""
        return any(words.encode() in bytes(each.content) for each in self.received)


def offering(scenario: bytes | dict[str, Any] = b"{}", **changes: Any) -> Answer:
    """Return the answers of a server that makes an offer: a valid one but for the changes; of nobody for a look."""
    content = scenario if isinstance(scenario, bytes) else json.dumps(OFFERED | scenario).encode()
    fields: dict[str, Any] = {"run": RUN, "host": HOST, "spans": column(0, 0), "evaluates": 0, "heartbeat": 2000}
    fields |= {"nonce": bytes(16), "scenario": content}

    def answer(incoming: Packet) -> list[bytes]:
        if incoming.type is not Type.HELLO:
            return []
        _, request = packet.read_hello(incoming.content)
        asked = {"spans": b""} if request.only_looks else {}
        return [packet.packet(Type.OFFER, SESSION, msgpack.packb(list((fields | asked | changes).values())))]

    return answer


def declining(reason: str, detail: str) -> Answer:
    """Return the answers of a server that declines every client."""
    decline = packet.packet(Type.DECLINE, SESSION, msgpack.packb([reason, detail]))
    return lambda incoming: [decline] if incoming.type is Type.HELLO else []
