"""A server and its clients on threads of this process, connected by real sockets."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Self

from gates import Gate, Gated
from processes import HANGS_S, kill, logged, seedbus, wait_for

from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest, Kind, Offer
from seedbus.bus.transport import Follower
from seedbus.bus.zeromq import Joining, follow
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.prepare import bind, recruit
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.scenarios.transports.placement import Placement


class RunWatcher(NullObserver):
    """An observer that records a run as it goes on.

    Attributes:
        events: (event, facts), oldest first.
        refusals: all refusals, oldest first.
        rounds: how many rounds have been closed.
        endpoint: where the server listens; "" before it does.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.refusals: list[Any] = []
        self.rounds = 0
        self.endpoint = ""
        self.is_listening = threading.Event()

    @property
    def joined(self) -> int:
        """The number of times that a process has joined."""
        return sum(event == "joined" for event, _ in self.events)

    @property
    def gone(self) -> int:
        """The number of times that a process has gone."""
        return sum(event == "gone" for event, _ in self.events)

    def hosts(self, clients: str) -> bool:
        """Whether the latest event about a process with these clients, and perhaps the evaluator, is that it joined."""
        names = (clients, f"{clients} and the evaluator")
        events = [event for event, facts in self.events if event in ("joined", "gone") and facts["clients"] in names]
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


class ServerThread(threading.Thread):
    """A server's run on a thread.

    Its heartbeat is long by default: on a busy machine a process may pause for a second, and must not be taken for
    dead.
    """

    def __init__(self, what: Scenario, folder: Path, *, resume: bool = False, **placement: Any) -> None:
        super().__init__(name="server", daemon=True)
        options: dict[str, Any] = {"transport": "tcp", "bind": "tcp://127.0.0.1:*", "evaluator": "anybody"}
        options |= {"heartbeat_s": 2.0, "patience_s": 60.0}
        self._what = what
        self._folder = folder
        self._resume = resume
        self._placement = Placement(**(options | placement))
        self.watcher = RunWatcher()
        self._results: Results | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        self.watcher.is_listening.wait()
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

    def results(self) -> Results:
        """Wait for the end of the run and return its results, or raise what the run raised."""
        self.join(HANGS_S)
        if self._failure is not None:
            raise self._failure
        assert self._results is not None, "the run did not end in time"
        return self._results


class ClientsThread(threading.Thread):
    """The clients of one process, on a thread that starts at once.

    Args:
        what: the run's scenario.
        endpoint: where its server listens.
        request: the clients to ask for; by default as many as the server offers.
        gate: where the clients wait before they answer a plan.
        parent_pipe: of `follow`.
        options: of `Joining`.
    """

    def __init__(
        self,
        what: Scenario,
        endpoint: str,
        request: HostRequest | None = None,
        *,
        gate: Gate | None = None,
        parent_pipe: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name="clients", daemon=True)
        self._parent_pipe = parent_pipe
        self._gate = gate
        self._what = what
        self._joining = Joining(endpoint, request or HostRequest(), **options)
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        make_follower = recruit(self._what, bind(self._what), NullObserver())

        def make(offer: Offer) -> Follower:
            follower: Follower = make_follower(offer)
            return follower if self._gate is None else Gated(follower, self._gate, Kind.PLAN)

        try:
            follow(self._joining, make, parent_pipe=self._parent_pipe)
        except BaseException as error:
            self.failure = error


def run_with_replacement(
    what: Scenario, folder: Path, stays: HostRequest, killed_clients: str, replacement: HostRequest
) -> Results:
    """Run a server of which one client process is killed at round 20 and replaced 30 rounds later.

    Args:
        what: the scenario.
        folder: the run's folder.
        stays: the clients of the process that stays.
        killed_clients: the clients of the killed process, as `--clients` takes them; it asks for the evaluator too.
        replacement: what the process that comes in its place asks for.
    """
    gate = Gate()
    clients = f"clients {killed_clients.replace('-', '…')}"
    with ServerThread(what, folder) as server:
        first = ClientsThread(what, server.watcher.endpoint, stays, gate=gate)
        killed = seedbus("client", "--connect", server.watcher.endpoint, "--clients", killed_clients, "--evaluator")
        gate.open_to(20)
        wait_for(lambda: server.watcher.rounds >= 20)
        kill(killed.pid, 9)
        killed.communicate()
        wait_for(lambda: not server.watcher.hosts(clients))
        target = server.watcher.rounds + 30
        gate.open_to(target)
        wait_for(lambda: server.watcher.rounds >= target)
        second = ClientsThread(what, server.watcher.endpoint, replacement)
        wait_for(lambda: server.watcher.hosts(clients))
        gate.open_to(2**32)
        results = server.results()
        for client in (first, second):
            client.join()
            assert client.failure is None
    return results


def free_endpoint(what: Scenario, folder: Path) -> str:
    """Return an address of this machine at which a server has listened and stopped. what: a short run."""
    with ServerThread(what, folder) as server:
        ClientsThread(what, server.watcher.endpoint)
        server.results()
    return server.watcher.endpoint


def stopped_and_resumed(what: Scenario, folder: Path, endpoint: str, by: int) -> tuple[Results, int, str, list[str]]:
    """Run a server and two clients as processes, and end the server by a signal after sixty rounds.

    A second server resumes the run at the same address, with the same two clients. It and the clients must exit with 0.

    Returns:
        The results, the exit code and the stderr of the first server, and the stderr of each client.
    """
    (folder / "what.yaml").write_text(dump(what.resolved()))
    options = ("--bind", endpoint, "--workers", 2, "-q")
    first = seedbus("server", folder / "what.yaml", *options, "--out", folder / "run")
    clients = [seedbus("client", "--connect", endpoint, "--patience", 120) for _ in range(2)]
    wait_for(lambda: logged(folder / "run") > 60)
    kill(first.pid, by)
    _, first_stderr = first.communicate()
    second = seedbus("server", *options, "--resume", folder / "run")
    _, second_stderr = second.communicate()
    assert second.returncode == 0, second_stderr
    client_stderr = [client.communicate()[1] for client in clients]
    assert [client.returncode for client in clients] == [0, 0], client_stderr
    return Results.read(folder / "run"), first.returncode, first_stderr, client_stderr
