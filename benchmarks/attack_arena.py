"""A run under attack: its server, its honest workers, and the measurements of both."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from attack_proxy import Proxy
from attack_wire import JOIN, POST, entries, opened, tag_of, type_of

CLIENTS = 8
LONG_RUN, SHORT_RUN = 4000, 300  # rounds
START_S, LIMIT_S = 30.0, 60.0  # limits: until the workers have joined; from the end of an attack to the run's end
WARM_S = 1.5  # duration of rounds before an attack, to measure their rate
EVERY_S = 0.1  # between two samples of the server's memory
SLOWED, GREW_MB, LOGGED = 0.1, 100.0, 100_000.0  # limits of harm: share of the rate, growth of memory, bytes a second
SCENARIO = """
name: attacked
description: eight clients and short rounds, in simulated time
seed: 1
task: {{name: digits, model: softmax}}
algorithm: {{name: decomfl, perturbations: 5, learning_rate: 0.01}}
participation: {{clients: {clients}, cohort: 4}}
evaluation: {{every: 25}}
stop: {{rounds: {rounds}, target: {{metric: accuracy, value: 0.999}}}}
verify: true
"""


@dataclass
class Outcome:
    """The result of an attack. A rate is None if there was no time to measure it.

    Attributes:
        name: the attack.
        finding: a number to refer to it by.
        sent: what the attacker sent.
        outcome: how the run ended.
        exit_code: the server's; None if it had not ended.
        rss_before_mb: the server's memory before the attack.
        rss_peak_mb: its peak during the attack.
        rss_own_mb: what it takes without the attack: its memory before, or the peak of the undisturbed run.
        rounds_before: rounds per second before the attack.
        rounds_during: rounds per second during the attack.
        joined_s: time until the honest worker under observation had joined; None if it did not, or there was none.
        log_bytes_s: growth of the log during the attack.
        terminal_bytes_s: output to the terminal during the attack.
        harms: empty if the run ended as it would have without the attack.
    """

    name: str
    finding: str
    sent: str
    outcome: str
    exit_code: int | None
    rss_before_mb: float
    rss_peak_mb: float
    rss_own_mb: float
    rounds_before: float | None
    rounds_during: float | None
    joined_s: float | None
    log_bytes_s: float
    terminal_bytes_s: float
    harms: list[str] = field(default_factory=list)

    @property
    def growth_mb(self) -> float:
        """The memory that is due to the attack."""
        return max(0.0, self.rss_peak_mb - self.rss_own_mb)

    @property
    def cells(self) -> list[str]:
        """The cells of the table, in the order of HEADS."""
        rates = [("–" if rate is None else f"{rate:.3g}") for rate in (self.rounds_before, self.rounds_during)]
        return [
            self.name,
            self.sent,
            self.outcome,
            f"{self.rss_peak_mb:,.0f} (+{self.growth_mb:,.0f})",
            " → ".join(rates),
            "–" if self.joined_s is None else f"{self.joined_s:.1f}",
            f"{self.log_bytes_s / 1000:,.1f} / {self.terminal_bytes_s / 1000:,.1f}",
            "; ".join(self.harms) or "none",
        ]


HEADS = ("attack", "sent", "outcome", "RSS peak, MB", "rounds/s", "joined, s", "log / terminal, kB/s", "harm")


@dataclass(frozen=True)
class Reference:
    """An undisturbed run.

    Attributes:
        digest: digest of its final model.
        heard: how often each client's report counted.
        proofs: the proofs in a worker's JOIN.
        outcome: its measurements.
    """

    digest: str
    heard: dict[str, Any]
    proofs: tuple[bytes, ...]
    outcome: Outcome


class Arena:
    """A context in which a server runs; when it ends, all processes that were started in it are ended.

    Args:
        target: PYTHONPATH of the Seedbus that is attacked; None: this environment's.
        rounds: length of the run.
        seconds: duration of an attack.
        reference: the undisturbed run to compare with.
        workers: if not 0, `seedbus run --workers` is started instead of `seedbus server`.
        patience_s: how long the server waits for missing clients.
        files: limit on the server's open descriptors; 0: none.
        limit_s: how long to wait for the end of the run.
    """

    def __init__(
        self,
        target: str | None,
        rounds: int,
        *,
        seconds: float = 8.0,
        reference: Reference | None = None,
        workers: int = 0,
        patience_s: float = 60.0,
        files: int = 0,
        limit_s: float = LIMIT_S,
    ) -> None:
        self.seconds = seconds
        self.reference = reference
        self._limit_s = limit_s
        self._rounds = rounds
        self._place = tempfile.TemporaryDirectory(prefix="attacked-")
        self.folder = Path(self._place.name)
        (self.folder / "attacked.yaml").write_text(SCENARIO.format(clients=CLIENTS, rounds=rounds), "utf-8")
        self._environment = dict(os.environ) | ({"PYTHONPATH": target} if target else {})
        self._errors = self.folder / "server.err"
        self._honest: list[subprocess.Popen[bytes]] = []
        self._others: list[subprocess.Popen[bytes]] = []
        self._killed: set[int] = set()
        self._descendants: set[int] = set()
        where = ["run", "--workers", workers] if workers else ["server", "--bind", "tcp://127.0.0.1:*"]
        where += [] if workers else ["--workers", 2]
        command = [where[0], self.folder / "attacked.yaml", *where[1:], "--patience", patience_s]
        allowed = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None
        self.server = self._start([*command, "--out", self.folder / "run"], self._errors, allowed)
        self._window: tuple[float, float] | None = None
        self._samples: list[tuple[float, float, int, int]] = []  # time, MB, bytes of log and of terminal
        self._log: list[dict[str, Any]] = []
        self._offset = 0
        self._is_over = threading.Event()
        self._sampler = threading.Thread(target=self._sample)
        self._sampler.start()
        self.joined_s: float | None = None
        self.kept_out = False

    def __enter__(self) -> Self:
        try:
            self.port = self._port()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._sampler.join()
        for child in (*self._others, *self._honest, self.server):
            if child.poll() is None:
                child.kill()
            child.wait()
        until = time.time() + 3
        while self._alive() and time.time() < until:  # workers end when their parent has ended
            time.sleep(0.05)
        for pid in self._alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._place.cleanup()

    # -- honest workers

    def honest(self, *arguments: object, port: int = 0) -> subprocess.Popen[bytes]:
        """Start an honest worker."""
        return self._client(self._honest, arguments, port)

    def captive(self, port: int, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a worker that the attacker controls; its failure is no harm."""
        return self._client(self._others, arguments, port)

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Kill an honest worker with SIGKILL."""
        self._killed.add(worker.pid)
        worker.kill()
        worker.wait()

    def begin(self, *ports: int) -> list[subprocess.Popen[bytes]]:
        """Start two honest workers, and wait until rounds have run for WARM_S seconds."""
        workers = self.halves(*ports)
        self.wait_for(lambda: self._rounds_since(0.0) and time.time() - self._rounds_since(0.0)[0] > WARM_S)
        return workers

    def halves(self, *ports: int) -> list[subprocess.Popen[bytes]]:
        """Start two honest workers, each with half of the clients; `ports` are those that they connect to."""
        where = [*ports, *[self.port] * (2 - len(ports))]
        halves = [f"0-{CLIENTS // 2 - 1}", f"{CLIENTS // 2}-{CLIENTS - 1}"]
        return [self.honest("--clients", half, port=port) for half, port in zip(halves, where, strict=True)]

    def join(
        self, worker: subprocess.Popen[bytes], since: float, within_s: float, *, others: Callable[[], int] = lambda: 0
    ) -> None:
        """Wait until an honest worker has joined, and set `joined_s` and `kept_out`.

        Args:
            worker: the worker.
            since: when it was started.
            within_s: how long to wait.
            others: returns how many dishonest workers have joined since then.
        """
        self.wait_for(lambda: self.joined(since)[others() :] or worker.poll() is not None, within_s)
        joined = self.joined(since)[others() :]
        self.joined_s = joined[0] - since if joined else None
        self.kept_out = not joined

    def wait_for(self, is_so: Callable[[], Any], within_s: float = START_S) -> bool:
        """Wait until a condition is true, in time and while the server runs; return whether it is."""
        until = time.time() + within_s
        while not is_so():
            if time.time() > until or self.server.poll() is not None:
                return bool(is_so())
            time.sleep(0.05)
        return True

    @contextmanager
    def under_attack(self) -> Iterator[float]:
        """A context for the attack itself; yields the time at which it should end at the latest."""
        start = time.time()
        try:
            yield start + self.seconds
        finally:
            self._window = start, time.time()

    @property
    def is_open(self) -> bool:
        """Whether the server still runs."""
        return self.server.poll() is None

    @property
    def resident_mb(self) -> float:
        return self._samples[-1][1] if self._samples else 0.0

    def gone(self) -> int:
        """Return how often a process has left or was removed."""
        return sum(line.get("event") == "gone" for line in self._lines())

    # -- the end

    def outcome(self, name: str, finding: str, sent: str) -> Outcome:
        """Wait for the end of the run, for a limited time, and judge it."""
        since = time.time()
        while self.is_open and time.time() < since + self._limit_s and not self._is_deserted():
            time.sleep(0.1)
        code = self.server.poll()
        over = time.time()
        if code is not None:
            self.wait_for(lambda: all(worker.poll() is not None for worker in self._honest), 3)
            deadline = time.time() + 3
            while any(worker.poll() is None for worker in self._honest) and time.time() < deadline:
                time.sleep(0.05)
        self._is_over.set()
        self._sampler.join()
        rounds = self._rounds_since(0.0)
        ended = over if code is None or self._results() is None else _time(self._lines()[-1])
        # The time after the last round, in which tables and plots are written, does not count.
        first, last = self._window or (ended, ended)
        before, during = self._rates(rounds, first, min(last, ended))
        inside = [each for each in self._samples if first <= each[0] <= last]
        earlier = [mb for at, mb, *_ in self._samples if at <= first] or [0.0]
        most = max([mb for at, mb, *_ in inside if at <= ended], default=earlier[-1])
        log_s, terminal_s = (self._growth(inside, column) for column in (2, 3))
        found = Outcome(
            name,
            finding,
            sent,
            "",
            code,
            rss_before_mb=round(earlier[-1], 1),
            rss_peak_mb=round(max(most, earlier[-1]), 1),
            rss_own_mb=max(round(earlier[-1], 1), self.reference.outcome.rss_peak_mb if self.reference else 0.0),
            rounds_before=before,
            rounds_during=during,
            joined_s=None if self.joined_s is None else round(self.joined_s, 2),
            log_bytes_s=log_s,
            terminal_bytes_s=terminal_s,
        )
        found.outcome, found.harms = self._judged(code, len(rounds), over - (since if first == last else first), found)
        return found

    def read(self) -> Reference:
        """Return this run as a reference for others."""
        found = self.outcome("undisturbed", "", "nothing")
        results = self._results()
        assert results is not None, f"the undisturbed run did not end: {found.outcome}: {self._last_words()}"
        return Reference(results["digest"], results["participation"]["counted"], (), found)

    def _judged(self, code: int | None, rounds: int, waited_s: float, found: Outcome) -> tuple[str, list[str]]:
        results, harms = self._results(), []
        if code is None:
            refused = [worker.poll() for worker in self._honest if worker.pid not in self._killed and worker.poll()]
            how = f"; honest workers ended with exit {', '.join(map(str, refused))}" if refused else ""
            outcome = f"not over after {waited_s:.0f} s, round {rounds} of {self._rounds}{how}"
            harms.append("never ends")
        elif results is None:
            outcome = f"died at round {rounds}, exit {code}: {self._last_words()}"
            harms.append(f"exit {code}")
        else:
            same = self.reference is None or results["digest"] == self.reference.digest
            heard = self.reference is None or results["participation"]["counted"] == self.reference.heard
            outcome = f"finished {results['rounds']} rounds, exit {code}, {'honest' if same else 'another'} digest"
            harms += [] if same else ["another digest"]
            harms += [] if heard else ["clients unheard"]
            harms += [] if code == 0 else [f"exit {code}"]
            lost = [w.poll() for w in self._honest if w.pid not in self._killed and w.poll() != 0]
            harms += [f"an honest worker: exit {lost[0]}"] if lost else []
        rate, before = found.rounds_during, found.rounds_before
        # After a kill the rounds stop for a while, which is no harm.
        if rate is not None and before and rate < SLOWED * before and not self._killed:
            harms.append(f"{rate / before:.0%} of the rounds/s")
        if self.kept_out:
            harms.append("an honest worker kept out")
        if found.growth_mb > GREW_MB:
            harms.append("memory")
        harms += ["log"] * (found.log_bytes_s > LOGGED) + ["terminal"] * (found.terminal_bytes_s > LOGGED)
        return outcome, harms

    def _is_deserted(self) -> bool:
        """Whether no honest worker is left that could finish the run."""
        return bool(self._honest) and all(w.poll() not in (None, 0) and w.pid not in self._killed for w in self._honest)

    def _results(self) -> dict[str, Any] | None:
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads((self.folder / "run" / "results.json").read_text("utf-8"))
            return found
        return None

    def _last_words(self) -> str:
        lines = [line for line in self._errors.read_text("utf-8", "replace").splitlines() if line.strip()]
        return re.sub(r"[^\x20-\x7e]", "?", lines[-1])[:160] if lines else "without a word"

    @staticmethod
    def _rates(rounds: Sequence[float], first: float, last: float) -> tuple[float | None, float | None]:
        """Rounds per second from the first round to the attack, and from there to its end or the run's."""
        if not rounds or rounds[0] > first - 0.5:
            return None, None
        before = sum(at <= first for at in rounds) / (first - rounds[0])
        during = sum(first < at <= last for at in rounds) / max(0.1, last - first)
        return round(before, 1), round(during, 2) if last > first else None

    @staticmethod
    def _growth(samples: Sequence[tuple[float, float, int, int]], column: int) -> float:
        if len(samples) < 2:
            return 0.0
        grown = float(samples[-1][column]) - float(samples[0][column])
        return round(grown / (samples[-1][0] - samples[0][0]), 1)

    # -- looking

    def _lines(self) -> list[dict[str, Any]]:
        """The complete lines of log.jsonl so far."""
        with suppress(OSError), (self.folder / "run" / "log.jsonl").open("rb") as file:
            file.seek(self._offset)
            data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            self._offset += len(data)
            self._log += [json.loads(line) for line in data.splitlines()]
        return self._log

    def _rounds_since(self, since: float) -> list[float]:
        return [at for line in self._lines() if line.get("event") == "round" and (at := _time(line)) >= since]

    def joined(self, since: float = 0.0) -> list[float]:
        """Return the times at which processes with clients joined."""
        joined = [
            line for line in self._lines() if line.get("event") == "joined" and line["clients"] != "the evaluator"
        ]
        return [at for line in joined if (at := _time(line)) >= since]

    def _sample(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._is_over.wait(EVERY_S):
            with suppress(OSError, IndexError):
                resident = int(Path(f"/proc/{self.server.pid}/statm").read_text().split()[1]) * page / 1e6
                sizes = [
                    path.stat().st_size if path.exists() else 0
                    for path in (self.folder / "run" / "log.jsonl", self._errors)
                ]
                self._samples.append((time.time(), resident, sizes[0], sizes[1]))
                self._descendants.update(descendants(self.server.pid))

    def _alive(self) -> list[int]:
        return [pid for pid in self._descendants if b"seedbus" in _command(pid)]

    def _start(
        self, arguments: Sequence[object], errors: Path, before: Callable[[], None] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "seedbus", *map(str, arguments)]
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with errors.open("wb") as file:
            return subprocess.Popen(
                command, stderr=file, env=self._environment, cwd=self.folder, preexec_fn=before, **pipes
            )

    def _client(
        self, among: list[subprocess.Popen[bytes]], arguments: Sequence[object], port: int
    ) -> subprocess.Popen[bytes]:
        where = f"tcp://127.0.0.1:{port or self.port}"
        patience = [] if "--patience" in arguments else ["--patience", 60]
        errors = self.folder / f"client-{len(self._honest)}-{len(self._others)}.err"
        among.append(self._start(["client", "--connect", where, *arguments, *patience], errors))
        return among[-1]

    def _port(self) -> int:
        """The TCP port at which the server listens, read from the system; 0 if there is none."""
        folder = self.folder / "run"
        ports: list[int] = []

        def listens() -> bool:
            ports[:] = listening(self.server.pid)
            has_begun = any(line.get("event") == "listening" for line in self._lines()) if folder.exists() else False
            return bool(ports) or has_begun

        self.wait_for(listens)
        time.sleep(0.0 if ports else 0.2)
        found = ports or listening(self.server.pid)
        return found[0] if found else 0


def proofs_of(proxy: Proxy) -> tuple[bytes, ...]:
    """Return the proofs in the JOIN of a worker behind a proxy."""
    frames = [frame for data in list(proxy.said) if type_of(data) == POST for frame in entries(data[9:])]
    return next((tuple(opened(frame)[4][1:]) for frame in frames if tag_of(frame) == JOIN), ())


def reference(target: str | None, rounds: int) -> Reference:
    """Run undisturbed for so many rounds."""
    with Arena(target, rounds, limit_s=120) as arena, Proxy(arena.port) as proxy:
        since = time.time()
        workers = arena.begin(proxy.port)
        arena.join(workers[-1], since, START_S)
        found = arena.read()
        return Reference(found.digest, found.heard, proofs_of(proxy), found.outcome)


def listening(pid: int) -> list[int]:
    """Return the TCP ports at which a process listens."""
    inodes = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(os.readlink(descriptor).removeprefix("socket:[").rstrip("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes]


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _time(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()
