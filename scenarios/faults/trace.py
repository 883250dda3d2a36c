"""Clients whose availability is read from a file, such as a log of real devices."""

from __future__ import annotations

import csv
import hashlib
import os
import stat
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from seedbus.bus import KeyedRandom
from seedbus.bus.network import round_ns
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.faults.intermittent import IntermittentClients, ToggleSchedule
from seedbus.scenarios.sentences import quoted

_HEADER = ["client", "from_s", "to_s"]
_LATEST_S = 1e12
_MOST_BYTES = 256 * 2**20


class Trace(IntermittentClients):
    """Clients are available during the intervals of a CSV file with the columns client, from_s and to_s.

    A client that does not occur in the file is always available.
    """

    fault: Literal["trace"] = "trace"
    file: str = Field(
        min_length=1,
        repr=False,  # the path of the file keys no draw
        description="the CSV file, times in simulated seconds; a relative path is relative to the scenario's file",
    )

    @field_validator("file")
    @classmethod
    def _make_absolute(cls, value: str, info: ValidationInfo) -> str:
        folder = (info.context or {}).get("folder") or ""
        return str(Path(folder, value).absolute())

    def file_digest(self, clients: int) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for line in self._lines(clients):
            digest.update(b"%d %d %d\n" % line)
        return digest.hexdigest()

    def schedule(self, clients: int, random: KeyedRandom) -> ToggleSchedule:
        spans = self._spans(clients, set(self.chosen(clients, random)))
        changes = ((client, iter(_changes(intervals))) for client, intervals in spans.items())
        return ToggleSchedule(spans, changes, by_rounds=False)

    def oddities(self, clients: int, random: KeyedRandom) -> tuple[list[int], list[int]]:
        """Return the chosen clients that have no line, and those with lines that overlap. Raises `ScenarioError`."""
        chosen = set(self.chosen(clients, random))
        spans = self._spans(clients, chosen)
        overlapping = [
            client for client, each in spans.items() if any(begin < end for (_, end), (begin, _) in pairwise(each))
        ]
        return sorted(chosen - spans.keys()), sorted(overlapping)

    def _spans(self, clients: int, chosen: set[int]) -> dict[int, list[tuple[int, int]]]:
        """Return the ascending intervals of each chosen client that has a line. Raises `ScenarioError`."""
        spans: dict[int, list[tuple[int, int]]] = {}
        for client, begin_ns, end_ns in self._lines(clients):
            if client in chosen:
                spans.setdefault(client, []).append((begin_ns, end_ns))
        return {client: sorted(intervals) for client, intervals in spans.items()}

    def _lines(self, clients: int) -> Iterator[tuple[int, int, int]]:
        """Yield (client, start, end) of each line, in nanoseconds. Raises `ScenarioError`."""
        try:
            status = os.stat(self.file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:  # reading a device may never end
                what = f"of {status.st_size:,} bytes" if stat.S_ISREG(status.st_mode) else "no file"
                raise ScenarioError(
                    self.file, [f"the trace is {what}; expected a file of at most {_MOST_BYTES:,} bytes"]
                )
            with Path(self.file).open(encoding="utf-8-sig", newline="") as file:
                rows = csv.reader(file)
                if (header := next(rows, [])) != _HEADER:
                    raise self._refusal(1, header, f"the columns {','.join(_HEADER)}")
                for row in rows:
                    if row:
                        yield self._parse(rows.line_num, row, clients)
        except (OSError, ValueError, csv.Error) as error:
            if isinstance(error, ScenarioError):
                raise
            why = getattr(error, "strerror", None) or str(error)
            raise ScenarioError(self.file, [f"the trace cannot be read as CSV text ({why})"]) from None

    def _parse(self, number: int, row: list[str], clients: int) -> tuple[int, int, int]:
        try:
            client, begin_s, end_s = int(row[0]), *map(float, row[1:])
        except ValueError:
            raise self._refusal(number, row, "a client and two times in seconds") from None
        if not 0 <= client < clients:
            raise self._refusal(number, row, f"a client from 0 to {clients - 1}")
        if not 0 <= begin_s < end_s <= _LATEST_S:
            raise self._refusal(number, row, f"times with 0 ≤ from_s < to_s ≤ {_LATEST_S:g}")
        return client, round_ns(begin_s), round_ns(end_s)

    def _refusal(self, line: int, row: list[str], expected: str) -> ScenarioError:
        return ScenarioError(
            f"{self.file}, line {line}", [f"{quoted(','.join(row))} is not accepted; expected {expected}"]
        )


def _changes(spans: list[tuple[int, int]]) -> list[int]:
    """Return when a client arrives, leaves, arrives, …, from ascending intervals that may touch or overlap."""
    changes: list[int] = []
    for begin, end in spans:
        if changes and begin <= changes[-1]:
            changes[-1] = max(changes[-1], end)
        else:
            changes += [begin, end]
    return changes
