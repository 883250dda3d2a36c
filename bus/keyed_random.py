"""Random draws by key: the same key draws the same number everywhere, in any order, in any process.

Nothing on the bus has a generator with a state: a latency, a drop or a cohort is a function of the scenario's seed
and of what it is drawn for. So the same messages suffer on every transport, and a retry (another occurrence) is a new
draw.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

Key = int | str
T = TypeVar("T")


def bits(seed: int, *key: Key) -> int:
    """64 uniform bits keyed by (seed, key…), by BLAKE2b."""
    text = "\x1f".join(map(str, key)).encode()
    salt = (seed % 2**64).to_bytes(8, "little")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=salt).digest(), "little")


def uniform(seed: int, *key: Key) -> float:
    """A number in (0, 1), keyed by (seed, key…): 53 bits, never an end point."""
    return ((bits(seed, *key) >> 11) + 0.5) * 2.0**-53


def below(limit: int, seed: int, *key: Key) -> int:
    """A whole number in [0, limit). Its bias is below limit/2⁶⁴."""
    return bits(seed, *key) * limit >> 64


def sample(members: int, count: int, seed: int, *key: Key) -> list[int]:
    """`count` distinct positions out of range(members), ascending, at a cost of O(count): Floyd's algorithm."""
    if count == members:
        return list(range(members))
    chosen: set[int] = set()
    for last in range(members - count, members):
        pick = below(last + 1, seed, *key, last)
        chosen.add(last if pick in chosen else pick)
    return sorted(chosen)


class KeyedRandom:
    """The draws of one thing that a scenario says, keyed by what it says: whatever else is said changes none of them.

    clients: how many there are. says: all that the thing is, and nothing else; number: how many before it say the same.
    """

    def __init__(self, seed: int, clients: int, says: str, number: int = 0) -> None:
        self._seed, self._clients = seed, clients
        self._key = ("rule", hashlib.blake2b(says.encode(), digest_size=8).hexdigest(), number)
        self._shares: dict[float, frozenset[int]] = {}

    def draw(self, *key: Key) -> float:
        """A number in (0, 1)."""
        return uniform(self._seed, *self._key, *key)

    def share(self, fraction: float) -> frozenset[int]:
        """A fixed share of all clients, rounded to the nearest number of them."""
        if fraction not in self._shares:
            count = round(fraction * self._clients)
            self._shares[fraction] = frozenset(sample(self._clients, count, self._seed, *self._key, "share"))
        return self._shares[fraction]


def with_random(things: Sequence[T], seed: int, clients: int) -> list[tuple[T, KeyedRandom]]:
    """Each of the things that a scenario says, by its repr, with its draws."""
    said: Counter[str] = Counter()
    found = []
    for thing in things:
        says = repr(thing)
        found.append((thing, KeyedRandom(seed, clients, says, said[says])))
        said[says] += 1
    return found
