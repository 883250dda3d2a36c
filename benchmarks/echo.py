"""Batched echoes through ZeroMQ alone: what any bus of several processes can at best be measured against.

    python benchmarks/echo.py [--workers 2] [--clients 1000 5000] [--rounds 100] [--json]

A ROUTER holds a DEALER in each worker process, over TCP on loopback. In a round it sends every worker one message, with
an envelope of 40 bytes for each of the worker's share of the clients; the worker splits it, and answers with as many
envelopes in one message, which the ROUTER's side splits. No envelope is looked into, and nothing is counted or timed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import zmq

ENVELOPE_BYTES = 40
WARM_UP = 5  # rounds that are not counted
TIMEOUT_S = 30.0  # for a round; then something has died
_LENGTH = struct.Struct("<I")
_STOP = b""


def pack(envelopes: Sequence[bytes]) -> bytes:
    """One message that holds all of them, each behind its length."""
    return b"".join([part for envelope in envelopes for part in (_LENGTH.pack(len(envelope)), envelope)])


def split(batch: bytes) -> list[bytes]:
    """The envelopes of a message that `pack` made."""
    envelopes, start = [], 0
    while start < len(batch):
        (length,) = _LENGTH.unpack_from(batch, start)
        start += _LENGTH.size + length
        envelopes.append(batch[start - length : start])
    return envelopes


def work(endpoint: str) -> None:
    """A worker process: answers each envelope with one of its own, until it is told to stop."""
    answer = b"a" * ENVELOPE_BYTES
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        _prepare(dealer)
        dealer.connect(endpoint)
        dealer.send(b"ready")
        while batch := dealer.recv():
            dealer.send(pack([answer for _ in split(batch)]))


def echo(workers: int, clients: int, rounds: int) -> float:
    """Seconds a round takes, the median. Each worker has an equal share of the clients, as far as that goes."""
    shares = [clients * (number + 1) // workers - clients * number // workers for number in range(workers)]
    question, seconds = b"q" * ENVELOPE_BYTES, []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        _prepare(router)
        with _workers(router, workers) as identities:
            for _ in range(WARM_UP + rounds):
                started = time.perf_counter()
                for identity, share in zip(identities, shares, strict=True):
                    router.send_multipart([identity, pack([question] * share)])
                answered = sum(len(split(router.recv_multipart()[1])) for _ in identities)
                seconds.append(time.perf_counter() - started)
                assert answered == clients
    return statistics.median(seconds[WARM_UP:])


def _prepare(end: zmq.Socket[bytes]) -> None:
    end.setsockopt(zmq.LINGER, 0)
    end.setsockopt(zmq.RCVTIMEO, int(1_000 * TIMEOUT_S))


@contextmanager
def _workers(router: zmq.Socket[bytes], count: int) -> Iterator[list[bytes]]:
    """As many worker processes, known to the router by these identities; none outlives the context."""
    port = router.bind_to_random_port("tcp://127.0.0.1")
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=work, args=(f"tcp://127.0.0.1:{port}",), daemon=True) for _ in range(count)]
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
    figures = {clients: echo(arguments.workers, clients, arguments.rounds) for clients in arguments.clients}
    if arguments.json:
        print(json.dumps({"unit": "seconds per round", "workers": arguments.workers, "figures": figures}, indent=2))
        return
    print(f"{arguments.workers} workers, median of {arguments.rounds} rounds, 2 messages a client and round")
    for clients, seconds in figures.items():
        print(f"{clients:8,} clients{1e3 * seconds:10.3f} ms a round{1e6 * seconds / clients:8.2f} µs a client")


if __name__ == "__main__":
    main()
