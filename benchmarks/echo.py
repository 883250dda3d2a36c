"""Batched echoes through ZeroMQ alone: the lower bound for a message bus between processes.

    python benchmarks/echo.py [--workers 2] [--clients 1000 5000] [--rounds 100] [--json]

A ROUTER is connected to a DEALER in each worker process, over TCP on loopback. In each round it sends every worker one
message, with an envelope for each of the worker's clients. The worker splits it and answers with as many envelopes in
one message, which the ROUTER's side splits.

`bare`: envelopes are 40 opaque bytes, and nothing is counted or timed. `read`: envelopes are a PLAN and a REPORT of one
scalar, encoded and decoded by the bus's codec at both ends, and each has a ledger row. A simulator that records the
bytes of every message cannot do less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import zmq

from seedbus.bus import SERVER, Envelope, Kind, Ledger, decode, encode
from seedbus.bus.codec import Encoder, decode_parts
from seedbus.bus.envelope import PLAN, REPORT, SHORT
from seedbus.bus.ledger import DELIVERED

ENVELOPE_BYTES = 40
WARM_UP = 5  # first rounds, which are not counted
TIMEOUT_S = 30.0  # for a round; a longer one means that a process has died
_LENGTH = struct.Struct("<I")
_STOP = b""
_QUESTION, _ANSWER = b"q" * ENVELOPE_BYTES, b"a" * ENVELOPE_BYTES


def pack(envelopes: Sequence[bytes]) -> bytes:
    """Join envelopes into one message, each after its length."""
    return b"".join([part for envelope in envelopes for part in (_LENGTH.pack(len(envelope)), envelope)])


def split(batch: bytes) -> list[bytes]:
    """Return the envelopes of a message that `pack` made."""
    envelopes, start = [], 0
    while start < len(batch):
        (length,) = _LENGTH.unpack_from(batch, start)
        start += _LENGTH.size + length
        envelopes.append(batch[start - length : start])
    return envelopes


def through_a_queue(clients: int, rounds: int) -> None:
    """Put as many objects into actors' queues and take them out."""

    async def client(incoming: asyncio.Queue[bytes], outgoing: asyncio.Queue[bytes]) -> None:
        for _ in range(rounds):
            outgoing.put_nowait(await incoming.get())

    async def server() -> None:
        mailbox: asyncio.Queue[bytes] = asyncio.Queue()
        queues: list[asyncio.Queue[bytes]] = [asyncio.Queue() for _ in range(clients)]
        echoes = [asyncio.create_task(client(queue, mailbox)) for queue in queues]
        for _ in range(rounds):
            for queue in queues:
                queue.put_nowait(b"")
            for _ in range(clients):
                await mailbox.get()
        await asyncio.gather(*echoes)

    asyncio.run(server())


class Bare:
    """Opaque envelopes."""

    def ask(self, client: int, round: int) -> bytes:
        return _QUESTION

    def answer(self, question: bytes) -> bytes:
        return _ANSWER

    def hear(self, answer: bytes) -> None:
        pass


class Read:
    """Envelopes of the bus's codec, with a ledger row for each."""

    def __init__(self) -> None:
        self._encoder = Encoder()
        self._ledger = Ledger(Path("unwritten"))
        self._round = 0
        self._body = [[2**63, 1, 1, bytes(4)], []]

    def ask(self, client: int, round: int) -> bytes:
        if round != self._round:  # in a run, a round's rows leave memory when the round ends
            self._ledger = Ledger(Path("unwritten"))
            self._round = round
        header, body = self._encoder.parts(Envelope(PLAN, client, round, round, self._body))
        self._record(PLAN, SERVER, client, round, len(header), len(body))
        return bytes(header + body)

    def answer(self, question: bytes) -> bytes:
        _, client, round, base, _ = decode(question)
        return encode(Envelope(REPORT, client, round, base, [bytes(4)]))[0]

    def hear(self, answer: bytes) -> None:
        (kind, client, round, _, _), header = decode_parts(answer, None, SHORT)
        self._record(kind, client, SERVER, round, header, len(answer) - header)

    def _record(self, kind: Kind, sender: int, recipient: int, round: int, header: int, payload: int) -> None:
        self._ledger.append((0, 0, round, kind, sender, recipient, header, payload, 0, 0, 0, 1, 1, DELIVERED, 0, -1))


WAYS: dict[str, Callable[[], Bare | Read]] = {"bare": Bare, "read": Read}


def work(endpoint: str, way: str) -> None:
    """Run a worker process: answer each envelope with one of its own until the stop message comes."""
    answer = WAYS[way]().answer
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        _prepare(dealer)
        dealer.connect(endpoint)
        dealer.send(b"ready")
        while batch := dealer.recv():
            dealer.send(pack([answer(question) for question in split(batch)]))


def children_s() -> float:
    """Return the CPU seconds of the processes that this one has started and that have not ended; on Linux only."""
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    return sum(time.clock_gettime(~int(child) << 3 | 2) for child in children)  # that number names a process's clock


def echo(
    workers: int, clients: int, rounds: int, way: str = "bare", clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the median seconds of a round, by a clock of this process.

    Clients are divided among the workers as equally as possible.
    """
    ends = [clients * number // workers for number in range(workers + 1)]
    server, seconds = WAYS[way](), []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        _prepare(router)
        with _workers(router, workers, way) as identities:
            for round in range(WARM_UP + rounds):
                started, answered = clock(), 0
                for identity, share in zip(identities, pairwise(ends), strict=True):
                    router.send_multipart([identity, pack([server.ask(client, round) for client in range(*share)])])
                for _ in identities:
                    for answer in split(router.recv_multipart()[1]):
                        server.hear(answer)
                        answered += 1
                seconds.append(clock() - started)
                assert answered == clients
    return statistics.median(seconds[WARM_UP:])


def _prepare(end: zmq.Socket[bytes]) -> None:
    end.setsockopt(zmq.LINGER, 0)
    end.setsockopt(zmq.RCVTIMEO, int(1_000 * TIMEOUT_S))


@contextmanager
def _workers(router: zmq.Socket[bytes], count: int, way: str) -> Iterator[list[bytes]]:
    """Worker processes, by their identities at the router; the context ends all of them."""
    port = router.bind_to_random_port("tcp://127.0.0.1")
    spawn = multiprocessing.get_context("spawn")
    arguments = f"tcp://127.0.0.1:{port}", way
    processes = [spawn.Process(target=work, args=arguments, daemon=True) for _ in range(count)]
    try:
        for process in processes:
            process.start()
        identities = [router.recv_multipart()[0] for _ in processes]
        yield identities
        for identity in identities:
            router.send_multipart([identity, _STOP])
        for process in processes:
            process.join(TIMEOUT_S)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 5_000])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    figures = {
        clients: {way: echo(arguments.workers, clients, arguments.rounds, way) for way in WAYS}
        for clients in arguments.clients
    }
    if arguments.json:
        print(json.dumps({"unit": "seconds per round", "workers": arguments.workers, "figures": figures}, indent=2))
        return
    print(f"{arguments.workers} workers, median of {arguments.rounds} rounds, 2 messages a client and round")
    for clients, ways in figures.items():
        for way, seconds in ways.items():
            a_client = 1e6 * seconds / clients
            print(f"{clients:8,} clients, {way}{1e3 * seconds:10.3f} ms a round{a_client:8.2f} µs a client")


if __name__ == "__main__":
    main()
