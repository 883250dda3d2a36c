"""Who is there: clients that come, go, vanish and come back, as a scenario says.

    Presence  one thing that a scenario says about who is there (a fault)
    Schedule  what it comes to, for one run: whom it keeps away just now
    Population all of them together: a client is there while nothing keeps it away

Comings and goings take effect between rounds. Who leaves says so, or vanishes without a word: then the server goes on
asking it, and whatever is on its way to or from it is lost. Who comes back introduces itself again (JOIN), with what it
still holds. A schedule is a function of the round and the time: a resumed run asks it once for where it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from seedbus.bus import KeyedRandom
from seedbus.bus.in_flight import Key
from seedbus.bus.keyed_random import with_random

Returns = Literal["with-state", "without-state", "from-another-run"]
RETURNS: tuple[Returns, ...] = ("with-state", "without-state", "from-another-run")  # numbered as on the wire


class Schedule(Protocol):
    """Whom one presence keeps away."""

    @property
    def absent(self) -> AbstractSet[int]: ...

    @property
    def is_by_rounds(self) -> bool:
        """Whether comings and goings are a matter of rounds, and not of time."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nobody will come or go any more."""
        ...

    def advance(self, round: int, now_ns: int) -> Iterable[int]:
        """Move on to the opening of `round` at `now_ns`; returns the clients that are away now and were not, or back.

        A cost by who comes and goes. Called with what never decreases; any number of steps leads to the same.
        """
        ...

    def next_ns(self) -> int | None:
        """When somebody comes or goes next, if that is a matter of time; None: of rounds, or never."""
        ...


@runtime_checkable
class AvailabilityFault(Protocol):
    """Implemented by the faults of a scenario. Its repr keys its draws."""

    @property
    def is_announced(self) -> bool:
        """Whether the server is told by whoever leaves."""
        ...

    @property
    def returns(self) -> Returns:
        """With what a client comes back."""
        ...

    def schedule(self, clients: int, random: KeyedRandom) -> Schedule: ...


@dataclass(slots=True)
class Moves:
    """left: those who said that they leave; arrived: (client, with what), ascending."""

    left: list[int] = field(default_factory=list)
    arrived: list[tuple[int, Returns]] = field(default_factory=list)


class Availability:
    """Everybody who is away. What travels to or from whom is away is lost.

    counts: for each presence, where to count how often it took a client away and let it come back.
    """

    def __init__(
        self, presences: Sequence[AvailabilityFault], seed: int, clients: int, counts: Sequence[Counter[str]] = ()
    ) -> None:
        self._schedules = [
            (presence, presence.schedule(clients, random)) for presence, random in with_random(presences, seed, clients)
        ]
        self._counts, self._clients = counts or [Counter() for _ in presences], clients
        self._reasons: Counter[int] = Counter()
        self._said: Counter[int] = Counter()
        self._for_rounds: Counter[int] = Counter()  # of the reasons, those that are a matter of rounds
        self._lost: dict[int, int] = {}  # what those still away have met with already that is worse than nothing
        self._at = (0, 0)
        self.advance(0, 0)
        self.at_start = frozenset(self._reasons)
        """Those who are not there when the run begins."""

    @property
    def away(self) -> KeysView[int]:
        """Those who are away just now; it changes with them."""
        return self._reasons.keys()

    def has_left(self, client: int) -> bool:
        """True of who is away and has said so."""
        return client in self._said

    def stops(self, key: Key, arriving: bool) -> bool:
        return key[1] in self._reasons

    def advance(self, round: int, now_ns: int) -> Moves:
        """Who leaves and who comes as `round` opens."""
        self._at, said, released = (round, now_ns), set[int](), dict[int, int]()
        for (presence, schedule), did in zip(self._schedules, self._counts, strict=True):
            brings = RETURNS.index(presence.returns)
            for client in schedule.advance(round, now_ns):
                is_away = client in schedule.absent
                _step(self._reasons, client, is_away)
                did["away" if is_away else "back"] += 1
                if schedule.is_by_rounds:
                    _step(self._for_rounds, client, is_away)
                if presence.is_announced:
                    _step(self._said, client, is_away)
                    said.add(client)
                if not is_away:
                    released[client] = max(brings, released.get(client, 0))
        left = sorted(client for client in said if client in self._said)
        return Moves(left, list(self._arrived(released)))

    def _arrived(self, released: dict[int, int]) -> Iterator[tuple[int, Returns]]:
        """Those of whom something has let go, and by now everything, with the worst that they have met with."""
        for client in sorted(released):
            worst = max(released[client], self._lost.pop(client, 0))
            if client not in self._reasons:
                yield client, RETURNS[worst]
            elif worst:
                self._lost[client] = worst

    def next_ns(self) -> int | None:
        """When somebody comes or goes next, as far as that is a matter of time."""
        times = [schedule.next_ns() for _, schedule in self._schedules]
        return min((time for time in times if time is not None), default=None)

    @property
    def in_time(self) -> int:
        """How many clients are there, or are away as a matter of time only."""
        return self._clients - len(self._for_rounds)

    @property
    def is_changing(self) -> bool:
        """Whether anybody ever comes or goes."""
        return bool(self._schedules)

    @property
    def is_over(self) -> bool:
        """Whether everybody who ever came or went has done so for the last time."""
        return self.is_changing and all(schedule.is_over for _, schedule in self._schedules)

    def pack(self) -> list[Any]:
        return [*self._at, sorted(self._lost.items())]

    def unpack(self, packed: list[Any]) -> None:
        """Into a population that has not been asked anything yet."""
        round, now_ns, lost = packed
        self.advance(round, now_ns)
        self._lost = {client: what for client, what in lost}


def _step(counts: Counter[int], client: int, is_more: bool) -> None:
    counts[client] += 1 if is_more else -1
    if not counts[client]:
        del counts[client]
