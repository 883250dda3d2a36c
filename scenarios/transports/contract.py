"""The contract of a transport with a run: its name, what it can reach, and how it connects server and clients."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from seedbus.scenarios.transports.placement import Placement

if TYPE_CHECKING:
    from seedbus.agents.observer import Observer
    from seedbus.agents.server.run_spec import RunSpec
    from seedbus.bus import Recruit, Transport

Connect = Callable[[bytes], "Transport"]
"""Returns the transport of a run's server, from the run's id."""


@dataclass(frozen=True, slots=True)
class Hosting:
    """What a transport needs to know about a run.

    Attributes:
        spec: the run.
        placement: where the clients are.
        recruit: creates the clients in this process; None: they are in other processes.
        observer: is told where the server listens and which workers end.
        log: the run's log.
        keeps_state: whether clients may keep a state between rounds.
    """

    spec: RunSpec
    placement: Placement
    recruit: Recruit | None
    observer: Observer
    log: Path
    keeps_state: bool


class TransportKind(Protocol):
    """One way to carry messages between a server and its clients.

    Attributes:
        name: its name in scenarios and in `--transport`.
        summary: one phrase for help texts.
        reaches_processes: whether clients can be in other processes.
        reaches_nodes: whether these can be on other machines.
    """

    name: str
    summary: str
    reaches_processes: bool
    reaches_nodes: bool

    def connected(self, hosting: Hosting) -> AbstractContextManager[Connect]:
        """Prepare the connection; on exit, close it and end the worker processes that it started."""
        ...
