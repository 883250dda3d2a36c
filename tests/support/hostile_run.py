"""A run among hostile peers: a server process, honest workers on threads, and a gate that keeps the run from ending."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from gates import Gate, Gated
from hostile_peers import Case
from hostile_pending import CLIENT, PendingCase, PendingPeer
from hostile_server import ServerProcess
from processes import HANGS_S

from seedbus.agents.client.worker import prove
from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest, Kind, Offer
from seedbus.bus.transport import Follower, Span
from seedbus.bus.zeromq import Joining, follow
from seedbus.bus.zeromq.server.connection import OLD
from seedbus.scenarios.running.prepare import bind, recruit
from seedbus.scenarios.schema.scenario import Scenario

SHARED_NAMES = {"a stranger", OLD}  # several peers are counted under each of these


class Worker(threading.Thread):
    """The clients of one honest process, on a thread. With a gate it hosts the evaluator, which waits there."""

    def __init__(self, what: Scenario, endpoint: str, spans: tuple[Span, ...], gate: Gate | None = None) -> None:
        super().__init__(name="worker", daemon=True)
        self._what = what
        self._endpoint = endpoint
        self._gate = gate
        self._request = HostRequest(spans, 0, gate is not None)
        self._parent_pipe, self._write_end = os.pipe()
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        make_follower = recruit(self._what, bind(self._what), NullObserver())

        def gated(offer: Offer) -> Follower:
            follower = make_follower(offer)
            return follower if self._gate is None else Gated(follower, self._gate, Kind.COMMIT)

        try:
            follow(Joining(self._endpoint, self._request), gated, parent_pipe=self._parent_pipe)
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        """Leave if it has not left yet. Raises what the thread failed with."""
        os.close(self._write_end)
        self.join(HANGS_S)
        os.close(self._parent_pipe)
        assert not self.is_alive(), "a worker hangs"
        if self.failure is not None:
            raise self.failure


class HostileRun:
    """A context in which a run with clients 0 to 7, hosted by three honest workers, goes on as far as its gate lets it.

    Attributes:
        refused: (peer, reason) → how often the peers that were played have been refused.
        before: the server's memory in bytes, descriptors and threads before any of them came.
    """

    def __init__(self, what: Scenario, folder: Path, **placement: Any) -> None:
        self.what = what
        self.gate = Gate()
        self.server = ServerProcess(what, folder, **placement)
        self.proof = prove(what.algorithm, bind(what))
        self.refused: Counter[tuple[str, str]] = Counter()
        self._patient: dict[str, dict[str, int]] = {}
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        self.server.__enter__()
        for spans in (((0, 3),), ((4, 6),), ((CLIENT, CLIENT),)):
            self._workers.append(self._worker(spans))
        self.step()
        self.before = (self.server.resident, self.server.descriptors, self.server.threads)
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.open_to(2**32)
        try:
            for worker in self._workers:
                worker.end()
        finally:
            self.server.__exit__()

    def step(self) -> None:
        """Let the run go on by a round."""
        target = self.server.ask()["rounds"] + 1
        self.gate.open_to(target)
        self.server.wait_for(lambda: self.server.ask()["rounds"] >= target, "goes on")

    @contextmanager
    def running(self, most: int = 2**32, pace_s: float = 0.02) -> Iterator[None]:
        """Let the run go on meanwhile, by `most` rounds at most, each of at least `pace_s` seconds."""
        before, self.gate.pace_s = self.server.ask()["rounds"], pace_s
        self.gate.open_to(before + most)
        yield
        self.server.wait_for(lambda: self.server.ask()["rounds"] > before + 2, "goes on")
        self.gate.pace_s = 0.0
        self.gate.open_to(self.server.ask()["rounds"] + 1)

    def stop_worker(self) -> None:
        """Let the honest worker of client 7 leave."""
        self._workers.pop().end()

    def start_worker(self) -> None:
        """Start an honest worker of client 7 if there is none."""
        if len(self._workers) < 3:
            self._workers.append(self._worker(((CLIENT, CLIENT),)))

    def play(self, case: Case) -> None:
        """Play a stranger's case, and check that it is refused as expected and the run goes on."""
        if case.is_patient:
            refusals = self._patient[case.name]
            assert refusals and refusals.items() <= case.refusals.items()
        else:
            before = self._refusals()
            with case.play(self.server.port) as caller:
                assert not case.is_hung_up or caller.is_hung_up()
                self._settle({caller.name} | SHARED_NAMES, before, case.refusals)
            self.step()

    def play_patient(self, cases: list[Case]) -> None:
        """Play all cases that take some heartbeats to be refused at once, before `play` checks each."""
        before = self._refusals()
        callers = {case.name: case.play(self.server.port) for case in cases}
        expected = sum((Counter(case.refusals) for case in cases), Counter[str]())
        self._settle({caller.name for caller in callers.values()} | SHARED_NAMES, before, expected)
        for name, caller in callers.items():
            self._patient[name] = {reason: n for (who, reason), n in self.refused.items() if who == caller.name}
            assert caller.is_hung_up()
            caller.close()
        self.step()

    def play_pending(self, case: PendingCase) -> None:
        """Play the case of a peer that is offered a client, and check that it is refused as expected."""
        pending = PendingPeer(self.server.port, self.proof)
        before = self._refusals()
        case.play(pending)
        with pending.peer:
            self._settle(pending.names, before, case.refusals)
            assert not case.is_hung_up or pending.peer.is_hung_up()

    def _settle(self, names: set[str], before: Counter[tuple[str, str]], expected: Mapping[str, int]) -> None:
        """Wait until the named peers have been refused for the expected reasons, and for nothing else.

        `before` holds all earlier refusals, as a new peer may be given the port, and so the name, of an earlier one.
        """
        until = time.monotonic() + HANGS_S
        while True:
            refusals = self._refusals(*names) - before
            if "said-nothing" not in expected:  # a hub that was held up finds silent peers too
                refusals = Counter({key: n for key, n in refusals.items() if key[1] != "said-nothing"})
            reasons = sum((Counter({reason: n}) for (_, reason), n in refusals.items()), Counter[str]())
            if reasons == Counter(expected) or time.monotonic() > until:
                break
            time.sleep(0.001)
        assert reasons == Counter(expected), f"refused for {dict(refusals)}; expected {dict(expected)}"
        self.refused += refusals

    def _worker(self, spans: tuple[Span, ...]) -> Worker:
        return Worker(self.what, self.server.endpoint, spans, self.gate if spans[0][0] == 0 else None)

    def _refusals(self, *names: str) -> Counter[tuple[str, str]]:
        """Return (peer, reason) → how often so far, of the named peers, or of all if none is named."""
        return Counter({(who, reason): n for who, reason, n in self.server.ask(*names or ["everybody"])["refusals"]})
