"""The members of a run as an ordered sequence, from which cohorts are drawn at logarithmic cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import overload


class MemberIndex(Sequence[int]):
    """A subset of the clients 0 … N−1, ascending. Adding, removing and indexing cost O(log N) (a Fenwick tree).

    Args:
        clients: N.
    """

    def __init__(self, clients: int) -> None:
        self._is_in = bytearray(clients)
        self._tree: list[int] | None = None  # built when first needed, and again after many additions at once
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, client: object) -> bool:
        return isinstance(client, int) and 0 <= client < len(self._is_in) and self._is_in[client] == 1

    def __iter__(self) -> Iterator[int]:
        return (client for client, is_in in enumerate(self._is_in) if is_in)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            places = range(*index.indices(len(self)))
            return list(places) if self._count == len(self._is_in) else [self[each] for each in places]
        if not 0 <= index < self._count:
            raise IndexError(index)
        if self._count == len(self._is_in):
            return index
        tree = self._built_tree()
        client, step = 0, 1 << (len(self._is_in).bit_length() - 1)
        while step:
            if client + step < len(tree) and tree[client + step] <= index:
                client += step
                index -= tree[client]
            step >>= 1
        return client

    def update(self, clients: Iterable[int]) -> None:
        """Add several clients."""
        new = [client for client in clients if not self._is_in[client]]
        if len(new) * len(self._is_in).bit_length() > len(self._is_in):
            self._tree = None  # building it again costs less
        for client in new:
            self.add(client)

    def add(self, client: int) -> None:
        if client not in self:
            self._change(client, 1)

    def discard(self, client: int) -> None:
        if client in self:
            self._change(client, -1)

    @contextmanager
    def without(self, clients: Iterable[int]) -> Iterator[MemberIndex]:
        """Return a context in which these clients are removed; they are added again at its end."""
        removed = [client for client in clients if client in self]
        for client in removed:
            self.discard(client)
        try:
            yield self
        finally:
            for client in removed:
                self.add(client)

    def _change(self, client: int, by: int) -> None:
        self._is_in[client] = by == 1
        self._count += by
        if self._tree is not None:
            node = client + 1
            while node < len(self._tree):
                self._tree[node] += by
                node += node & -node

    def _built_tree(self) -> list[int]:
        if self._tree is None:
            tree = [0, *self._is_in]
            for node in range(1, len(tree)):
                parent = node + (node & -node)
                if parent < len(tree):
                    tree[parent] += tree[node]
            self._tree = tree
        return self._tree
