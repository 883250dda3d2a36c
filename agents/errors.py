"""Errors that stop a run, or keep one from starting. Bad peers do not: their messages are refused, counted and named.

AgentError
├── RunFolderError   the run's folder cannot be read or written, is in use, or holds something else
├── JournalDamaged   a journal whose records do not verify; states how many rounds do
├── Forgotten        a client is to repeat work from a memory that is not kept any more
├── JoinRefused      the server refused this process
├── StopRequested    the run was asked to stop after the round in progress, and has
└── Unfinishable     the next commit cannot be made
    └── TooFew       because the clients of a quorum are never available together
"""

from __future__ import annotations

from pathlib import Path


class AgentError(Exception):
    """Any error of the agents."""


class RunFolderError(AgentError):
    """The run's folder cannot be read or written, is in use, or holds something else.

    Attributes:
        path: the folder or file.
        what: what is wrong with it.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self.what = what
        super().__init__(path, what)

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class JournalDamaged(AgentError):
    """A journal does not verify.

    Attributes:
        path: its file.
        good: how many of its first rounds are sound.
        what: what is wrong with it.
    """

    def __init__(self, path: Path, good: int, what: str) -> None:
        self.path = path
        self.good = good
        self.what = what
        super().__init__(path, good, what)

    def __str__(self) -> str:
        sound = "round is" if self.good == 1 else f"{self.good} rounds are"
        return f"{self.path}: the journal is damaged: {self.what}; its first {sound} sound"


class Forgotten(AgentError):
    """A client is asked again for work of a round so long ago that its memory from before it is not kept."""

    def __init__(self, client: int, round: int) -> None:
        self.client = client
        self.round = round
        super().__init__(client, round)

    def __str__(self) -> str:
        return (
            f"client {self.client}'s memory from before round {self.round} is not kept any more; "
            "a folder of memories serves one run"
        )


class JoinRefused(AgentError):
    """The server refused to let this process join.

    Attributes:
        reason: one word.
        detail: a sentence.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(reason, detail)

    def __str__(self) -> str:
        return f"the server refused to let this process join ({self.reason}): {self.detail}"


class StopRequested(AgentError):
    """The run was asked to stop after the round in progress, and has; every closed round is kept."""


class Unfinishable(AgentError):
    """The open round can never be closed, so the run cannot go on."""


class NotStarted(Unfinishable):
    """A process that hosts clients cannot be started; a run that has just begun leaves no folder."""


class TooFew(Unfinishable):
    """The clients of a quorum are never available together."""
