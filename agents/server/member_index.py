"""Who is a member of a run, in order: what a cohort is drawn from, at a cost that hardly grows with their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import overload


class MemberIndex(Sequence[int]):
    """Some of the clients 0 … N−1, ascending. Joining, leaving and the n-th cost log N (a Fenwick tree)."""

    def __init__(self, clients: int) -> None:
        self._is_in = bytearray(clients)
        self._tree: list[int] | None = None  # built when it is first asked for, and again after many came at once
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, client: object) -> bool:
        return isinstance(client, int) and 0 <= client < len(self._is_in) and bool(self._is_in[client])

    def __iter__(self) -> Iterator[int]:
        return (client for client, is_in in enumerate(self._is_in) if is_in)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if not 0 <= place < self._count:
            raise IndexError(place)
        if self._count == len(self._is_in):
            return place
        tree = self._built()
        found, step = 0, 1 << (len(self._is_in).bit_length() - 1)
        while step:
            if found + step < len(tree) and tree[found + step] <= place:
                found += step
                place -= tree[found]
            step >>= 1
        return found

    def update(self, clients: Iterable[int]) -> None:
        """Some come at once."""
        fresh = [client for client in clients if not self._is_in[client]]
        if len(fresh) * len(self._is_in).bit_length() > len(self._is_in):
            self._tree = None  # to build it anew costs less
        for client in fresh:
            self.add(client)

    def add(self, client: int) -> None:
        if client not in self:
            self._change(client, 1)

    def discard(self, client: int) -> None:
        if client in self:
            self._change(client, -1)

    @contextmanager
    def without(self, clients: Iterable[int]) -> Iterator[MemberIndex]:
        """The same for a while, but for these."""
        gone = [client for client in clients if client in self]
        for client in gone:
            self.discard(client)
        try:
            yield self
        finally:
            for client in gone:
                self.add(client)

    def _change(self, client: int, by: int) -> None:
        self._is_in[client] = by == 1
        self._count += by
        if self._tree is not None:
            place = client + 1
            while place < len(self._tree):
                self._tree[place] += by
                place += place & -place

    def _built(self) -> list[int]:
        if self._tree is None:
            tree = [0, *self._is_in]
            for place in range(1, len(tree)):
                above = place + (place & -place)
                if above < len(tree):
                    tree[above] += tree[place]
            self._tree = tree
        return self._tree
