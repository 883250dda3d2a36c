"""Messages of gigabytes: seconds and peak memory of both ends over TCP, and of a round of FedAvg.

    python benchmarks/long_messages.py echo [--weights 1300000000] [--width 2]
    python benchmarks/long_messages.py round [--weights 134515008] [--workers 2] [--rounds 2]

`echo` sends a vector of `weights` numbers of `width` bytes to a process and back, each way once. `round` runs FedAvg of
two clients, whose task costs no memory but a point and a gradient, in worker processes over TCP (`--workers 0`: all in
this process). Peaks are of `RssAnon`, which `/proc` gives and a thread reads every 10 ms: replicas that are files of
the page cache (`agents/client/replicas.py`) are not in them, and stand beside as `RssFile`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from seedbus.bus import HOST, Envelope, HostRequest, Kind, decode, encode
from seedbus.bus.clock import wall_seconds
from seedbus.bus.codec import Encoder, encoded
from seedbus.bus.zeromq import Entrance, Hub, Joining, follow
from seedbus.models.task import Task
from seedbus.plugin import load_plugin

WATCHED = os.environ.get("SEEDBUS_WATCHED", "")


class Watch:
    """The peak memory of this process, in bytes."""

    def __init__(self) -> None:
        self.peaks = {"RssAnon": 0, "RssFile": 0}
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in self.peaks:
                    self.peaks[name] = max(self.peaks[name], 1024 * int(value.split()[0]))
            time.sleep(0.01)


class Mirror:
    """A follower that keeps the vector that it is sent, and sends one back when it is asked."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self._vector = np.empty(0)

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        return [encode(Envelope(Kind.JOIN, host, 0, 0))[0]]

    def welcome(self, frame: bytes) -> None:
        pass

    def handle(self, frame: Any) -> list[Any]:
        envelope = decode(frame)
        if envelope.body:
            self._vector = np.frombuffer(envelope.body[0], np.uint8)
            return [b""]
        return [encoded(Envelope(Kind.REPORT, 0, 0, 0, [self._vector.data]))[0]]


def _mirror(endpoint: str, longest: int, pipe: Any) -> None:
    watch = Watch()
    follow(Joining(endpoint, HostRequest(evaluates=False)), lambda offer: Mirror(longest))
    pipe.send(watch.peaks)


async def _echo(size: int) -> None:
    from keys import Desk  # here, because workers load this file as a plug-in, which imports no other file

    class Plain(Desk):
        """A registration that prints what is refused, and why a process is gone."""

        def refused(self, peer: str, reason: str, detail: str) -> None:
            print(f"{peer}: {reason}: {detail}")

        def gone(self, host: int, why: str, kept_s: float = 0.0) -> None:
            print(why)

    watch, longest = Watch(), size + 2**20
    vector = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    digest = hashlib.blake2b(vector.data).digest()  # now: a hub that is busy answers no PING, and its links leave it
    hub = Hub(Entrance("tcp://127.0.0.1:*"), bytes(8), report_limit=longest)
    desk = Plain(1)
    hub.start(desk)  # type: ignore[arg-type]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_mirror, args=(hub.endpoint, longest, theirs))
    process.start()
    while not desk.has_joined:
        await asyncio.sleep(0.01)
    body: list[Any] = [vector.data]
    for name in ("to a process", "back"):
        header, tail = Encoder().parts(Envelope(Kind.PLAN, 0, 0, 0, body))
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        began = wall_seconds()
        hub.deliver(0, header, done.set_result, tail)
        hub.flush()
        (answer,) = await done
        seconds = wall_seconds() - began
        print(f"{size:,} bytes {name}: {seconds:.1f} s, {size / seconds / 1e9:.2f} GB/s", flush=True)
        vector, body, tail = np.empty(0), [], b""  # so that this process has one vector at a time
    assert hashlib.blake2b(decode(answer).body[0]).digest() == digest
    peak = watch.peaks["RssAnon"]
    hub.post(HOST, encode(Envelope(Kind.BYE, HOST, 0, 0))[0])
    while not ours.poll():
        await asyncio.sleep(0.01)
    print(f"peak of this process: {peak / size:.2f} vectors")
    print(f"peak of the other one: {ours.recv()['RssAnon'] / size:.2f} vectors")
    process.join()
    await hub.close()


