"""The types of the `seedbus` fixture, which runs the command in the test's process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class CommandResult(NamedTuple):
    """The exit code of a command, and what it wrote on stdout and stderr."""

    code: int
    out: str
    err: str


Command = Callable[..., CommandResult]
