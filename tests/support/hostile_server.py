"""A server's run in a process of its own that reports what it has refused so far, for tests of hostile peers.

As a script this is the process: it answers each line on its standard input, until the input ends.
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

from processes import HANGS_S

from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import NOBODY
from seedbus.agents.server.registration import Registration
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement


class ServerProcess:
    """A context in which a server runs on a free port of this machine."""

    def __init__(self, what: Scenario, folder: Path, **placement: Any) -> None:
        where = {"transport": "tcp", "bind": "tcp://127.0.0.1:*", "evaluator": "anybody"}
        where |= {"heartbeat_s": 0.5, "patience_s": 60.0} | placement
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
            self._process.wait(60)
        self._process.kill()
        self._process.wait()

    def ask(self, *names: str) -> dict[str, Any]:
        """Return the state of the run.

        Args:
            names: peers whose refusals are wanted, or "everybody".

        Returns:
            endpoint; rounds, joined and gone, which are counts; hosting: the clients of each process that is there, in
            words; refusals, [peer, reason, count]; summary, once the run has ended. Fails if the run has failed.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(names) + "\n")
            self._process.stdin.flush()
            state: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert state["failure"] is None, state["failure"]
        return state

    def refusals(self, name: str = "everybody") -> Counter[str]:
        """Return reason → how often so far a peer, or everybody together, was refused for it."""
        refusals: Counter[str] = Counter()
        for _, reason, count in self.ask(name)["refusals"]:
            refusals[reason] += count
        return refusals

    def wait_for(self, is_so: Callable[[], Any], what: str) -> None:
        """Wait until a condition holds; `what` completes 'the server …'."""
        until = time.monotonic() + HANGS_S
        while not is_so():
            assert time.monotonic() < until, f"{HANGS_S:.0f} s have passed; expected that the server {what}"
            time.sleep(0.002)

    def results(self) -> dict[str, Any]:
        """Wait for the end of the run and return its summary."""
        self.wait_for(lambda: self.ask()["summary"], "ends")
        summary: dict[str, Any] = self.ask()["summary"]
        return summary

    @property
    def resident(self) -> int:
        """The process's resident memory in bytes."""
        return int(self._proc("statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def peak(self) -> int:
        """The process's peak resident memory in bytes."""
        line = next(line for line in self._proc("status").read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    @property
    def threads(self) -> list[str]:
        """The names of the process's threads, sorted."""
        return sorted((task / "comm").read_text().strip() for task in self._proc("task").iterdir())

    @property
    def descriptors(self) -> int:
        """How many file descriptors the process has open."""
        return len(list(self._proc("fd").iterdir()))

    def _proc(self, name: str) -> Path:
        return Path("/proc", str(self.pid), name)


class _StateObserver(NullObserver):
    """Records the state of the run, which another thread reads."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {"endpoint": "", "rounds": 0, "joined": 0, "gone": 0, "hosting": []}
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
            others = [clients for clients in self.facts["hosting"] if clients != facts["clients"]]
            self.facts["hosting"] = [*others, facts["clients"]] if event == "joined" else others

    def answer(self) -> None:
        """Answer the lines on the standard input, and end the process with it."""
        for line in sys.stdin:
            names, refusals = set(json.loads(line)), dict(self.refusals) if line != "[]\n" else {}
            is_all = "everybody" in names
            chosen = [[who, why, count] for (who, why), count in refusals.items() if is_all or who in names]
            sys.stdout.write(json.dumps(self.facts | {"refusals": chosen}) + "\n")
            sys.stdout.flush()
        os._exit(0)


def _serve(folder: str, scenario: str, where: str) -> None:
    observer = _StateObserver()
    count: Callable[..., None] = Registration.refused

    def refused(self: Registration, peer: str, reason: str, detail: str) -> None:
        observer.refusals[peer, reason] += 1
        count(self, peer, reason, detail)

    Registration.refused = refused  # type: ignore[method-assign]
    answering = threading.Thread(target=observer.answer, name="answering")
    answering.start()
    try:
        placement = Placement(**json.loads(where))
        results = run(validate(json.loads(scenario), "a test"), folder, observer=observer, placement=placement)
        observer.facts["summary"] = results.summary
    except BaseException as error:
        observer.facts["failure"] = f"{type(error).__name__}: {error}"
    answering.join()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
