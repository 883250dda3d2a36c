"""Clients whose availability is read from a file, such as a log of real devices."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from typing import Literal

from pydantic import Field

from seedbus.bus import KeyedRandom
from seedbus.bus.network import round_ns
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.intermittent import INTERMITTENT_KEY, IntermittentClients, ToggleSchedule
from seedbus.scenarios.faults.trace_file import (
    LATEST_S,
    Expected,
    FollowsFile,
    Owner,
    TraceFile,
    read_trace,
    refuse_late,
    whose,
)


class Trace(FollowsFile, IntermittentClients):
    """Clients are available during the intervals of a CSV file: columns client, from_s and to_s, in simulated seconds.

    A client that does not occur in the file is always available. After the last line a client remains away, or with
    every_s the file begins anew. With a column device in the place of client, each client has one of the file's
    devices, drawn once, and the same in all files that have the same devices.
    """

    keyed_as = f"Trace {INTERMITTENT_KEY} every_s"

    fault: Literal["trace"] = "trace"
    file: TraceFile
    every_s: float | None = Field(
        default=None, gt=0, le=LATEST_S, description="seconds after which the file begins anew; none: never"
    )

    def schedule(self, clients: int, random: KeyedRandom) -> ToggleSchedule:
        spans = self._spans(clients, random)
        period_ns = None if self.every_s is None else round_ns(self.every_s)
        changes = ((client, _changes(intervals, period_ns)) for client, intervals in spans.items())
        return ToggleSchedule(spans, changes, by_rounds=False)

    def oddities(self, clients: int, random: KeyedRandom) -> list[tuple[str, list[int]]]:
        spans = self._spans(clients, random)
        unlisted = [client for client in self.chosen(clients, random) if client not in spans]
        overlapping = [
            client for client, each in spans.items() if any(begin < end for (_, end), (begin, _) in pairwise(each))
        ]
        return [
            ("never takes {} away, of whom its file has no line", unlisted),
            ("takes the lines of {} that overlap for one interval", sorted(overlapping)),
        ]

    def _spans(self, clients: int, random: KeyedRandom) -> dict[int, list[tuple[int, int]]]:
        """Return the ascending intervals of each chosen client that has a line. Raises `ScenarioError`."""
        spans = {owner: sorted(intervals) for owner, intervals in self.lines(clients).items()}
        return {client: spans[owner] for client, owner in self.followed(spans, clients, random).items()}

    def lines(self, clients: int) -> dict[Owner, list[tuple[int, int]]]:
        """Return the start and end of each line, in nanoseconds. Raises `ScenarioError`."""
        found = read_trace(self.file, ["from_s", "to_s"], clients, _parse, "two times in seconds")
        refuse_late(self.file, min((begin for each in found.values() for begin, _ in each), default=0))
        for owner, intervals in found.items() if self.every_s is not None else ():
            if (end := max(end for _, end in intervals)) > round_ns(self.every_s or 0):
                told = f"{whose(owner)}: a line to {end / 1e9:g} s with every_s {self.every_s:g}"
                raise ScenarioError(self.file, [f"{told}; expected every_s to be at least that"])
        return found


def _parse(values: list[str]) -> tuple[int, int]:
    begin_s, end_s = map(float, values)
    if not 0 <= begin_s < end_s <= LATEST_S:
        raise Expected(f"times with 0 ≤ from_s < to_s ≤ {LATEST_S:g}")
    return round_ns(begin_s), round_ns(end_s)


def _changes(spans: list[tuple[int, int]], period_ns: int | None) -> Iterator[int]:
    """Yield when a client arrives, leaves, arrives, …, from ascending intervals that may touch or overlap.

    Args:
        spans: the intervals.
        period_ns: after so long they come again, and again; None: never.
    """
    changes: list[int] = []
    for begin, end in spans:
        if changes and begin <= changes[-1]:
            changes[-1] = max(changes[-1], end)
        else:
            changes += [begin, end]
    if period_ns is None:
        yield from changes
    elif changes == [0, period_ns]:
        yield 0  # it never leaves
    else:
        stays = changes[0] == 0 and changes[-1] == period_ns  # over the end of a period
        for number in count():
            yield from (
                number * period_ns + when
                for place, when in enumerate(changes)
                if not (stays and ((place == 0 and number) or place == len(changes) - 1))
            )
