"""Clients whose devices have the speeds of a file, such as a benchmark of phones."""

from __future__ import annotations

from typing import Literal

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.base import CLIENT_KEY
from seedbus.scenarios.faults.trace_file import Expected, FollowsFile, Owner, TraceFile, read_trace

_LEAST, _MOST = 1e-6, 1e6


class DeviceSpeeds(FollowsFile):
    """Devices have the speeds of a CSV file with the columns client and factor: the time of local work is multiplied.

    A client that does not occur in the file takes the time that `compute` gives. With a column device in the place of
    client, each client has one of the file's devices, drawn once, and the same in all files that have the same devices.
    """

    keyed_as = f"DeviceSpeeds {CLIENT_KEY}"

    fault: Literal["device-speeds"] = "device-speeds"
    file: TraceFile

    @property
    def only_multiplies(self) -> bool:
        return True

    def factors(self, clients: int, random: KeyedRandom) -> dict[int, float]:
        lines = self.lines(clients)
        return {client: lines[owner][0][0] for client, owner in self.followed(lines, clients, random).items()}

    def oddities(self, clients: int, random: KeyedRandom) -> list[tuple[str, list[int]]]:
        unlisted = self.unlisted(self.lines(clients), clients, random)
        return [("changes no speed of {}, of whom its file has no line", unlisted)]

    def lines(self, clients: int) -> dict[Owner, list[tuple[float]]]:
        return read_trace(self.file, ["factor"], clients, _parse, "a factor", has_one_each=True)


def _parse(values: list[str]) -> tuple[float]:
    (factor,) = map(float, values)
    if not _LEAST <= factor <= _MOST:
        raise Expected(f"a factor from {_LEAST:f} to {_MOST:,.0f}")
    return (factor,)
