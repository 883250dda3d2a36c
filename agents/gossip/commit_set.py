"""The set of commits that a node has, and what it tells its neighbours of it.

A commit is numbered by the node that makes it (its origin): 0, 1, 2, … So a set is, for each origin, how many of its
first commits are there, and some ranges after a gap: a version vector (Parker et al. 1983) with exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Record = list[Any]
"""A commit as it travels: [origin, number, round, …], then the packed report of the step."""


class CommitSet:
    """The commits that a node has. It only grows.

    Attributes:
        size: how many there are.
    """

    def __init__(self, nodes: int) -> None:
        self.size = 0
        self._records: list[list[Record | None]] = [[] for _ in range(nodes)]
        self._first: list[int] = [0] * nodes  # of each origin, how many commits there are before the first gap

    def add(self, record: Record) -> bool:
        """Add a commit. Returns False if it was there already."""
        origin, number = record[:2]
        records = self._records[origin]
        if number < len(records) and records[number] is not None:
            return False
        records += [None] * (number + 1 - len(records))
        records[number] = record
        self.size += 1
        first = self._first[origin]
        while first < len(records) and records[first] is not None:
            first += 1
        self._first[origin] = first
        return True

    def __iter__(self) -> Iterator[Record]:
        """Yield all commits by origin, then by number."""
        return (record for records in self._records for record in records if record is not None)

    def count(self, origin: int) -> int:
        """Return the number that follows an origin's newest commit here."""
        return len(self._records[origin])

    def summary(self) -> list[Any]:
        """Return what the set holds, for a message: [how many first commits of each origin, ranges after a gap]."""
        ranges = [(origin, *span) for origin in range(len(self._records)) for span in self._after_gap(origin)]
        return [_column(self._first), _column([number for each in ranges for number in each])]

    def _after_gap(self, origin: int) -> Iterator[tuple[int, int]]:
        """Yield (first, end) of each range of an origin's commits after the first gap."""
        records, start = self._records[origin], None
        for number in range(self._first[origin], len(records) + 1):
            is_there = number < len(records) and records[number] is not None
            if is_there and start is None:
                start = number
            elif not is_there and start is not None:
                yield start, number
                start = None

    def beyond(self, summary: Sequence[Any]) -> list[Record]:
        """Return the commits here that a set with this summary lacks."""
        firsts, after = (_numbers(column) for column in summary)
        theirs = {(o, n) for o, a, b in zip(*[iter(after)] * 3, strict=True) for n in range(a, b)}
        return [
            record
            for origin, (records, first) in enumerate(zip(self._records, firsts, strict=True))
            for record in records[first:]
            if record is not None and (origin, record[1]) not in theirs
        ]

    def lacks(self, summary: Sequence[Any]) -> bool:
        """Return whether a set with this summary has commits that this one lacks."""
        firsts, after = (_numbers(column) for column in summary)
        return any(theirs > ours for theirs, ours in zip(firsts, self._first, strict=True)) or any(
            self._records[o][number : number + 1] in ([], [None])
            for o, a, b in zip(*[iter(after)] * 3, strict=True)
            for number in range(a, b)
        )


def _column(numbers: Sequence[int]) -> bytes:
    """Return whole numbers in one byte each, or in two or four if one needs them; the first byte says in how many."""
    width = 1 if max(numbers, default=0) < 2**8 else 2 if max(numbers) < 2**16 else 4
    return bytes([width]) + np.array(numbers, f"<u{width}").tobytes()


def _numbers(column: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(column, f"<u{column[0]}", offset=1).tolist()
    return numbers
