"""What can be wrong with data: one exception, one sentence. What memory that ran out looks like. And what a process
does not do for a server that it does not trust."""

from __future__ import annotations

_WORDS_OF_NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "not enough memory", "out of memory")


class DataError(ValueError):
    """Data that is missing, damaged, or cannot be divided as asked.

    where: the file, partition or task; found: what is there; expected: what would be accepted.
    """

    def __init__(self, where: object, found: str, expected: str) -> None:
        super().__init__(f"{where}: found {found}; expected {expected}")
        self.where, self.found, self.expected = str(where), found, expected


class NoRoom(DataError):
    """Memory that does not suffice for a task; expected: the task's own settings that take less."""


class NotAllowed(Exception):
    """A server asks for what this process's user does not allow. what: of the scenario; asked: how much, or which."""

    def __init__(self, what: str, asked: object, allowed: str) -> None:
        self.what, self.asked, self.allowed = what, asked, allowed
        super().__init__(what, asked, allowed)

    def __str__(self) -> str:
        return f"the server asks for more than this process allows: {self.what} {self.asked}; allowed: {self.allowed}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it says that memory ran out; torch's allocator on a CPU raises a plain RuntimeError."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _WORDS_OF_NO_MEMORY)
