"""The table of transports. A new one is a class like those here, and an entry."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.transports.contract import Connect, Hosting, TransportKind
from seedbus.scenarios.transports.memory import Memory
from seedbus.scenarios.transports.placement import Placement
from seedbus.scenarios.transports.zeromq import Inproc, Ipc, Tcp, check_bind

_KINDS: tuple[TransportKind, ...] = (Memory(), Inproc(), Ipc(), Tcp())
TRANSPORTS = {kind.name: kind for kind in _KINDS}
FOR_WORKERS = Ipc.name  # where worker processes are asked for, and the scenario's own transport reaches none


def check(placement: Placement, clients: int) -> None:
    """Raises `ScenarioError` or `BadEndpoint` if this number of clients cannot be placed so."""
    if not (placement.is_here or TRANSPORTS[placement.transport].reaches_processes):
        wanted = " or ".join(kind.name for kind in _KINDS if kind.reaches_processes)
        raise ScenarioError(f"transport {placement.transport}", [f"it reaches no other process; expected {wanted}"])
    for option, count in (("--workers", placement.workers), ("--expect-workers", placement.expect)):
        if count > clients:
            expected = f"the run has {clients} clients; expected {clients} at most, for each hosts one at least"
            raise ScenarioError(f"{option} {count}", [expected])
    if placement.bind is not None:
        check_bind(placement.bind)
    if placement.evaluator == "keys" and placement.keys is None:
        raise ScenarioError("--evaluator keys", ["there are no keys; expected --keys too, or --evaluator own"])


def connected(hosting: Hosting) -> AbstractContextManager[Connect]:
    """What connects a run's server with its clients, as its placement says."""
    wrap, recruit = hosting.placement.wrap, hosting.recruit
    if recruit is not None and wrap is not None:
        hosting = replace(hosting, recruit=wrap(recruit))
    return TRANSPORTS[hosting.placement.transport].connected(hosting)
