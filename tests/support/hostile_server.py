"""A server's run in a process of its own that tells what it has refused so far: for tests of hostile peers.

As a script it is that process: it answers each line on its standard input, until that ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import NOBODY
from seedbus.agents.server.registration import Registration
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

PATIENCE_S = 60.0


class ServerProcess:
    """A context in which a server runs on a free port of this machine."""

    def __init__(self, what: Scenario, folder: Path, **placement: Any) -> None:
        where = {"transport": "tcp", "bind": "tcp://127.0.0.1:*", "evaluator": "anybody"}
        where |= {"heartbeat_s": 0.2, "patience_s": 60.0} | placement
        command = [
            sys.executable,
            __file__,
            str(folder),
            json.dumps(what.resolved()),
            json.dumps(where),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self.wait_for(lambda: self.ask()["endpoint"], "listens")
        self.endpoint: str = self.ask()["endpoint"]
        self.port = int(self.endpoint.rpartition(":")[2])
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()

    def ask(self, *names: str) -> dict[str, Any]:
        """Where it is: endpoint, rounds, how often somebody has joined and gone, refusals of those named (or of
        "everybody"), and once the run is over its summary or failure."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(names) + "\n")
            self._process.stdin.flush()
            found: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert found["failure"] is None, found["failure"]
        return found

    def refusals(self, name: str = "everybody") -> Counter[str]:
        """Reasons for which a peer, or everybody together, was refused."""
        found: Counter[str] = Counter()
        for _, reason, count in self.ask(name)["refusals"]:
            found[reason] += count
        return found

    def wait_for(self, is_so: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> None:
        """Wait until something is so; fails if it never is."""
        until = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < until, f"in {within_s:.0f} s it never came about that it {what}"
            time.sleep(0.002)

    def results(self) -> dict[str, Any]:
        """The run's summary, once it is over."""
        self.wait_for(lambda: self.ask()["summary"], "ends")
        summary: dict[str, Any] = self.ask()["summary"]
        return summary

    @property
    def resident(self) -> int:
        """Bytes of memory that it has."""
        return int(self._proc("statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def peak(self) -> int:
        """The most bytes of memory that it ever had."""
        line = next(line for line in self._proc("status").read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    @property
    def threads(self) -> list[str]:
        """Names of its threads."""
        return sorted((task / "comm").read_text().strip() for task in self._proc("task").iterdir())

    @property
    def descriptors(self) -> int:
        return len(list(self._proc("fd").iterdir()))

    def _proc(self, name: str) -> Path:
        return Path("/proc", str(self.pid), name)


class _Told(NullObserver):
    """Takes notes, which another thread reads."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {"endpoint": "", "rounds": 0, "joined": 0, "gone": 0}
        self.facts |= {"summary": None, "failure": None}
        self.refusals: Counter[tuple[str, str]] = Counter()

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self.facts["rounds"] = closed.round + 1

    def refused(self, refusal: Any) -> None:
        if refusal.client != NOBODY:
            self.refusals[str(refusal.client), refusal.reason] += 1

    def noted(self, event: str, **facts: Any) -> None:
        if event == "listening":
            self.facts["endpoint"] = facts["endpoint"]
        elif event in ("joined", "gone"):
            self.facts[event] += 1

    def tell(self) -> None:
        """Answer whoever asks, until nobody is there any more."""
        for line in sys.stdin:
            names, refusals = set(json.loads(line)), dict(self.refusals) if line != "[]\n" else {}
            is_all = "everybody" in names
            found = [[who, why, count] for (who, why), count in refusals.items() if is_all or who in names]
            sys.stdout.write(json.dumps(self.facts | {"refusals": found}) + "\n")
            sys.stdout.flush()
        os._exit(0)


def _serve(folder: str, scenario: str, where: str) -> None:
    told = _Told()
    count: Callable[..., None] = Registration.refused

    def refused(self: Registration, peer: str, reason: str, detail: str) -> None:
        told.refusals[peer, reason] += 1
        count(self, peer, reason, detail)

    Registration.refused = refused  # type: ignore[method-assign]
    teller = threading.Thread(target=told.tell, name="teller")
    teller.start()
    try:
        placement = Placement(**json.loads(where))
        results = run(validate(json.loads(scenario), "a test"), folder, observer=told, placement=placement)
        told.facts["summary"] = results.summary
    except BaseException as error:
        told.facts["failure"] = f"{type(error).__name__}: {error}"
    teller.join()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
