"""A run among hostile peers: a server in a process, good workers on threads, and a gate that keeps it from ending."""

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
from hostile_guests import CLIENT, Guest, GuestCase
from hostile_peers import Case
from hostile_server import ServerProcess

from seedbus.agents.client.worker import prove
from seedbus.agents.observer import NullObserver
from seedbus.bus import HostRequest, Kind, Offer
from seedbus.bus.transport import Follower, Span
from seedbus.bus.zeromq import follow
from seedbus.bus.zeromq.server.connections import OLD
from seedbus.scenarios.running.prepare import bind, recruit
from seedbus.scenarios.schema.scenario import Scenario

NAMELESS = {"a stranger", OLD}  # what several peers are counted under
WITHIN_S = 60.0


class Worker(threading.Thread):
    """A good process's worth of clients on a thread. gate: what its evaluator waits at."""

    def __init__(self, what: Scenario, endpoint: str, spans: tuple[Span, ...], gate: Gate | None = None) -> None:
        super().__init__(name="worker", daemon=True)
        self._what, self._endpoint, self._gate = what, endpoint, gate
        self._wish = HostRequest(spans, 0, gate is not None)
        self._parent_pipe, self._end = os.pipe()
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        made = recruit(self._what, bind(self._what), NullObserver())

        def gated(offer: Offer) -> Follower:
            good = made(offer)
            return good if self._gate is None else Gated(good, self._gate, Kind.COMMIT)

        try:
            follow(self._endpoint, [self._wish], gated, patience_s=30.0, parent_pipe=self._parent_pipe)
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        """Leave, if it is still there. Raises what it failed with."""
        os.close(self._end)
        self.join(WITHIN_S)
        os.close(self._parent_pipe)
        assert not self.is_alive(), "a worker hangs"
        if self.failure is not None:
            raise self.failure


class Arena:
    """A context in which a run goes on, as far as it is let: clients 0 to 7, all with good processes.

    booked: (who, reason) → how often, of all that was refused of those that were played.
    """

    def __init__(self, what: Scenario, folder: Path, **placement: Any) -> None:
        self.what, self.gate = what, Gate()
        self.server = ServerProcess(what, folder, **placement)
        self.proof = prove(what.algorithm, bind(what))
        self.booked: Counter[tuple[str, str]] = Counter()
        self._patient: dict[str, dict[str, int]] = {}
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        self.server.__enter__()
        for spans in (((0, 3),), ((4, 6),), ((CLIENT, CLIENT),)):
            self._workers.append(self._worker(spans))
        self.step()
        self.before = self.server.resident, self.server.descriptors, self.server.threads
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.open_to(2**32)
        try:
            for worker in self._workers:
                worker.end()
        finally:
            self.server.__exit__()

    def step(self) -> None:
        """The run goes on by a round."""
        target = self.server.ask()["rounds"] + 1
        self.gate.open_to(target)
        self.server.wait_for(lambda: self.server.ask()["rounds"] >= target, "goes on", WITHIN_S)

    @contextmanager
    def going_on(self, most: int = 2**32, pace_s: float = 0.02) -> Iterator[None]:
        """The run goes on all the while: by so many rounds at most, each of which takes so long at least."""
        before, self.gate.pace_s = self.server.ask()["rounds"], pace_s
        self.gate.open_to(before + most)
        yield
        self.server.wait_for(lambda: self.server.ask()["rounds"] > before + 2, "goes on", WITHIN_S)
        self.gate.pace_s = 0.0
        self.gate.open_to(self.server.ask()["rounds"] + 1)

    def vacate(self) -> None:
        """The good process of one client leaves."""
        self._workers.pop().end()

    def occupy(self) -> None:
        """Another comes in its place, if it has left."""
        if len(self._workers) < 3:
            self._workers.append(self._worker(((CLIENT, CLIENT),)))

    def play(self, case: Case) -> None:
        """Let a stranger do its worst; it is refused as it should be, and the run goes on."""
        if case.is_patient:
            found = self._patient[case.name]
            assert found and found.items() <= case.refusals.items()
        else:
            before = self._found()
            with case.play(self.server.port) as caller:
                assert not case.is_hung_up or caller.is_hung_up(WITHIN_S)
                self._settle({caller.name} | NAMELESS, before, case.refusals)
            self.step()

    def play_together(self, cases: list[Case]) -> None:
        """Let those begin, all at once, that it takes some heartbeats to find out."""
        before = self._found()
        callers = {case.name: case.play(self.server.port) for case in cases}
        expected = sum((Counter(case.refusals) for case in cases), Counter[str]())
        self._settle({caller.name for caller in callers.values()} | NAMELESS, before, expected)
        for name, caller in callers.items():
            self._patient[name] = {reason: n for (who, reason), n in self.booked.items() if who == caller.name}
            assert caller.is_hung_up(WITHIN_S)
            caller.close()
        self.step()

    def play_guest(self, case: GuestCase) -> None:
        """Let a peer that is offered a client do its worst."""
        guest = Guest(self.server.port, self.proof)
        before = self._found()
        case.play(guest)
        with guest.peer:
            self._settle(guest.names, before, case.refusals)
            assert not case.is_hung_up or guest.peer.is_hung_up(WITHIN_S)

    def _settle(self, names: set[str], before: Counter[tuple[str, str]], expected: Mapping[str, int]) -> None:
        """Wait until those named are refused for what is expected, and for nothing else.

        before: what everybody was refused for, as a port is given out again, and with it the name of who had it.
        """
        until = time.monotonic() + WITHIN_S
        while True:
            found = self._found(*names) - before
            if "said-nothing" not in expected:  # who does not get to look for some heartbeats finds that too
                found = Counter({key: n for key, n in found.items() if key[1] != "said-nothing"})
            reasons = sum((Counter({reason: n}) for (_, reason), n in found.items()), Counter[str]())
            if reasons == Counter(expected) or time.monotonic() > until:
                break
            time.sleep(0.001)
        assert reasons == Counter(expected), f"refused for {dict(found)}; expected {dict(expected)}"
        self.booked += found

    def _worker(self, spans: tuple[Span, ...]) -> Worker:
        return Worker(self.what, self.server.endpoint, spans, self.gate if spans[0][0] == 0 else None)

    def _found(self, *names: str) -> Counter[tuple[str, str]]:
        """What those named, or else everybody, have been refused for so far."""
        return Counter({(who, reason): n for who, reason, n in self.server.ask(*names or ["everybody"])["refusals"]})
