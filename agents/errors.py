"""What stops a run, or keeps one from starting. Bad peers do not: their messages are refused, counted and named.

AgentError
├── RunFolderError   the run's folder cannot be written, or is not what it should be
├── JournalDamaged   a journal whose records do not verify; says how far they do
├── Forgotten        a client is to do work over again from what it does not remember any more
├── JoinRefused      this process may not take part, and why
└── Unfinishable     nobody can make the next commit
    └── TooFew       because the clients of a quorum are never there together
"""

from __future__ import annotations

from pathlib import Path


class AgentError(Exception):
    """Any error of the agents."""


class RunFolderError(AgentError):
    """The run's folder cannot be written, is in use, or belongs to something else."""

    def __init__(self, path: Path, what: str) -> None:
        self.path, self.what = path, what
        super().__init__(path, what)

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class JournalDamaged(AgentError):
    """A journal whose chain of records breaks after `good` rounds."""

    def __init__(self, path: Path, good: int, what: str) -> None:
        self.path, self.good, self.what = path, good, what
        super().__init__(path, good, what)

    def __str__(self) -> str:
        return f"{self.path}: the journal is damaged: {self.what}; its first {self.good} rounds are sound"


class Forgotten(AgentError):
    """A client is asked again for work that it did too long ago."""

    def __init__(self, client: int, round: int) -> None:
        self.client, self.round = client, round
        super().__init__(client, round)

    def __str__(self) -> str:
        return (
            f"client {self.client} does not remember any more what it knew before round {self.round}; "
            "a folder of memories serves one run"
        )


class JoinRefused(AgentError):
    """The server refused a host of clients."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail
        super().__init__(reason, detail)

    def __str__(self) -> str:
        return f"the server refused to let this process join ({self.reason}): {self.detail}"


class Unfinishable(AgentError):
    """The round cannot be closed."""


class TooFew(Unfinishable):
    """The clients of a quorum are never there together."""
