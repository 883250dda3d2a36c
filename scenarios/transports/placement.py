"""Where a run's clients are: in this process, in processes that it starts, or in processes that others start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from seedbus.bus import Recruit
    from seedbus.scenarios.launchers.launcher import Launcher

MIN_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a run's clients are, and how long its server waits for them.

    Attributes:
        transport: a name in `TRANSPORTS`.
        workers: number of worker processes to start; 0: the clients are in this process, unless `bind` is set.
        launcher: starts the worker processes; None: on this machine.
        bind: an endpoint for client processes that others start; None: there are none.
        expect: number of processes among which `bind` divides the clients.
        patience_s: how long a client may be without a process before the run ends.
        join_s: how long a process may take to join after it was offered clients.
        answer_s: how long a process that others started may take to answer; None: `patience_s`, but at least
            `MIN_ANSWER_S`.
        heartbeat_s: interval of the transport's heartbeats.
        memory: the folder for the state that clients keep between rounds; None: their processes keep it.
        wrap: replaces the function that creates the clients of this process; for tests with misbehaving clients.
        keys: the folder with the server's keys and the table of authorised keys; None: no encryption.
        evaluator: the process that evaluates and provides x₀. `own`: one that the server starts; `keys`: one whose key
            is authorised for it; `anybody`: the first one that asks, for tests in which all peers are trusted.
        devices: where networks and vectors lie; worker processes take them in turn (this process: `own_device`).
        other_device: whether a run that was begun on other devices goes on on these.
        own: names the files or folders of all clients' owners, for `partition: own`; "": other processes have them.
    """

    transport: str = "memory"
    workers: int = 0
    bind: str | None = None
    expect: int = 1
    patience_s: float = 60.0
    join_s: float = 300.0
    answer_s: float | None = None
    heartbeat_s: float = 2.0
    memory: Path | None = None
    wrap: Callable[[Recruit], Recruit] | None = None
    keys: Path | None = None
    evaluator: Literal["own", "keys", "anybody"] = "own"
    devices: tuple[str, ...] = ("cpu",)
    other_device: bool = False
    launcher: Launcher | None = None
    own: str = ""

    @property
    def answer_within_s(self) -> float:
        return max(self.patience_s, MIN_ANSWER_S) if self.answer_s is None else self.answer_s

    @property
    def own_device(self) -> str:
        """Where this process computes: on the processor, if a launcher starts workers on other machines."""
        return "cpu" if self.launcher is not None and self.launcher.reaches_nodes else self.devices[0]

    @property
    def used_devices(self) -> tuple[str, ...]:
        """Those of `devices` that a process of this run has."""
        return self.devices[: max(1, self.workers)]

    @property
    def is_here(self) -> bool:
        """True if the clients are in this process."""
        return not self.workers and self.bind is None

    @property
    def is_local(self) -> bool:
        """True if the clients are in processes of this machine that this one starts, or in this process."""
        return self.bind is None and not (self.launcher is not None and self.launcher.reaches_nodes)


def is_public(bind: str) -> bool:
    """Return whether processes on other machines may reach an endpoint."""
    if not bind.startswith("tcp://"):
        return False
    host = bind.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    return host not in ("localhost", "lo", "::1") and not host.startswith("127.")
