"""A long run of a TCP server whose clients join, leave and are killed, to see whether its memory or descriptors grow.

    python benchmarks/soak.py --minutes 60 --write docs

The server is `seedbus server` in real time, with DeComFL on a quadratic and forty clients in four processes. One
process, with the evaluator, stays for the whole run. The others stay for some seconds, are then stopped or killed, and
are replaced. Every few seconds the server's memory, threads and open descriptors, its rounds and the bytes of its
folder are read from outside. --write puts them into soak.csv and soak.svg of that folder. The result is the slope of a
line fitted to the memory over the last half.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from model import Plot, page

from seedbus.scenarios.reporting.looks import Line

SCENARIO = """
name: soak
task: {name: quadratic, dimension: 1000}
algorithm: {name: decomfl, perturbations: 2, learning_rate: 0.001}
participation: {clients: 40, cohort: 8, quorum: 1, deadline_s: 0.5}
evaluation: {every: 100}
clock: wall
compute: {evaluation: {distribution: constant, value: 0.005}}
stop: {rounds: 1000000000}
"""
STAYS, COMES = "0-9", ("10-19", "20-29", "30-39")
STAYS_S, AWAY_S = (10.0, 40.0), (0.0, 10.0)
KILLED = 0.5  # share of the processes that are killed; the others are asked to stop
ROUND = b'"event": "round"'


@dataclass
class Sample:
    """The readings at one moment."""

    at_s: float
    resident_mb: float
    threads: int
    descriptors: int
    rounds: int
    log_mb: float
    folder_mb: float
    joined: int
    left: int
    killed: int


@dataclass
class IntermittentProcess:
    """A process that comes and goes.

    Attributes:
        clients: the clients that it hosts.
        next_s: when it ends if it runs, or starts if it does not.
        process: the process; None while it does not run.
    """

    clients: str
    next_s: float = 0.0
    process: subprocess.Popen[bytes] | None = None


@dataclass
class Soak:
    """A running server and its clients."""

    folder: Path
    draw: random.Random
    began_s: float = field(default_factory=time.monotonic)
    joined: int = 0
    left: int = 0
    killed: int = 0
    rounds: int = 0
    _read: int = 0

    def __post_init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        (self.folder / "soak.yaml").write_text(SCENARIO)
        self.run = self.folder / "run"
        words = ("server", str(self.folder / "soak.yaml"), "--bind", self.endpoint, "--out", str(self.run))
        self.server = _start(*words)
        self.stays = self._client(STAYS, "--evaluator")
        self.intermittent = [IntermittentProcess(clients) for clients in COMES]

    def _client(self, clients: str, *more: str) -> subprocess.Popen[bytes]:
        return _start("client", "--connect", self.endpoint, "--clients", clients, "--patience", "30", *more)

    def churn(self) -> None:
        """Start and end the processes that are due; none ends before the first round, which needs all of them."""
        now_s = time.monotonic() - self.began_s
        for each in self.intermittent:
            if now_s < each.next_s:
                continue
            if each.process is None:
                each.process = self._client(each.clients)
                self.joined += 1
                each.next_s = now_s + self.draw.uniform(*STAYS_S)
                continue
            if not self._has_begun():
                continue
            if self.draw.random() < KILLED:
                each.process.kill()
                self.killed += 1
            else:
                each.process.terminate()
                self.left += 1
            each.process.wait(30)
            each.process, each.next_s = None, now_s + self.draw.uniform(*AWAY_S)

    def sample(self) -> Sample:
        """Take a sample. Raises `RuntimeError` if the server or the process that stays has ended."""
        for name, process in (("server", self.server), ("process that stays", self.stays)):
            if process.poll() is not None:
                raise RuntimeError(f"the {name} has ended with exit code {process.returncode}")
        log = self.run / "log.jsonl"
        self._count(log)
        status = dict(line.split(":", 1) for line in _proc(self.server.pid, "status").read_text().splitlines())
        return Sample(
            at_s=time.monotonic() - self.began_s,
            resident_mb=int(status["VmRSS"].split()[0]) * 1024 / 1e6,
            threads=int(status["Threads"]),
            descriptors=len(list(_proc(self.server.pid, "fd").iterdir())),
            rounds=self.rounds,
            log_mb=log.stat().st_size / 1e6 if log.exists() else 0.0,
            folder_mb=sum(path.stat().st_size for path in self.run.rglob("*") if path.is_file()) / 1e6,
            joined=self.joined,
            left=self.left,
            killed=self.killed,
        )

    def _has_begun(self) -> bool:
        self._count(self.run / "log.jsonl")
        return self.rounds > 0

    def _count(self, log: Path) -> None:
        if not log.exists():
            return
        with log.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")
        self.rounds += whole.count(ROUND)
        self._read += len(whole) + len(end)

    def close(self) -> None:
        for process in (self.server, self.stays, *(each.process for each in self.intermittent)):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in (self.server, self.stays, *(each.process for each in self.intermittent)):
            if process is not None:
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _start(*words: str) -> subprocess.Popen[bytes]:
    errors = None if words[0] == "server" else subprocess.DEVNULL  # clients report each time that they are stopped
    command = [sys.executable, "-m", "seedbus", *words, "--quiet"]
    return subprocess.Popen(command, start_new_session=True, stderr=errors)


def _proc(pid: int, what: str) -> Path:
    return Path(f"/proc/{pid}/{what}")


def soak(minutes: float, every_s: float, seed: int, write: Path | None) -> list[Sample]:
    """Run for so many minutes and return the samples; they are written as they come, in case the run is stopped."""
    found: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        run = Soak(Path(place), random.Random(seed))
        try:
            while time.monotonic() - run.began_s < 60 * minutes:
                for _ in range(max(1, round(every_s))):
                    time.sleep(min(1.0, every_s))
                    run.churn()
                found.append(run.sample())
                if write is not None:
                    _write(write, found)
        except KeyboardInterrupt:
            pass
        finally:
            run.close()
    return found


def slope(samples: list[Sample]) -> tuple[float, float]:
    """Return the growth of the memory over the last half: MB per hour, and MB per 1,000 rounds."""
    last = samples[len(samples) // 2 :]
    resident = np.array([sample.resident_mb for sample in last])
    hours = np.array([sample.at_s / 3600 for sample in last])
    thousands = np.array([sample.rounds / 1000 for sample in last])
    if len(last) < 3 or thousands[-1] == thousands[0]:
        return float("nan"), float("nan")
    return float(np.polyfit(hours, resident, 1)[0]), float(np.polyfit(thousands, resident, 1)[0])


def told(samples: list[Sample]) -> str:
    """Return the result as text."""
    last, (hourly, each) = samples[-1], slope(samples)
    resident = [sample.resident_mb for sample in samples]
    descriptors = [sample.descriptors for sample in samples]
    return (
        f"{last.at_s / 60:.1f} min: {last.rounds:,} rounds ({last.rounds / last.at_s:.1f} a second); "
        f"{last.joined} processes joined, {last.left} left, {last.killed} were killed\n"
        f"memory: {resident[0]:.1f} MB at first, {max(resident):.1f} at most, {resident[-1]:.1f} at the end; "
        f"over the last half {hourly:+.2f} MB an hour, {each:+.3f} MB per 1,000 rounds\n"
        f"descriptors: {min(descriptors)} to {max(descriptors)}; log {last.log_mb:.1f} MB, "
        f"folder {last.folder_mb:.1f} MB"
    )


def plots(samples: list[Sample]) -> bytes:
    minutes = [sample.at_s / 60 for sample in samples]
    x = "minutes"
    rates = [0.0] + [(b.rounds - a.rounds) / (b.at_s - a.at_s) for a, b in pairwise(samples)]
    gone = [sample.left + sample.killed for sample in samples]
    figures = [
        Plot("memory", x, "the server's memory (MB)", [Line("", minutes, [s.resident_mb for s in samples])]),
        Plot("rounds", x, "rounds a second", [Line("", minutes, rates)]),
        Plot("descriptors", x, "open descriptors", [Line("", minutes, [s.descriptors for s in samples])]),
        Plot(
            "churn",
            x,
            "processes",
            [Line("joined", minutes, [s.joined for s in samples]), Line("left or killed", minutes, gone)],
        ),
        Plot("log", x, "log.jsonl (MB)", [Line("", minutes, [s.log_mb for s in samples])]),
        Plot("folder", x, "the run's folder (MB)", [Line("", minutes, [s.folder_mb for s in samples])]),
    ]
    return page(figures)


def _write(folder: Path, samples: list[Sample]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"soak.csv.{os.getpid()}"
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        names = [each.name for each in fields(Sample)]
        table.writerow(names)
        for sample in samples:
            values: list[Any] = [getattr(sample, name) for name in names]
            table.writerow([f"{value:.3f}" if isinstance(value, float) else value for value in values])
    unfinished.replace(folder / "soak.csv")
    (folder / "soak.svg").write_bytes(plots(samples))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="between two samples")
    parser.add_argument("--seed", type=int, default=0, help="draws which client goes when, and how")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="where soak.csv and soak.svg go")
    asked = parser.parse_args()
    samples = soak(asked.minutes, asked.every, asked.seed, asked.write)
    print(told(samples))


if __name__ == "__main__":
    main()
