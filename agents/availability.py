"""Which clients are available: they arrive, leave, crash and return, as a scenario's faults say.

    AvailabilityFault  one fault of a scenario that keeps clients away
    Schedule           what it does in one run: which clients it keeps away now
    Availability       all of them together: a client is available while no fault keeps it away

Arrivals and departures take effect between rounds. A client that leaves may announce it. One that does not is asked
further on, and all messages to and from it are lost. A client that returns joins again (JOIN), with the state that it
still has. A schedule is a function of the round and the time, so a resumed run needs to advance it only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, KeysView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Meta

from seedbus.bus import FaultHooks, KeyedRandom
from seedbus.bus.errors import Unusable
from seedbus.bus.fault_hooks import ActiveFault
from seedbus.bus.in_flight import Key
from seedbus.bus.records import Count
from seedbus.bus.transport import Client

Returns = Literal["with-state", "without-state", "from-another-run"]
RETURNS: tuple[Returns, ...] = ("with-state", "without-state", "from-another-run")
"""What a client can return with, from best to worst. A WAKE carries the index."""


class AvailabilityState(NamedTuple):
    """What a checkpoint stores: round and time of the last `advance`, and what clients have met with."""

    round: Count
    now_ns: Count
    worst: list[tuple[Client, Annotated[int, Meta(ge=0, lt=len(RETURNS))]]]


class Schedule(Protocol):
    """The clients that one fault keeps away, as time goes on."""

    @property
    def absent(self) -> AbstractSet[int]:
        """The clients that it keeps away now."""
        ...

    @property
    def is_by_rounds(self) -> bool:
        """Whether clients leave and return at rounds, and not at times."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether no client will leave or return any more."""
        ...

    def advance(self, round: int, now_ns: int) -> Iterable[int]:
        """Go on to the opening of a round. Returns the clients that left or returned since the last call.

        The cost depends on the number of those clients only. Arguments never decrease from call to call. Several small
        steps lead to the same state as one large step.
        """
        ...

    def next_ns(self) -> int | None:
        """Return when the next client leaves or returns; None: at a round instead, or never."""
        ...


@runtime_checkable
class AvailabilityFault(Protocol):
    """Implemented by a scenario's faults that keep clients away. The `repr` of such a fault keys its random draws."""

    @property
    def is_announced(self) -> bool:
        """Whether a client that leaves tells the server."""
        ...

    @property
    def returns(self) -> Returns:
        """What state a client returns with."""
        ...

    def schedule(self, clients: int, random: KeyedRandom) -> Schedule:
        """Return what it does in one run; clients: N."""
        ...


@dataclass(slots=True)
class Moves:
    """The clients that left and returned at the opening of a round.

    Attributes:
        left: those that announced that they leave, ascending.
        arrived: (client, what state it returns with), ascending.
    """

    left: list[int] = field(default_factory=list)
    arrived: list[tuple[int, Returns]] = field(default_factory=list)


class Availability:
    """All faults that keep clients away. Messages to and from a client that is away are lost.

    Attributes:
        at_start: the clients that are away when the run begins.
    """

    def __init__(self, hooks: FaultHooks) -> None:
        """Begin at round 0.

        Of each fault it counts how often it took a client "away" and let it come "back", and the messages that were
        "dropped" for it.
        """
        faults = hooks.of_kind(AvailabilityFault)
        self._schedules: list[tuple[ActiveFault, Schedule]] = [
            (each, each.fault.schedule(hooks.clients, each.random)) for each in faults
        ]
        self._clients = hooks.clients
        self._away: Counter[int] = Counter()  # client → how many faults keep it away
        self._announced: Counter[int] = Counter()  # of these, how many let it announce that it leaves
        self._by_rounds: Counter[int] = Counter()  # of these, how many end at a round and not at a time
        self._worst: dict[int, int] = {}  # client still away → index into RETURNS, the worst of faults that have ended
        self._at = (0, 0)
        self.advance(0, 0)
        self.at_start = frozenset(self._away)

    @property
    def away(self) -> KeysView[int]:
        """The clients that are away now, as a live view."""
        return self._away.keys()

    def has_left(self, client: int) -> bool:
        """Whether a client is away and has announced it."""
        return client in self._announced

    def stops(self, key: Key, arriving: bool) -> bool:
        """Whether a message is lost because its client is away."""
        return key[1] in self._away  # the client

    def count_dropped(self, client: int) -> ActiveFault | None:
        """Count a message that is lost because its client is away, for each fault that keeps it away."""
        reasons = [each for each, schedule in self._schedules if client in schedule.absent]
        for each in reasons:
            each.counts["dropped"] += 1
        return next(iter(reasons), None)

    def advance(self, round: int, now_ns: int) -> Moves:
        """Go on to the opening of a round. Returns the clients that leave and return then."""
        self._at = (round, now_ns)
        changed, released = set[int](), dict[int, int]()
        for each, schedule in self._schedules:
            returns = RETURNS.index(each.fault.returns)
            for client in schedule.advance(round, now_ns):
                is_away = client in schedule.absent
                _step(self._away, client, is_away)
                each.counts["away" if is_away else "back"] += 1
                if schedule.is_by_rounds:
                    _step(self._by_rounds, client, is_away)
                if each.fault.is_announced:
                    _step(self._announced, client, is_away)
                    changed.add(client)
                if not is_away:
                    released[client] = max(returns, released.get(client, 0))
        left = sorted(client for client in changed if client in self._announced)
        return Moves(left, list(self._arrived(released)))

    def _arrived(self, released: dict[int, int]) -> Iterator[tuple[int, Returns]]:
        """Of clients that a fault has released, those that no other keeps away; they return with the worst state."""
        for client in sorted(released):
            worst = max(released[client], self._worst.pop(client, 0))
            if client not in self._away:
                yield client, RETURNS[worst]
            elif worst:
                self._worst[client] = worst

    def next_ns(self) -> int | None:
        """Return when the next client leaves or returns at a time; None: none does."""
        times = list[int]()
        for each, schedule in self._schedules:
            if (next_ns := schedule.next_ns()) is not None:
                if next_ns <= self._at[1]:
                    what = f"says at {self._at[1]} ns that a client leaves or returns next at {next_ns!r:.80} ns"
                    raise Unusable.of_fault(each.fault, what, "a later instant, or None")
                times.append(next_ns)
        return min(times, default=None)

    @property
    def in_time(self) -> int:
        """How many clients are available, or will be at some time, without further rounds."""
        return self._clients - len(self._by_rounds)

    @property
    def is_changing(self) -> bool:
        """Whether clients leave or return in this run at all."""
        return bool(self._schedules)

    @property
    def is_over(self) -> bool:
        """Whether clients left and returned, and none will any more."""
        return self.is_changing and all(schedule.is_over for _, schedule in self._schedules)

    def pack(self) -> AvailabilityState:
        """Return what a checkpoint stores."""
        return AvailabilityState(*self._at, sorted(self._worst.items()))

    def unpack(self, state: AvailabilityState) -> None:
        """Go on from what `pack` returned; before the first `advance`."""
        self.advance(state.round, state.now_ns)
        self._worst = dict(state.worst)


def _step(counts: Counter[int], client: int, is_more: bool) -> None:
    counts[client] += 1 if is_more else -1
    if not counts[client]:
        del counts[client]
