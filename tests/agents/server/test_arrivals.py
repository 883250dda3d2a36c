"""Clients that leave and return, without a bus or processes: who is told to join, and when a round is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from coordinator_cases import PROOF, joined_coordinator
from event_recorder import EventRecorder

from seedbus.agents.availability import Moves
from seedbus.agents.errors import TooFew
from seedbus.agents.messages import Join, Outgoing, Span, unpack_refuse
from seedbus.agents.refusals import Refusal
from seedbus.agents.server import arrivals as module
from seedbus.agents.server.arrivals import Arrivals
from seedbus.bus import Envelope, Kind
from seedbus.bus.errors import EndOfTime
from seedbus.bus.event_queue import LAST_NS

SECOND = 10**9
Instant = tuple[int, Moves]
"""When clients come and go, and which."""


def comes(*clients: int, how: Any = "with-state") -> Moves:
    return Moves([], [(client, how) for client in clients])


def goes(*clients: int) -> Moves:
    return Moves(list(clients), [])


class Recorder(EventRecorder):
    def refused(self, refusal: Refusal) -> None:
        self.events.append(str(refusal.reason))


class Scene:
    """Three clients, at first away, and a server that needs two of them. It stands for bus, transport and schedule.

    Attributes:
        woken: what clients were told that are to join; each answers while the server waits.
        waits: for each wait, whether what is waited for had happened before.
        meanwhile: what else happens while the server waits.
    """

    def __init__(self, *instants: Instant, quorum: int = 2, in_time: int = 3, is_virtual: bool = True) -> None:
        self.observer = Recorder()
        self.coordinator = joined_coordinator(clients=3, cohort=3, quorum=quorum, observer=self.observer)
        self.coordinator.left([0, 1, 2])
        self.clock = SimpleNamespace(now_ns=0, is_virtual=is_virtual)
        self.transport = self
        self.instants, self.in_time, self.is_changing = list(instants), in_time, bool(instants)
        self.unreachable, self.gone = set[int](), set[int]()
        self.woken: list[tuple[int, int, list[int], int]] = []
        self.sent: list[Envelope] = []
        self.waits: list[bool] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.lacks_processes = False
        server: Any = self
        self.bus = self
        self.arrivals = Arrivals(server, server)
        self.coordinator.handlers[Kind.JOIN] = self.arrivals.joined

    # -- the schedule

    def advance(self, round: int, now_ns: int) -> Moves:
        due = [moves for when_ns, moves in self.instants if when_ns <= now_ns]
        self.instants = self.instants[len(due) :]
        return Moves([c for moves in due for c in moves.left], [each for moves in due for each in moves.arrived])

    def next_ns(self) -> int | None:
        return self.instants[0][0] if self.instants else None

    @property
    def is_over(self) -> bool:
        return self.is_changing and not self.instants

    def has_left(self, client: int) -> bool:
        return client in self.gone

    # -- the bus

    def reaches(self, client: int) -> bool:
        return client not in self.unreachable

    def wake(self, *told: Any) -> None:
        self.woken.append(told)

    def send(self, envelope: Envelope) -> None:
        self.sent.append(envelope)

    def send_all(self, messages: Sequence[Outgoing]) -> None:
        self.sent += [envelope for envelope, _ in messages]

    # -- the server

    async def until(self, is_done: Callable[[], bool]) -> None:
        self.waits.append(is_done())
        for client, *_ in self.woken[-len(self.arrivals.pending_joins) :] if self.arrivals.pending_joins else ():
            self.join(client)
        self.meanwhile()
        assert is_done(), "it would wait for ever"

    async def until_time(self, when_ns: int, is_done: Callable[[], bool]) -> None:
        if when_ns > LAST_NS:
            raise EndOfTime(when_ns, LAST_NS)
        for client in sorted(self.arrivals.pending_joins):
            self.join(client)
        if not is_done():
            self.clock.now_ns = when_ns

    def join(self, client: int, version: int = 0) -> None:
        join = Join(client, (Span(client, client, version),), **PROOF)
        self.coordinator.handle(join.pack()._replace(round=self.coordinator.round))

    def gather(self, *, is_complete: bool = True) -> None:
        self.lacks_processes = not is_complete
        asyncio.run(self.arrivals.gather())


def test_a_round_waits_until_a_quorum_is_there_at_a_time() -> None:
    scene = Scene((SECOND, comes(0)), (2 * SECOND, Moves([0], [(1, "with-state")])), (3 * SECOND, comes(0)))
    scene.instants.append((9 * SECOND, comes(2)))
    scene.gather()
    assert scene.clock.now_ns == 3 * SECOND and [client for client, *_ in scene.woken] == [0, 1, 0]
    assert len(scene.coordinator.positions.members) == 2 and not scene.arrivals.pending_joins
    scene.gather()
    assert scene.clock.now_ns == 3 * SECOND, "enough are there"


@pytest.mark.parametrize(
    ("instants", "quorum", "why"),
    [
        ([(0, comes(0))], 2, "round 0 needs 2 clients .*1 of 3 are there, and nobody comes or goes any more; lower"),
        ([(0, goes(0))], 2, "and 0 of 3 are there"),
        ([(0, comes(0, 1)), (SECOND, goes(0))], 3, "round 0 needs 3 clients .* and 2 of 3 are there, and nobody comes"),
        (
            [(SECOND, comes(0, 1)), (2 * SECOND, goes(0)), (LAST_NS + 1, comes(0, 1, 2))],
            3,
            "at most 2 of 3 were there at a time until 2 s",
        ),
    ],
    ids=["one comes", "nobody comes", "one goes", "the others come after the end of time"],
)
def test_a_run_of_which_no_round_can_be_finished_ends_with_the_reason(
    instants: Sequence[Instant], quorum: int, why: str
) -> None:
    with pytest.raises(TooFew, match=why):
        Scene(*instants, quorum=quorum).gather(is_complete=False)


def test_clients_that_come_and_go_for_ever_end_a_run_the_later_the_more_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_IDLE_CYCLES", 4)
    monkeypatch.setattr(module, "MAX_IDLE_CYCLES_PER_CLIENT", 2)
    scene = Scene(*(((at + 1) * SECOND, goes(0) if at % 2 else comes(0)) for at in range(99)))
    with pytest.raises(TooFew, match="at most 1 of 3 were there at a time until 10 s"):
        scene.gather()


def test_in_real_time_a_process_that_is_missing_may_still_bring_clients() -> None:
    scene = Scene((0, comes(0)), is_virtual=False)
    scene.gather(is_complete=False)
    with pytest.raises(TooFew, match="1 of 3 are there"):
        scene.gather(is_complete=True)


def test_clients_that_come_back_at_a_round_are_not_waited_for_but_joins_that_are_due_are() -> None:
    scene = Scene((0, comes(0)), (5 * SECOND, comes(1)), in_time=1)
    scene.gather()
    assert (scene.clock.now_ns, scene.waits) == (0, [False]) and len(scene.coordinator.positions.members) == 1
    scene.gather()
    assert (scene.clock.now_ns, scene.waits) == (0, [False, True])


def test_without_faults_only_a_process_can_bring_clients() -> None:
    scene = Scene()
    scene.meanwhile = lambda: scene.coordinator.joined(Join(-3, (Span(0, 1, 0),), **PROOF))
    scene.gather()
    assert scene.waits == [False] and len(scene.coordinator.positions.members) == 2


@pytest.mark.parametrize(("how", "number", "most"), [("with-state", 0, 3), ("without-state", 1, 0)])
def test_a_client_that_returns_is_told_what_it_has_and_joins_once(how: Any, number: int, most: int) -> None:
    scene = Scene((0, comes(2, how=how)), (9, comes()))
    scene.coordinator.history.version = 3
    scene.unreachable.add(1)
    scene.arrivals._move(Moves([], [(1, how), (2, how)]))
    assert scene.woken == [(2, scene.coordinator.round, [number], most)], "the process of the other is gone"
    assert scene.observer.events == ["returned", "returned"] and scene.arrivals.pack() == [(2, 1)]
    scene.join(2)
    assert scene.arrivals.pack() == [] and len(scene.coordinator.positions.members) == 1
    scene.coordinator.left([2])
    scene.join(2)  # nobody told it to
    assert len(scene.coordinator.positions.members) == 0


def test_a_client_joins_as_often_as_it_was_told_and_not_if_it_has_left_again() -> None:
    scene = Scene()
    for _ in range(2):
        scene.arrivals._move(comes(1))
    assert scene.arrivals.pack() == [(1, 2)]
    scene.gone.add(1)
    scene.join(1)
    assert scene.arrivals.pack() == [(1, 1)] and len(scene.coordinator.positions.members) == 0
    scene.gone.clear()
    scene.join(1)
    assert scene.arrivals.pack() == [] and len(scene.coordinator.positions.members) == 1


def test_a_client_whose_state_is_of_no_use_starts_from_x0_and_is_told_once_a_round() -> None:
    scene = Scene()
    scene.arrivals._move(comes(0, 1))
    scene.join(0, version=7)
    (refuse,) = scene.sent
    assert (refuse.kind, refuse.client, refuse.round) == (Kind.REFUSE, 0, scene.coordinator.round)
    assert unpack_refuse(refuse)[0] == "foreign-version" and scene.arrivals.pack() == [(0, 1), (1, 1)]
    scene.join(0, version=7)
    assert len(scene.sent) == 1 and scene.arrivals.pack() == [(1, 1)], "it would be told for ever"
    scene.arrivals._move(comes(0))
    scene.join(0, version=7)
    assert len(scene.sent) == 2, "it has returned since"
    scene.unreachable.add(1)
    scene.join(1, version=7)
    scene.join(2)  # refused for another reason: it is no member, and was not told to join
    assert len(scene.sent) == 2 and scene.arrivals.pack() == [(0, 1)]
    refused = [event for event in scene.observer.events if event != "returned"]
    assert refused == ["foreign-version"] * 4 + ["not-a-member"]


@pytest.mark.parametrize("is_virtual", [True, False])
def test_joins_that_are_due_are_stored_and_forgotten_where_a_process_brings_its_clients(is_virtual: bool) -> None:
    scene, other = Scene(), Scene(is_virtual=is_virtual)
    for clients in ((2, 1), (1,)):
        scene.arrivals._move(comes(*clients))
    assert scene.arrivals.pack() == [(1, 2), (2, 1)]
    other.arrivals.unpack(scene.arrivals.pack())
    assert other.arrivals.pack() == (scene.arrivals.pack() if is_virtual else [])
