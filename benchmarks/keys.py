"""The cost of keys: round trips over TCP with and without encryption, and the time in which a process joins.

    python benchmarks/keys.py [--rounds 30] [--turns 5]

One hub, and one link on a thread that answers each frame with as many bytes. Cohorts of 100 and 1,000 clients with
frames of 100 bytes, and one client with frames of 1 MB, as a dense model has. Both ends share this process, so the
figures contain the work of both. Turns with and without keys alternate, so that a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
from collections.abc import Sequence
from contextlib import suppress

import zmq

from seedbus.bus import HOST, Envelope, HostRequest, Kind, Offer, encode
from seedbus.bus.clock import wall_seconds
from seedbus.bus.transport import OPERATOR, Declined, Rights
from seedbus.bus.zeromq import Entrance, Hub, Joining, follow
from seedbus.bus.zeromq.keys import Authenticator, Identity, KeyPair

CASES = {"100 clients, 100 B": (100, 100), "1,000 clients, 100 B": (1000, 100), "1 client, 1 MB": (1, 10**6)}


class Echo:
    """A follower that answers each frame with the same bytes."""

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        return [encode(Envelope(Kind.JOIN, host, 0, 0))[0]]

    def welcome(self, frame: bytes) -> None:
        pass

    def handle(self, frame: bytes) -> list[bytes]:
        return [frame]


class Desk:
    """A registration for one process with all clients."""

    missing: frozenset[int] = frozenset()
    rounds_closed, has_begun, can_go_on, could_go_on = 0, True, True, True

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self.has_joined = False

    def greet(self, request: HostRequest, rights: Rights = OPERATOR) -> Offer | Declined:
        return Offer(HOST, ((0, self._clients - 1),), False, b"{}")

    def admit(self, host: int, frame: bytes) -> tuple[list[bytes], bool]:
        self.has_joined = True
        return [encode(Envelope(Kind.WELCOME, host, 0, 0))[0]], True

    def gone(self, host: int, why: str, kept_s: float = 0.0) -> None:
        pass

    def refused(self, peer: str, reason: str, detail: str) -> None:
        raise RuntimeError(f"{peer}: {reason}: {detail}")


async def _measure(clients: int, size: int, rounds: int, with_keys: bool) -> tuple[float, float]:
    """Seconds until the process had joined, and median seconds of a round."""
    own, server = KeyPair.new(), KeyPair.new()
    with zmq.Context() as context:
        door = Authenticator(context, lambda key: True) if with_keys else None
        desk = Desk(clients)
        entrance = Entrance("tcp://127.0.0.1:*", keys=server if with_keys else None)
        hub = Hub(entrance, bytes(8), report_limit=2 * size, context=context)
        hub.start(desk)  # type: ignore[arg-type]
        identity = Identity(own, server.public) if with_keys else None
        began = wall_seconds()
        thread = threading.Thread(target=_follow, args=(hub.endpoint, identity), name="followers", daemon=True)
        thread.start()
        while not desk.has_joined:
            await asyncio.sleep(0.0005)
        joined_s = wall_seconds() - began
        frame, times = bytes(size), []
        for _ in range(rounds):
            left, done = clients, asyncio.get_running_loop().create_future()

            def answered(frames: list[bytes], done: asyncio.Future[None] = done) -> None:
                nonlocal left
                left -= 1
                if not left:
                    done.set_result(None)

            began = wall_seconds()
            for client in range(clients):
                hub.deliver(client, frame, answered)
            hub.flush()
            await done
            times.append(wall_seconds() - began)
        hub.post(HOST, encode(Envelope(Kind.BYE, HOST, 0, 0))[0])
        while thread.is_alive():
            await asyncio.sleep(0.001)
        await hub.close()
        if door is not None:
            door.close()
    return joined_s, statistics.median(times)


def _follow(endpoint: str, identity: Identity | None) -> None:
    with suppress(zmq.ZMQError):
        follow(Joining(endpoint, HostRequest(evaluates=False), identity=identity), lambda offer: Echo())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args(arguments)
    print(f"{'':22} {'plain':>10} {'keys':>10} {'ratio':>18}")
    joins: dict[bool, list[float]] = {False: [], True: []}
    for name, (clients, size) in CASES.items():
        found: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(asked.turns):
            for with_keys in (False, True) if turn % 2 else (True, False):
                joined_s, round_s = asyncio.run(_measure(clients, size, asked.rounds, with_keys))
                joins[with_keys].append(joined_s)
                found[with_keys].append(round_s)
        _show(name, found)
    _show("let in, from nothing", joins)


def _show(name: str, found: dict[bool, list[float]]) -> None:
    ratios = sorted(keyed / plain for plain, keyed in zip(found[False], found[True], strict=True))
    plain, keyed = (statistics.median(found[with_keys]) * 1000 for with_keys in (False, True))
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    print(f"{name:22} {plain:>7.2f} ms {keyed:>7.2f} ms {spread:>18}")


if __name__ == "__main__":
    main()
