"""The commits that a server holds for serving: back to its slowest member, and no further than a snapshot helps.

The journal is never pruned. What is older and needed after all (a process that comes late, a client that was away) is
read back from there. Of a dense algorithm the newest commit is all that anybody needs.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

Reload = Callable[[int, int], Sequence[Any]]


class CommitWindow:
    """Commits, the newest for certain. reload: the commits after one version up to another, from where all are; None:
    there is no such place, and all are held. is_dense: a commit makes those before it useless.

    commits, size: how many commits, or bytes of them, a lagging follower is sent at most; None: any number.
    """

    def __init__(
        self,
        reload: Reload | None = None,
        commits: int | None = None,
        size: int | None = None,
        *,
        is_dense: bool = False,
    ) -> None:
        self._reload, self._most, self._most_bytes, self._is_dense = reload, commits, size, is_dense
        self.version = 0
        self._held: list[Any] = []
        self._sizes = deque[int]()
        self._bytes = 0

    def __len__(self) -> int:
        """How many commits are held."""
        return len(self._held)

    @property
    def counts_bytes(self) -> bool:
        """Whether it matters how many bytes a commit has."""
        return self._most_bytes is not None

    def append(self, commit: Any, size: int = 0) -> None:
        """size: the bytes of the commit, packed alone."""
        if self._is_dense:
            self._held, self.version = [commit], commit.version
            return
        self._held.append(commit)
        self.version += 1
        if self._most is not None or self._most_bytes is not None:
            self._sizes.append(size)
            self._bytes += size
        # the newest one alone is sent whatever it takes: a snapshot may be as old as that
        while len(self._sizes) > 1 and (
            (self._most is not None and len(self._sizes) > self._most)
            or (self._most_bytes is not None and self._bytes > self._most_bytes)
        ):
            self._bytes -= self._sizes.popleft()

    def is_beyond(self, version: int) -> bool:
        """Whether a follower at `version` misses more than it is sent."""
        return bool(self._sizes) and version < self.version - len(self._sizes)

    def between(self, after: int, last: int) -> list[Any]:
        """The commits after + 1 … last; of a dense algorithm the newest, if it is among them."""
        if self._is_dense:
            return self._held if after < self.version <= last else []
        first = self.version - len(self._held)
        older = self._reload(after, min(first, last)) if self._reload and after < min(first, last) else []
        return [*older, *self._held[max(0, after - first) : max(0, last - first)]]

    def since(self, version: int) -> list[Any]:
        return self.between(version, self.version)

    def prune(self, slowest: int) -> None:
        """Let go of what no member needs. slowest: the lowest version of a member."""
        if self._reload is None or self._is_dense:
            return
        # the newest one may not be where `reload` reads yet
        below = min(max(slowest, self.version - len(self._sizes) if self._sizes else 0), self.version - 1)
        del self._held[: max(0, below - (self.version - len(self._held)))]


class Slowest:
    """The lowest of many versions that come, go and rise, at a cost that does not grow with their number."""

    def __init__(self) -> None:
        self._counts = Counter[int]()
        self._heap: list[int] = []

    def add(self, version: int) -> None:
        if not self._counts[version]:
            heapq.heappush(self._heap, version)
        self._counts[version] += 1

    def discard(self, version: int) -> None:
        self._counts[version] -= 1
        if not self._counts[version]:
            del self._counts[version]

    def among(self, default: int) -> int:
        """The lowest there is, or `default` if there are none."""
        while self._heap and self._heap[0] not in self._counts:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else default
