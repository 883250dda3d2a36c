"""The recent commits that a server keeps in memory.

They start after the version of the slowest member. If clients that miss too many get a snapshot, they start no earlier
than such clients would need. Older commits are read from the journal if they are needed after all, by a process that
joins late or a client that was away; of a journal that was pruned, those after its base. With a dense algorithm
followers need the newest commit only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

Reload = Callable[[int, int], Sequence[Any]]
"""Returns the commits after the first version, up to and including the second."""


class CommitWindow:
    """The newest commit and some before it.

    Args:
        reload: reads older commits back from the journal; None: there is no journal, and all commits are kept.
        max_commits: maximum number of commits that a lagging follower is sent; None: no limit.
        max_bytes: maximum number of bytes of commits that it is sent, or that are kept, each packed alone; None: no
            limit.
        is_dense: whether a commit contains the whole model, so that earlier ones are not needed.

    Attributes:
        version: the version of the newest commit; 0 before the first.
        base: the version before the first commit that there is; 0 unless the journal was pruned.
    """

    def __init__(
        self,
        reload: Reload | None = None,
        max_commits: int | None = None,
        max_bytes: int | None = None,
        *,
        is_dense: bool = False,
    ) -> None:
        self._reload = reload
        self._max_commits = max_commits
        self._max_bytes = max_bytes
        self._is_dense = is_dense
        self._is_budgeted = max_commits is not None or max_bytes is not None
        self.version = self.base = 0
        self._commits: list[Any] = []
        self._sizes = deque[int]()  # bytes of the newest commits, as many as a follower is sent
        self._bytes = 0

    def __len__(self) -> int:
        """The number of commits in memory."""
        return len(self._commits)

    @property
    def first(self) -> int:
        """The version before the oldest commit in memory."""
        return self.version - len(self._commits)

    @property
    def is_limited(self) -> bool:
        """Whether a follower may miss more than it is sent."""
        return self._is_budgeted or self.base > 0

    def begin_at(self, base: int) -> None:
        """Begin with the commits after version `base`; those before it are deleted."""
        self.version = self.base = base

    @property
    def counts_bytes(self) -> bool:
        """Whether `append` needs the size of a commit."""
        return self._max_bytes is not None

    def append(self, commit: Any, size: int = 0) -> None:
        """Add the next commit. `size`: its bytes, packed alone."""
        if self._is_dense:
            self._commits = [commit]
            self.version = commit.version
            return
        self._commits.append(commit)
        self.version += 1
        if self._is_budgeted:
            self._sizes.append(size)
            self._bytes += size
        # The newest commit is sent whatever its size, because the newest snapshot may be one version older.
        while len(self._sizes) > 1 and (
            (self._max_commits is not None and len(self._sizes) > self._max_commits)
            or (self._max_bytes is not None and self._bytes > self._max_bytes)
        ):
            self._bytes -= self._sizes.popleft()

    def is_beyond(self, version: int) -> bool:
        """Return whether a follower at `version` misses more commits or bytes than it is sent."""
        return bool(self._sizes) and version < self.version - len(self._sizes)

    def between(self, after: int, last: int) -> list[Any]:
        """Return the commits after + 1 … last, without deleted ones; with a dense algorithm the newest only, if it is
        among them."""
        if self._is_dense:
            return self._commits if after < self.version <= last else []
        after = max(after, self.base)
        first = self.first
        older = self._reload(after, min(first, last)) if self._reload and after < min(first, last) else []
        return [*older, *self._commits[max(0, after - first) : max(0, last - first)]]

    def since(self, version: int) -> list[Any]:
        """Return the commits after `version`, as `between` does."""
        return self.between(version, self.version)

    def prune(self, slowest: int) -> None:
        """Drop the commits that no member needs. `slowest`: the lowest version of a member."""
        if self._reload is None:
            return
        # The newest commit is always kept, because it may not be in the journal yet.
        below = min(max(slowest, self.version - len(self._sizes) if self._sizes else 0), self.version - 1)
        del self._commits[: max(0, below - self.first)]
