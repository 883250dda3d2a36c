"""Clients whose availability is read from a file, such as a log of real devices."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from seedbus.bus import KeyedRandom
from seedbus.bus.network import round_ns
from seedbus.scenarios.faults.intermittent import IntermittentClients, ToggleSchedule
from seedbus.scenarios.faults.trace_file import (
    LATEST_S,
    Expected,
    FollowsFile,
    Owner,
    TraceFile,
    read_trace,
)


class Trace(FollowsFile, IntermittentClients):
    """Clients are available during the intervals of a CSV file: columns client, from_s and to_s, in simulated seconds.

    A client that does not occur in the file is always available. With a column device in the place of client, each
    client has one of the file's devices, drawn once, and the same in all files that have the same devices.
    """

    fault: Literal["trace"] = "trace"
    file: TraceFile

    def schedule(self, clients: int, random: KeyedRandom) -> ToggleSchedule:
        spans = self._spans(clients, random)
        changes = ((client, iter(_changes(intervals))) for client, intervals in spans.items())
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
        return read_trace(self.file, ["from_s", "to_s"], clients, _parse, "two times in seconds")


def _parse(values: list[str]) -> tuple[int, int]:
    begin_s, end_s = map(float, values)
    if not 0 <= begin_s < end_s <= LATEST_S:
        raise Expected(f"times with 0 ≤ from_s < to_s ≤ {LATEST_S:g}")
    return round_ns(begin_s), round_ns(end_s)


def _changes(spans: list[tuple[int, int]]) -> list[int]:
    """Return when a client arrives, leaves, arrives, …, from ascending intervals that may touch or overlap."""
    changes: list[int] = []
    for begin, end in spans:
        if changes and begin <= changes[-1]:
            changes[-1] = max(changes[-1], end)
        else:
            changes += [begin, end]
    return changes
