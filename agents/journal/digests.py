"""Digests of the tables that a journal changes in place, kept up to date change by change.

A round costs no more than what it changed. The tables of members are a sum, so that a new value replaces an old one in
a few integer operations. Metrics, and rows of the ledger, only grow at their end, so each is a chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Self

import msgpack

from seedbus.pieces import Bytes, Frame, Pieces, buffers

ROOT = "root"
"""The name of the fact that holds the first link of the chain, in hexadecimal, if it is not the scenario's digest."""
SEAL = "seal"
"""The name of the fact that holds the digest of all other facts."""
MemberValue = int | bytes
"""What a table stores of a member: a version, or a note."""
Holders = tuple[MemberValue, Sequence[int]]
"""A value, and clients that have it: most clients of a round have the same."""
_MASK = 2**128 - 1  # sums and products are taken modulo 2¹²⁸
_ABSENT = -(2**33)  # stands for a member that a table does not have; no version, and no complement of one, is as low


@dataclass(frozen=True, slots=True)
class TableDigests:
    """Digests of the tables that a journal changes in place.

    Attributes:
        members: the sum over the three tables of members, modulo 2¹²⁸.
        metrics: the chain of the lines of metrics, 16 bytes; b"" before the first.
        rows: the chain of the ledger's rows, 16 bytes; b"" before the first.
        held: the digest of what the server holds for clients that lag, 16 bytes.
    """

    members: int = 0
    metrics: bytes = b""
    rows: bytes = b""
    held: bytes = b""

    def digest(self) -> bytes:
        """Return one digest of all of them, 16 bytes."""
        others = (digest(each) for each in (self.metrics, self.rows, self.held))
        return digest(b"".join([self.members.to_bytes(16, "big"), *others]))

    def moved(self, table: str, before: Iterable[Holders], now: Iterable[Holders]) -> Self:
        """Return the digests after values of members changed.

        Args:
            table: the name of the table.
            before: old values, with those of the changed clients that the table had.
            now: new values, with the changed clients.
        """
        weigh = _weights(table)
        weights = lru_cache(2)(lambda clients: sum(map(weigh, clients)))  # most who change together were together
        change = 0
        for value, clients in now:
            change += (_number(value) - _ABSENT) * weights(tuple(clients))
        for value, clients in before:
            change -= (_number(value) - _ABSENT) * weights(tuple(clients))
        return replace(self, members=(self.members + change) & _MASK)

    def holding(self, held: Frame) -> Self:
        """Return the digests after the server holds something else for clients that lag; b"": nothing."""
        return replace(self, held=digest(held))

    def grown(self, *, metrics: Iterable[str] = (), rows: Iterable[bytes] = ()) -> Self:
        """Return the digests after more lines of metrics and more rows were added."""
        lines, packed = self.metrics, self.rows
        for line in metrics:
            lines = digest(lines + line.encode())
        for row in rows:
            packed = digest(packed + row)
        return replace(self, metrics=lines, rows=packed)

    def rotated(self) -> Self:
        """Return the digests after all rows were deleted."""
        return replace(self, rows=b"")


def digest(*content: Bytes | Pieces) -> bytes:
    """Return BLAKE2b of 16 bytes, of all these one after another."""
    total = hashlib.blake2b(digest_size=16)
    for each in content:
        for piece in buffers(each):
            total.update(piece)
    return total.digest()


def seal_of(facts: Mapping[str, str]) -> str:
    """Return the digest of all facts but the seal itself, in hexadecimal."""
    named = msgpack.packb([[name, facts[name]] for name in sorted(facts) if name != SEAL])
    return digest(named).hex()


def _number(value: MemberValue) -> int:
    return value if isinstance(value, int) else int.from_bytes(digest(value), "big")


@cache
def _weights(table: str) -> Callable[[int], int]:
    """client → an odd number of 128 bits that belongs to it alone: what a value greater by one adds to the sum."""
    salt = int.from_bytes(digest(table.encode()), "big")

    @lru_cache(2**13)  # of some thousand clients that are asked again and again; 2 MB
    def weight(client: int) -> int:
        mixed = ((client << 64) ^ salt) * 0x2360ED051FC65DA44385DF649FCCF645 & _MASK
        mixed = (mixed ^ mixed >> 67) * 0x9E3779B97F4A7C15F39CC0605CEDC835 & _MASK
        return (mixed ^ mixed >> 61) | 1

    return weight
