"""Messages per second through the bus in memory, compared with a bare asyncio queue.

    python benchmarks/bus.py [--clients 100] [--rounds 50] [--repeats 7] [--json] [--profile]

A server sends a PLAN to every client, and the clients' process answers each with a REPORT; payloads are empty. `queue`
is the same echo with one `asyncio.Queue` per actor and nothing else: no bytes, links, rules, ledger or simulated time.
Both run in turn in every repeat and the best CPU time of each counts, so that a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from echo import through_a_queue
from rows import Row

from seedbus.bus import (
    HOST,
    SERVER,
    Bus,
    Declined,
    Envelope,
    FaultHooks,
    HostRequest,
    Ledger,
    Links,
    MemoryTransport,
    Network,
    Offer,
    VirtualClock,
    decode,
    encode,
)
from seedbus.bus.envelope import PLAN, REPORT
from seedbus.bus.transport import OPERATOR, Rights


class Everybody:
    """A registration that offers all clients to one process."""

    can_go_on = could_go_on = has_begun = True
    rounds_closed = 0

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self.missing = set[int]()

    def greet(self, request: HostRequest, rights: Rights = OPERATOR) -> Offer | Declined:
        return Offer(HOST, ((0, self._clients - 1),), False, b"")

    def admit(self, host: int, frame: bytes) -> tuple[list[bytes], bool]:
        return [], True

    def gone(self, host: int, why: str, kept_s: float = 0.0) -> None:
        pass

    def refused(self, peer: str, reason: str, detail: str) -> None:
        pass


class Echo:
    """A follower that answers each PLAN with an empty REPORT."""

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        return []

    def welcome(self, frame: bytes) -> None:
        pass

    def handle(self, frame: bytes) -> list[bytes]:
        plan = decode(frame)
        return [encode(Envelope(REPORT, plan.client, plan.round, 0))[0]]


def through_the_bus(clients: int, rounds: int) -> None:
    """Send 2 × clients × rounds messages; the bus encodes, delivers, decodes and records each."""
    clock, ledger, transport = VirtualClock(), Ledger(Path("unwritten")), MemoryTransport(lambda offer: Echo())
    bus = Bus(clock, transport, ledger, Links(Network(), seed=0), FaultHooks((), seed=0))
    mailbox = bus.open(SERVER, "the server")
    transport.start(Everybody(clients))

    async def server() -> None:
        for round in range(rounds):
            reported = set[int]()

            def handle(report: Envelope, reported: set[int] = reported) -> bool:
                reported.add(report.client)
                return len(reported) == clients

            for address in range(clients):
                bus.send(Envelope(PLAN, address, round, 0))
            await mailbox.read(handle)

    clock.run(server())
    assert sum(ledger.totals[kind, "messages"] for kind in (PLAN, REPORT)) == 2 * clients * rounds


CONTENDERS: dict[str, Callable[[int, int], None]] = {"bus": through_the_bus, "queue": through_a_queue}


def measure(clients: int, rounds: int, repeats: int) -> dict[str, float]:
    """Return the messages per second of each contender, the best of the repeats."""
    best = dict.fromkeys(CONTENDERS, float("inf"))
    for _ in range(repeats):
        for name, echo in CONTENDERS.items():
            started = time.process_time()
            echo(clients, rounds)
            best[name] = min(best[name], time.process_time() - started)
    return {name: 2 * clients * rounds / seconds for name, seconds in best.items()}


AIM = 5.0  # times the cost of a message through a bare queue


def rows(is_quick: bool) -> Iterator[Row]:
    rates = measure(100, 50, 3 if is_quick else 7)
    bus, queue = (1e6 / rates[name] for name in ("bus", "queue"))
    yield Row("bus: a message", "µs", bus, queue, "asyncio.Queue", queue, "bare queue", aim=AIM)


def profile(clients: int, rounds: int) -> None:
    """Print the thirty functions that take most of a message's time."""
    profiler = cProfile.Profile()
    profiler.runcall(through_the_bus, clients, rounds)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--profile", action="store_true", help="print where the bus spends its time, and stop")
    arguments = parser.parse_args()
    if arguments.profile:
        profile(arguments.clients, arguments.rounds)
        return
    rates = measure(arguments.clients, arguments.rounds, arguments.repeats)
    ratio = rates["queue"] / rates["bus"]
    if arguments.json:
        print(json.dumps({"unit": "messages per second", "figures": rates, "queue_over_bus": ratio}, indent=2))
        return
    print(f"{arguments.clients} clients, {2 * arguments.clients * arguments.rounds:,} messages, one core")
    for name, rate in rates.items():
        print(f"{name:8}{rate:12,.0f} messages/s{1e6 / rate:8.2f} µs a message")
    print(f"a message on the bus costs {ratio:.1f} times one on a bare queue")


if __name__ == "__main__":
    main()
