"""What a person got wrong, and the exit codes of the command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The command's exit codes; `docs/reference.md` lists them."""

    OK = 0
    BUG = 1
    USAGE = 2
    DATA = 3
    FOLDER = 4
    DIVERGED = 5
    STUCK = 6
    INTERRUPTED = 130


class ScenarioError(ValueError):
    """A scenario that cannot be run: one sentence a problem, each naming the file, the field and what is accepted."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.source, self.problems = source, problems
        super().__init__(source, problems)

    def __str__(self) -> str:
        return "\n".join(f"{self.source}: {problem}" for problem in self.problems)
