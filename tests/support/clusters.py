"""A server and its clients over real sockets, in this process: what the tests of clusters share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from gates import Gate, Gated
from processes import kill, seedbus, wait_for

from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest, Kind, Offer
from seedbus.bus.transport import Follower
from seedbus.bus.zeromq import follow
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.prepare import bind, recruit
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement


class Watcher(NullObserver):
    """Notes what it is told, and where the server listens."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.refusals: list[Any] = []
        self.rounds = 0
        self.endpoint = ""
        self.is_listening = threading.Event()

    @property
    def joined(self) -> int:
        """How many processes have joined so far."""
        return sum(event == "joined" for event, _ in self.events)

    @property
    def gone(self) -> int:
        """How many processes have gone so far."""
        return sum(event == "gone" for event, _ in self.events)

    def hosts(self, clients: str) -> bool:
        """Whether a process with these clients is there, as far as is known."""
        events = [event for event, facts in self.events if event in ("joined", "gone") and facts["clients"] == clients]
        return events[-1:] == ["joined"]

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self.rounds = closed.round + 1

    def refused(self, refusal: Any) -> None:
        self.refusals.append(refusal)

    def noted(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))
        if event == "listening":
            self.endpoint = facts["endpoint"]
            self.is_listening.set()


class Serving(threading.Thread):
    """A server's run on a thread; `results()` waits for its end and raises what it raised.

    Its heartbeat is long: on a busy machine a process may stand still for a second, and is not to be taken for gone.
    """

    def __init__(self, what: Scenario, folder: Path, *, resume: bool = False, **placement: Any) -> None:
        super().__init__(name="server", daemon=True)
        options: dict[str, Any] = {"transport": "tcp", "bind": "tcp://127.0.0.1:*", "evaluator": "anybody"}
        options |= {"heartbeat_s": 2.0, "patience_s": 20.0}
        self._what, self._folder, self._resume = what, folder, resume
        self._placement = Placement(**(options | placement))
        self.watcher = Watcher()
        self._results: Results | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        if not self.watcher.is_listening.wait(20):
            self.results()
        return self

    def __exit__(self, *_: object) -> None:
        self.join(30)

    @property
    def port(self) -> int:
        """The TCP port at which the server listens."""
        return int(self.watcher.endpoint.rpartition(":")[2])

    def run(self) -> None:
        try:
            options = {"resume": self._resume, "observer": self.watcher, "placement": self._placement}
            self._results = run(self._what, self._folder, **options)  # type: ignore[arg-type]
        except BaseException as error:
            self._failure = error
            self.watcher.is_listening.set()

    def results(self, timeout_s: float = 60) -> Results:
        self.join(timeout_s)
        if self._failure is not None:
            raise self._failure
        assert self._results is not None, "the run did not end in time"
        return self._results


class Following(threading.Thread):
    """A process's worth of clients on a thread. gate: what they wait at before they answer plans."""

    def __init__(
        self,
        what: Scenario,
        endpoint: str,
        wish: HostRequest | None = None,
        *,
        gate: Gate | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name="clients", daemon=True)
        self._gate = gate
        self._what, self._endpoint, self._wish = what, endpoint, wish or HostRequest()
        self._options = {"patience_s": 20.0} | options
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        made = recruit(self._what, bind(self._what), NullObserver())

        def make(offer: Offer) -> Follower:
            good: Follower = made(offer)
            return good if self._gate is None else Gated(good, self._gate, Kind.PLAN)

        try:
            follow(self._endpoint, self._wishes(), make, **self._options)
        except BaseException as error:
            self.failure = error

    def _wishes(self) -> Sequence[HostRequest]:
        return [self._wish]


def goes_and_comes(what: Scenario, folder: Path, stays: HostRequest, goes: str, comes: HostRequest) -> Results:
    """A run in which one process is killed, and another comes in its place 30 rounds later."""
    gate, clients = Gate(), f"clients {goes.replace('-', '…')}"
    with Serving(what, folder) as server:
        first = Following(what, server.watcher.endpoint, stays, gate=gate)
        killed = seedbus("client", "--connect", server.watcher.endpoint, "--clients", goes, "--evaluator")
        gate.open_to(20)
        wait_for(lambda: server.watcher.rounds >= 20)
        kill(killed.pid, 9)
        killed.communicate()
        wait_for(lambda: not server.watcher.hosts(clients))
        without = server.watcher.rounds + 30
        gate.open_to(without)
        wait_for(lambda: server.watcher.rounds >= without)
        second = Following(what, server.watcher.endpoint, comes)
        wait_for(lambda: server.watcher.hosts(clients))
        gate.open_to(2**32)
        results = server.results()
        for client in (first, second):
            client.join(10)
            assert client.failure is None
    return results


def free_endpoint(what: Scenario, folder: Path) -> str:
    """An address of this machine at which a server has listened and does no more. what: a short run."""
    with Serving(what, folder) as server:
        Following(what, server.watcher.endpoint)
        server.results()
    return server.watcher.endpoint


def stopped_and_resumed(what: Scenario, folder: Path, endpoint: str, by: int) -> tuple[Results, int, str, list[str]]:
    """A run whose server is ended by a signal after sixty rounds and resumed at the same address, as real processes.

    Its two client processes outlive it. Returns the results, the exit code and the last words of the first server, and
    what each client said. Fails where one of the others does not end well.
    """
    (folder / "what.yaml").write_text(dump(what.resolved()))
    bound = ("--bind", endpoint, "--expect-workers", 2, "-q")
    first = seedbus("server", folder / "what.yaml", *bound, "--out", folder / "run")
    clients = [seedbus("client", "--connect", endpoint, "--patience", 30) for _ in range(2)]
    log = folder / "run" / "log.jsonl"
    wait_for(lambda: log.exists() and log.read_text().count('"round"') > 60)
    kill(first.pid, by)
    _, last_words = first.communicate(timeout=10)
    again = seedbus("server", *bound, "--resume", folder / "run")
    _, told = again.communicate(timeout=60)
    assert again.returncode == 0, told
    said = [client.communicate(timeout=60)[1] for client in clients]
    assert [client.returncode for client in clients] == [0, 0], said
    return Results.read(folder / "run"), first.returncode, last_words, said
