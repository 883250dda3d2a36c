"""The time of a round over real sockets, compared with a bare echo between as many processes.

    python benchmarks/zeromq.py [--clients 1000 5000] [--workers 2] [--rounds 100] [--json]
    python benchmarks/zeromq.py --queues 5       (rounds in memory alone, beside a queue: CPU time of a message)
    python benchmarks/zeromq.py --parts 3        (rounds over tcp and an echo that is read: time of each part)

The null task, in which every client is asked in every round: a seed and a few numbers to each, one scalar back. For
comparison a bare ROUTER and bare DEALERs over TCP (`echo.py`) pass as many envelopes, in one message for each worker:
40 opaque bytes (bare), or the same PLANs and REPORTs, encoded, decoded and recorded in a ledger (read). Neither has a
clock, links, a journal, a coordinator or a model. All run in the same minute on the same machine.
Memory is the peak of the server process, beside the peak of the same process before the run.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from echo import WAYS, children_s, echo, through_a_queue
from rows import Row

from seedbus.agents.observer import NullObserver
from seedbus.agents.server.coordinator import Coordinator
from seedbus.bus.clock import VirtualClock
from seedbus.bus.zeromq import Hub
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.transports.placement import Placement


class Stopwatch(NullObserver):
    """When each round was closed, by a clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.closed: list[float] = []

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self.closed.append(self._clock())


