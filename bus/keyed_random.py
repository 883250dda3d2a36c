"""Random draws by key: the same key draws the same number everywhere, in any order, in any process.

The bus has no stateful generator: a latency, a drop or a cohort is a function of the scenario's seed and of what it is
drawn for. So the same messages are lost or delayed on every transport. A retry is another occurrence and has a new
draw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from seedbus.keyed import Key as Key
from seedbus.keyed import bits as bits
from seedbus.keyed import bits_below, keyed_bytes
from seedbus.settings import draw_key

T = TypeVar("T")
_HIGHEST = 1 - 2.0**-53  # float64 has none between it and 1


def uniform(seed: int, *key: Key) -> float:
    """Return a number in (0, 1), keyed by (seed, key…): 53 bits, never an end point."""
    return _fraction(bits(seed, *key))


def _fraction(number: int) -> float:
    return min(((number >> 11) + 0.5) * 2.0**-53, _HIGHEST)  # beyond ½ the sum is rounded, at last to 1


def below(limit: int, seed: int, *key: Key) -> int:
    """Return an integer in [0, limit), keyed by (seed, key…). Its bias is below limit/2⁶⁴."""
    return bits(seed, *key) * limit >> 64


def sample(members: int, count: int, seed: int, *key: Key) -> list[int]:
    """Return `count` distinct elements of range(members) in ascending order, keyed by (seed, key…).

    Floyd's algorithm, O(count) draws.
    """
    if count == members:
        return list(range(members))
    chosen: set[int] = set()
    for last in range(members - count, members):
        pick = below(last + 1, seed, *key, last)
        chosen.add(last if pick in chosen else pick)
    return sorted(chosen)


class KeyedRandom:
    """The random draws of one fault, keyed by its configuration: no other fault of the scenario changes them.

    Args:
        seed: the scenario's seed.
        clients: number of clients in the run.
        identity: the fault's complete configuration and nothing else (`seedbus.settings.draw_key`).
        number: how many earlier faults of the scenario have the same identity.
    """

    def __init__(self, seed: int, clients: int, identity: str, number: int = 0) -> None:
        self._seed = seed
        self._clients = clients
        self._key = ("rule", keyed_bytes(identity).hex(), number)
        self._bits = bits_below(seed, *self._key)
        self._shares: dict[float, frozenset[int]] = {}

    def draw(self, *key: Key) -> float:
        """Return a number in (0, 1)."""
        return _fraction(self._bits(*key))

    def alike(self, *key: Key) -> float:
        """Return a number in (0, 1) that all faults of the run draw alike."""
        return uniform(self._seed, "of all rules", *key)

    def share(self, fraction: float) -> frozenset[int]:
        """Return the clients of a share, drawn once per fraction; its size is rounded to the nearest integer."""
        if fraction not in self._shares:
            count = round(fraction * self._clients)
            self._shares[fraction] = frozenset(sample(self._clients, count, self._seed, *self._key, "share"))
        return self._shares[fraction]


def with_random(faults: Sequence[T], seed: int, clients: int) -> list[tuple[T, KeyedRandom]]:
    """Pair each fault of a scenario with its draws, keyed by the fault's `draw_key`."""
    seen: Counter[str] = Counter()
    pairs = []
    for fault in faults:
        identity = draw_key(fault)
        pairs.append((fault, KeyedRandom(seed, clients, identity, seen[identity])))
        seen[identity] += 1
    return pairs


def ordered(faults: Sequence[object], protocol: Any, seed: int, clients: int) -> list[tuple[Any, KeyedRandom]]:
    """Return the faults that implement a protocol, with their draws, in the order of their `draw_key`.

    So it makes no difference in which order a scenario lists them.
    """
    chosen = [fault for fault in faults if isinstance(fault, protocol)]
    return sorted(with_random(chosen, seed, clients), key=lambda pair: draw_key(pair[0]))
