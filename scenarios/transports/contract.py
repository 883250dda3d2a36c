"""What a transport is to a run: a name, what it can reach, and how it connects a server with its clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from seedbus.scenarios.transports.placement import Placement

if TYPE_CHECKING:
    from seedbus.agents.observer import Observer
    from seedbus.bus import Recruit, Transport

Connect = Callable[[bytes], "Transport"]
"""From a run's id, the transport that its server sends with."""


@dataclass(frozen=True, slots=True)
class Hosting:
    """What a transport has to know of a run.

    Attributes:
        placement: where the clients are.
        clients: how many there are.
        is_virtual: whether the run has simulated time.
        recruit: makes the clients, if they are in this process.
        observer: is told where the server listens and which workers end.
        report_limit: bytes that a REPORT may have.
    """

    placement: Placement
    clients: int
    is_virtual: bool
    recruit: Recruit | None
    observer: Observer
    report_limit: int


class TransportKind(Protocol):
    """One way for messages between a server and its clients.

    Attributes:
        name: what scenarios and `--transport` call it.
        summary: one phrase for help texts.
        reaches_processes: whether clients can be in other processes.
    """

    name: str
    summary: str
    reaches_processes: bool

    def connected(self, hosting: Hosting) -> AbstractContextManager[Connect]:
        """Make the connection possible, start worker processes if there are to be any, and end them afterwards."""
        ...
