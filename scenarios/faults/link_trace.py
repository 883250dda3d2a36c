"""Clients whose links have the speeds of a file, such as a measurement of a mobile network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from pydantic import Field

from seedbus.bus import KeyedRandom, Speeds
from seedbus.bus.network import round_ns
from seedbus.bus.speeds import LEAST_MBPS
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.base import CLIENT_KEY
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

_CLOSEST_NS = 10**6
_UP, _DOWN = True, False

_Line = tuple[int, float, float]
"""Nanoseconds, and the speeds upward and downward from then on."""


class LinkTrace(FollowsFile):
    """Links have the speeds of a CSV file: columns client, from_s in simulated seconds, up_mbps and down_mbps.

    Without the column from_s a client has one line, which always holds. A line holds until the client's next one, and
    the last one to the end, or with every_s until the first holds again. A speed of 0 lets nothing pass. An empty one
    has no limit, nor without every_s the time before the first line. With a column device in the place of client,
    each client has one of the file's devices, drawn once, and the same in all files that have the same devices. The
    limits of `network` and of other faults apply as well.
    """

    keyed_as = f"LinkTrace {CLIENT_KEY} every_s"

    fault: Literal["link-trace"] = "link-trace"
    file: TraceFile
    every_s: float | None = Field(
        default=None, gt=0, le=LATEST_S, description="seconds after which the file begins anew; none: never"
    )

    def lines(self, clients: int) -> dict[Owner, list[_Line]]:
        return self._read(clients)[0]

    def speeds(self, clients: int, random: KeyedRandom) -> dict[tuple[int, bool], Speeds]:
        lines, links = self._read(clients)
        return {
            (client, upward): links[owner, upward]
            for client, owner in self.followed(lines, clients, random).items()
            for upward in (_UP, _DOWN)
        }

    def oddities(self, clients: int, random: KeyedRandom) -> list[tuple[str, list[int]]]:
        unlisted = self.unlisted(self.lines(clients), clients, random)
        return [("limits no link of {}, of whom its file has no line", unlisted)]

    def _read(self, clients: int) -> tuple[dict[Owner, list[_Line]], dict[tuple[Owner, bool], Speeds]]:
        """Return the lines of each client or device, and its speeds by direction. Raises `ScenarioError`."""
        form = "a time and two speeds in Mbit/s, which may be empty"
        columns = ["from_s", "up_mbps", "down_mbps"]
        lines = read_trace(self.file, columns, clients, _parse, form, optional="from_s")
        refuse_late(self.file, min((when for each in lines.values() for when, *_ in each), default=0))
        period_ns = None if self.every_s is None else round_ns(self.every_s)
        links = dict[tuple[Owner, bool], Speeds]()
        for owner, changes in lines.items():
            changes.sort()
            try:
                self._check_times([when for when, *_ in changes])
                links[owner, _UP] = Speeds([(when, up) for when, up, _ in changes], period_ns)
                links[owner, _DOWN] = Speeds([(when, down) for when, _, down in changes], period_ns)
            except ValueError as error:
                raise ScenarioError(self.file, [f"{whose(owner)}: {error}"]) from None
        return lines, links

    def _check_times(self, times: list[int]) -> None:
        """Raise `ValueError` if lines are too close for the time that a message may last over all of them."""
        for earlier, later in pairwise(times):
            if later - earlier < _CLOSEST_NS:
                found = f"lines at {earlier / 1e9:g} and {later / 1e9:g} s"
                raise ValueError(f"{found}; expected at least a millisecond between them")
        if self.every_s is not None and round_ns(self.every_s) - times[-1] < _CLOSEST_NS:
            found = f"a line at {times[-1] / 1e9:g} s with every_s {self.every_s:g}"
            raise ValueError(f"{found}; expected every_s to be at least a millisecond more")


def _parse(values: list[str]) -> _Line:
    when, *speeds = values
    from_s, (up, down) = float(when), (float(each) if each else math.inf for each in speeds)
    if not 0 <= from_s <= LATEST_S:
        raise Expected(f"a time from 0 to {LATEST_S:g} s")
    for value, mbps in zip(speeds, (up, down), strict=True):
        if value and not (mbps == 0 or LEAST_MBPS <= mbps < math.inf):
            raise Expected(f"speeds of 0, or from {LEAST_MBPS:f} Mbit/s, or none for no limit")
    return round_ns(from_s), up, down


def refuse_two_traces(faults: Sequence[tuple[object, KeyedRandom]], clients: int) -> None:
    """Raise `ScenarioError` if two link traces say the speeds of one client's links; faults: all, with their draws."""
    traces = [(fault, random) for fault, random in faults if isinstance(fault, LinkTrace)]
    taken = dict[tuple[int, bool], str]()
    for fault, random in traces if len(traces) > 1 else ():  # to find the links of a million clients takes seconds
        for link in fault.speeds(clients, random):
            if link in taken:
                what = f"it says the speeds of client {link[0]}, and so does {taken[link]}"
                raise ScenarioError(fault.file, [f"{what}; expected one link-trace for each client"])
            taken[link] = fault.file
