"""A checkpoint's state, as one value. It is checked when a run is resumed: its digest can be computed by anybody.

Each part's record says its form beside the part; the algorithm checks its own state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from seedbus.agents.availability import AvailabilityState
from seedbus.agents.server.coordinator import CoordinatorState
from seedbus.bus import BusState
from seedbus.bus.event_queue import LAST_NS
from seedbus.bus.records import Whole, record
from seedbus.bus.transport import Client


class ServerState(NamedTuple):
    """What a checkpoint stores as one value; in this order.

    Attributes:
        coordinator: what `Coordinator.checkpoint` returned.
        bus: what `Bus.checkpoint` returned.
        availability: what `Availability.pack` returned.
        arrivals: what `Arrivals.pack` returned.
    """

    coordinator: CoordinatorState
    bus: BusState
    availability: AvailabilityState
    arrivals: list[tuple[Client, Whole]]


def restored(unpacked: Any, last_round: int, *, is_virtual: bool) -> ServerState:
    """Return the state of a checkpoint. From rounds and times far ahead a run would go on without end.

    Args:
        unpacked: the checkpoint's.
        last_round: the journal's.
        is_virtual: whether the run's time is simulated.

    Raises:
        ValueError: no server has written it; says why in a few words.
    """
    try:
        state = record(ServerState, unpacked)
        if (problem := _problem(state, last_round, is_virtual=is_virtual)) is not None:
            raise ValueError(problem)
    except ValueError as error:
        raise ValueError(f"a state of another form than a server writes: {error}") from None
    return state


def _problem(state: ServerState, last_round: int, *, is_virtual: bool) -> str | None:
    number, now_ns, moved = state.coordinator.rounds.number, state.bus.now_ns, state.availability
    if number != last_round + 1:
        return f"its next round is {number}, after round {last_round}"
    if is_virtual and now_ns > LAST_NS:
        return f"its time is {now_ns} ns, after the last instant"
    if moved.round > number or moved.now_ns > now_ns:
        return f"clients came and went in round {moved.round}, at {moved.now_ns} ns, which is to come"
    return None
