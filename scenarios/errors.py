"""What a person got wrong, and the exit codes of the command."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """The command's exit codes; `docs/reference.md` lists them."""

    OK = 0
    BUG = 1
    USAGE = 2
    DATA = 3
    FOLDER = 4
    DIVERGED = 5
    STUCK = 6
    PEER = 7
    MISSED = 8
    INTERRUPTED = 130


class WorkerFailed(Exception):
    """A worker process ended and no other was started in its place. code: its exit code, or minus the signal."""

    def __init__(self, number: int, code: int) -> None:
        self.number, self.code = number, code
        super().__init__(number, code)

    def __str__(self) -> str:
        how = f"was killed by signal {-self.code}" if self.code < 0 else f"ended with exit code {self.code}"
        return f"worker {self.number} {how}; every closed round is kept"


class ScenarioError(ValueError):
    """A scenario that cannot be run: one sentence a problem, each naming the file, the field and what is accepted."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.source, self.problems = source, problems
        super().__init__(source, problems)

    @property
    def sentences(self) -> list[str]:
        return [f"{self.source}: {problem}" for problem in self.problems]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a run that has a folder: every round that was closed is kept in it. command: what goes on with it."""

    def __init__(self, folder: Path, command: str = "seedbus run") -> None:
        self.folder, self.command = folder, command
        super().__init__(folder, command)

    def __str__(self) -> str:
        return f"stopped; every closed round is kept: go on with `{self.command} --resume {self.folder}`"
