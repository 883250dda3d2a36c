"""Errors of tasks and data: each message is one sentence with the place, what is found and what is accepted."""

from __future__ import annotations

_OUT_OF_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "failed to map segment",  # a library cannot be loaded
    "not enough memory",
    "out of memory",
    "status_alloc_failed",  # of cuBLAS and cuDNN
)


class DataError(ValueError):
    """Data that is missing, damaged, or cannot be divided as requested.

    Attributes:
        where: the file, partition or task.
        found: what is there.
        expected: what would be accepted.
    """

    def __init__(self, where: object, found: str, expected: str) -> None:
        super().__init__(f"{where}: found {found}; expected {expected}")
        self.where = str(where)
        self.found = found
        self.expected = expected


class OutOfMemory(DataError):
    """A task needs more memory than there is; `expected` names settings of the task that need less."""


class NotAllowed(Exception):
    """A server asks for more than this process's user allows.

    Attributes:
        what: the quantity or setting of the scenario.
        asked: the value that the server asks for.
        allowed: the values that the user allows.
    """

    def __init__(self, what: str, asked: object, allowed: str) -> None:
        self.what = what
        self.asked = asked
        self.allowed = allowed
        super().__init__(what, asked, allowed)

    def __str__(self) -> str:
        return f"the server asks for more than this process allows: {self.what} {self.asked}; allowed: {self.allowed}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out; torch's CPU allocator raises a plain RuntimeError."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _OUT_OF_MEMORY)