def a_round(clients: int, workers: int, rounds: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median seconds of a round, by a clock of this process."""
    scenario = validate(
        {
            "name": "null",
            "task": {"name": "null"},
            "algorithm": {"name": "decomfl", "perturbations": 1},
            "participation": {"clients": clients},
            "evaluation": {"every": rounds},
            "stop": {"rounds": rounds},
        },
        "the benchmark",
    )
    stopwatch = Stopwatch(clock)
    with tempfile.TemporaryDirectory() as folder:
        placement = Placement("tcp", workers) if workers else Placement()
        run(scenario, Path(folder) / "run", observer=stopwatch, placement=placement)
    return median(after - before for before, after in zip(stopwatch.closed, stopwatch.closed[1:], strict=False))


def in_queues(turns: int, rounds: int) -> tuple[float, float]:
    """Return the CPU microseconds of a message in rounds in memory, and through a bare queue; the best of the turns."""
    messages, ours, queue = 2 * 1000, [], []
    for _ in range(turns):
        ours.append(1e6 * a_round(messages // 2, 0, rounds, time.process_time) / messages)
        started = time.process_time()
        through_a_queue(100, 50)
        queue.append(1e6 * (time.process_time() - started) / (2 * 100 * 50))
    return min(ours), min(queue)


def journal_s() -> float:
    """Return the CPU seconds of the thread that writes the journal."""
    writers = [each for each in threading.enumerate() if each.name.startswith("journal")]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(each.ident or 0)) for each in writers)


PARTS: dict[str, Callable[[], float]] = {
    "wall time": time.perf_counter,
    "the server's loop": time.thread_time,
    "its journal's thread": journal_s,
    "its other threads": lambda: time.process_time() - time.thread_time() - journal_s(),
    "the workers": children_s,
}
"""The parts of a round over tcp, each with its clock; all but the first measure CPU time."""
STEPS: dict[str, tuple[type, str]] = {
    "opening a round": (Coordinator, "open_round"),
    "sending PLANs": (Coordinator, "send_plans"),
    "delivering PLANs": (Hub, "deliver"),
    "taking REPORTs": (VirtualClock, "hold"),
    "closing the round": (Coordinator, "close_round"),
}
"""The steps of a round in the server's loop, each with the method whose first call begins it."""


@contextmanager
def steps_timed() -> Iterator[list[list[float]]]:
    """Yield a list that gets, for each round in this context, the CPU time at which each of its steps began."""
    rounds, order = list[list[float]](), list(STEPS)
    originals = {step: getattr(*where) for step, where in STEPS.items()}

    def timed(step: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if step == order[0]:
                rounds.append([])
            if rounds and len(rounds[-1]) == order.index(step):
                rounds[-1].append(time.thread_time())
            return originals[step](*arguments, **named)

        return call

    try:
        for step, (owner, name) in STEPS.items():
            setattr(owner, name, timed(step))
        yield rounds
    finally:
        for step, (owner, name) in STEPS.items():
            setattr(owner, name, originals[step])


def by_parts(turns: int, clients: int, workers: int, rounds: int) -> None:
    """Print the microseconds a client of each part of a round, of an echo that is read, and of the loop's steps.

    Each is the median of rounds, the best of the turns.
    """
    readings: list[list[float]] = []

    def clock() -> float:
        readings.append([each() for each in PARTS.values()])
        return readings[-1][0]

    def middle(differences: Any) -> Any:
        return 1e6 * np.median(differences, axis=0) / clients

    ours, read, steps = [], [], []
    for _ in range(turns):
        readings.clear()
        a_round(clients, workers, rounds, clock)
        ours.append(middle(np.diff(readings, axis=0)))
        readings.clear()
        echo(workers, clients, rounds, "read", clock)  # which reads it before and after each round
        read.append(middle(np.diff(readings, axis=0)[::2]))
        with steps_timed() as began:
            a_round(clients, workers, rounds)
        ends = [[*this, following[0]] for this, following in pairwise(began)]
        steps.append(middle(np.diff(ends, axis=1)))
    print(f"µs a client; {clients:,} clients, {workers} workers, {rounds} rounds, the best of {turns} turns")
    for name, our_us, read_us in zip(PARTS, np.min(ours, axis=0), np.min(read, axis=0), strict=True):
        print(f"{name:24}{our_us:8.2f}   echo {read_us:6.2f}")
    for name, us in zip(STEPS, np.min(steps, axis=0), strict=True):
        print(f"    {name:20}{us:8.2f}")


AIM_QUEUE, AIM_ECHO, AIM_MEMORY = 15.0, 5.0, 1.5  # times a queue, an echo that is read, the same round in memory


def rows(is_quick: bool) -> Iterator[Row]:
    """Measure wall time, the best of the turns; the echo is the cost of sockets and processes alone."""
    workers, rounds, turns = 2, 20 if is_quick else 50, 2 if is_quick else 3
    a_round(10, 0, 3)
    message, queue = in_queues(turns, rounds)
    yield Row("a null round in memory: a message", "µs", message, queue, "asyncio.Queue", aim=AIM_QUEUE)
    for clients in (1000,) if is_quick else (1000, 5000):
        found = [
            [a_round(clients, workers, rounds), a_round(clients, 0, rounds)]
            + [echo(workers, clients, 100, way) for way in WAYS]
            for _ in range(turns)
        ]
        ours, inside, bare, read = (1e3 * min(column) for column in zip(*found, strict=True))
        yield Row(
            f"tcp: a round of {clients:,} clients", "ms", ours, read, "read echo", bare, "bare echo", aim=AIM_ECHO
        )
        yield Row(f"tcp: the same beside memory, {clients:,}", "ms", ours, inside, "in memory", aim=AIM_MEMORY)


def highest_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--queues", type=int, default=0, help="turns of rounds in memory and of a queue, and stop")
    parser.add_argument("--parts", type=int, default=0, help="turns of rounds over tcp and of an echo, and stop")
    arguments = parser.parse_args()
    found = []
    a_round(10, 0, 3)  # imports and compilation are not part of a round
    if arguments.queues:
        message, queue = in_queues(arguments.queues, 15)
        print(f"a message of a null round {message:.2f} µs, of a queue {queue:.2f} µs: {message / queue:.1f} queues")
        return
    if arguments.parts:
        by_parts(arguments.parts, arguments.clients[0], arguments.workers, 30)
        return
    for clients in arguments.clients:
        before = highest_mb()
        bare, read = (echo(arguments.workers, clients, arguments.rounds, way) for way in WAYS)
        ours, inside = (a_round(clients, workers, arguments.rounds) for workers in (arguments.workers, 0))
        figures = {"clients": clients, "tcp_ms": ours * 1e3, "memory_ms": inside * 1e3}
        figures |= {"echo_ms": bare * 1e3, "read_ms": read * 1e3, "tcp_over_echo": ours / bare}
        found.append(figures | {"rss_mb": highest_mb(), "rss_mb_before": before})
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{arguments.workers} workers, {arguments.rounds} rounds of the null task; milliseconds a round")
    for figures in found:
        print(
            "{clients:6,} clients   tcp {tcp_ms:8.1f}   in memory {memory_ms:8.1f}   echo: bare {echo_ms:6.2f}"
            " read {read_ms:6.2f}   tcp/bare {tcp_over_echo:6.1f}"
            "   server {rss_mb:.0f} MB ({rss_mb_before:.0f} before)".format(**figures)
        )


if __name__ == "__main__":
    main()
