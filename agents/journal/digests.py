"""Digests of the tables that a journal changes in place, kept up to date change by change.

A round's cost stays that of what changed: members are summed, so that a new version replaces an old one in a few
integer operations; metrics and rows only ever grow at their end, so each is a chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import msgpack

SEAL = "seal"
_SPAN = 2**128 - 1
Said = int | bytes
"""What a table says of a member: a version, or a note."""
_NOWHERE = -(2**33)  # the version of who is not in a table: no version, and no ~version either


@dataclass(frozen=True, slots=True)
class TableDigests:
    """What the tables known, held, halves, snapshot, metrics and rows of a journal add up to."""

    members: int = 0
    metrics: bytes = b""
    rows: bytes = b""
    snapshot: bytes = b""

    def digest(self) -> bytes:
        others = (digest(each) for each in (self.metrics, self.rows, self.snapshot))
        return digest(b"".join([self.members.to_bytes(16, "big"), *others]))

    def moved(self, table: str, before: Mapping[int, Said], now: Iterable[tuple[int, Said]]) -> Self:
        """Members at other versions, or with other notes. before: client → those of them that were in the table."""
        weigh = _weights(table)
        members = sum((_number(said) - _number(before.get(client, _NOWHERE))) * weigh(client) for client, said in now)
        return replace(self, members=(self.members + members) & _SPAN)

    def holding(self, snapshot: bytes) -> Self:
        """Another snapshot; b"": none."""
        return replace(self, snapshot=digest(snapshot))

    def grown(self, *, metrics: Iterable[str] = (), rows: Iterable[bytes] = ()) -> Self:
        """More lines and more rows."""
        lines, packed = self.metrics, self.rows
        for line in metrics:
            lines = digest(lines + line.encode())
        for row in rows:
            packed = digest(packed + row)
        return replace(self, metrics=lines, rows=packed)

    def rotated(self) -> Self:
        """No rows any more."""
        return replace(self, rows=b"")


def digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def seal_of(facts: Mapping[str, str]) -> str:
    """The fact that says that the others are whole."""
    named = msgpack.packb([[name, facts[name]] for name in sorted(facts) if name != SEAL])
    return digest(named).hex()


def _number(said: Said) -> int:
    return said if isinstance(said, int) else int.from_bytes(digest(said), "big")


def _weights(table: str) -> Callable[[int], int]:
    """client → an odd number of 128 bits that is its own: what one version more adds to the sum."""
    salt = int.from_bytes(digest(table.encode()), "big")

    def weigh(client: int) -> int:
        mixed = ((client << 64) ^ salt) * 0x2360ED051FC65DA44385DF649FCCF645 & _SPAN
        mixed = (mixed ^ mixed >> 67) * 0x9E3779B97F4A7C15F39CC0605CEDC835 & _SPAN
        return (mixed ^ mixed >> 61) | 1

    return weigh