class FlatObjective:
    """A loss whose gradient is a constant."""

    samples, steps_an_epoch, key = 1, 1, 0

    def __init__(self, problem: FlatProblem) -> None:
        self._problem = problem

    @property
    def point(self) -> Any:
        return self._problem.point

    def loss(self, step: int) -> float:
        return float(self.point[0])

    def gradient(self, step: int, criterion: Any = None) -> Any:
        self._problem.slope.fill(1 + step % 3)
        return self._problem.slope


class FlatProblem:
    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.point, self.slope = np.zeros(dimension, np.float32), np.zeros(dimension, np.float32)

    def x0(self) -> Any:
        return np.full(self.dimension, 0.5, np.float32)

    def samples(self, client: int) -> int:
        return 1

    def objective(self, client: int, round: int) -> FlatObjective:
        return FlatObjective(self)

    def evaluate(self, x: Any, split: str) -> dict[str, float]:
        return {"loss": float(x[0])}

    def state_dict(self, x: Any) -> dict[str, Any]:
        return {"x": x}


class Flat(Task, frozen=True):
    """A task that costs nothing."""

    metrics: ClassVar[tuple[str, ...]] = ("loss",)
    has_layers: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False
    uses_device: ClassVar[bool] = False

    name: Literal["flat"] = "flat"
    dimension: int = 20

    @property
    def may_hold_out(self) -> bool:
        return False

    def bind(self, **_: Any) -> Any:
        return FlatProblem(self.dimension)


def _round(weights: int, workers: int, rounds: int, algorithm: str) -> None:
    from seedbus.scenarios.running.run import run
    from seedbus.scenarios.schema.loading import validate
    from seedbus.scenarios.transports.placement import Placement

    load_plugin(__file__)
    os.environ["SEEDBUS_PLUGINS"] = __file__  # for the workers
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        os.environ["SEEDBUS_WATCHED"] = folder
        scenario = validate(
            {
                "name": "long",
                "task": {"name": "flat", "dimension": weights},
                "algorithm": {"name": algorithm, "local_steps": 2},
                "participation": {"clients": 2},
                "evaluation": {"every": rounds},
                "stop": {"rounds": rounds},
            },
            "long",
        )
        watch, began = Watch(), wall_seconds()
        placement = Placement("tcp", workers=workers) if workers else Placement("memory")
        results = run(scenario, Path(folder) / "run", placement=placement)
        seconds, vector = wall_seconds() - began, 4 * weights
        print(f"{rounds} rounds of {weights:,} weights ({vector / 1e6:.0f} MB), {workers} workers: {seconds:.0f} s")
        _show("server" if workers else "all", watch.peaks, vector)
        for path in sorted(Path(folder).glob("worker-*")):
            _show("worker", json.loads(path.read_text()), vector)
        for kind, of_kind in results.summary["traffic"]["by_kind"].items():
            print(f"  {kind}: {of_kind['messages']} messages, {of_kind['bytes']:,} bytes")
        rows = results.messages
        link = rows[rows["kind"] == "LINK"] if "LINK" in set(rows["kind"]) else rows[rows["kind"] == "link"]
        print(f"  the transport's own: {int(link['bytes'].sum()):,} bytes")
        journal = (Path(folder) / "run" / "journal.sqlite").stat().st_size
        print(f"  digest {results.summary['digest']}, journal {journal:,} bytes")


def _show(whose: str, peaks: dict[str, int], vector: int) -> None:
    anon, mapped = (peaks[name] for name in ("RssAnon", "RssFile"))
    print(f"  peak of {whose}: {anon / 1e6:,.0f} MB, {anon / vector:.2f} vectors; files {mapped / vector:.2f}")


def _watch_worker() -> None:
    """Write this worker's peaks into the folder that its run names, again and again."""
    watch = Watch()

    def write() -> None:
        while Path(WATCHED).exists():
            time.sleep(0.05)
            unfinished = Path(WATCHED) / f"unfinished-{os.getpid()}"
            try:
                unfinished.write_text(json.dumps(watch.peaks))
                unfinished.replace(Path(WATCHED) / f"worker-{os.getpid()}")
            except OSError:
                return

    threading.Thread(target=write, daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["echo", "round"])
    parser.add_argument("--weights", type=int)
    parser.add_argument("--width", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--algorithm", default="fedavg")
    asked = parser.parse_args(arguments)
    does: dict[str, Callable[[], None]] = {
        "echo": lambda: asyncio.run(_echo(asked.width * (asked.weights or 1_300_000_000))),
        "round": lambda: _round(asked.weights or 134_515_008, asked.workers, asked.rounds, asked.algorithm),
    }
    does[asked.what]()


if __name__ == "__main__":
    main()
elif WATCHED:
    _watch_worker()
