"""The table of transports. A new transport is a `TransportKind` and an entry in `_KINDS`."""

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
FOR_WORKERS = Ipc.name  # used for worker processes if the scenario's own transport cannot reach them
FOR_NODES = Tcp.name  # the same for those on other machines


def check(placement: Placement, clients: int) -> None:
    """Check that a run's clients can be placed as requested.

    Args:
        placement: where they should be.
        clients: number of clients.

    Raises:
        ScenarioError: the options contradict each other, or ask for more processes than clients.
        BadEndpoint: the server cannot bind to the endpoint.
    """
    if not (placement.is_here or TRANSPORTS[placement.transport].reaches_processes):
        accepted = " or ".join(kind.name for kind in _KINDS if kind.reaches_processes)
        raise ScenarioError(f"transport {placement.transport}", [f"it reaches no other process; expected {accepted}"])
    launcher = placement.launcher
    if launcher is not None and launcher.reaches_nodes and not TRANSPORTS[placement.transport].reaches_nodes:
        accepted = " or ".join(kind.name for kind in _KINDS if kind.reaches_nodes)
        problem = f"it reaches no other machine, as --launcher {launcher.launcher} needs; expected {accepted}"
        raise ScenarioError(f"transport {placement.transport}", [problem])
    count = max(placement.workers, placement.expect)
    if count > clients:
        from seedbus.bus.text import counted

        has = f"the run has {counted(clients, 'client')}"
        problem = f"{has}; expected {clients} at most, because each hosts one at least"
        raise ScenarioError(f"--workers {count}", [problem])
    if launcher is not None and placement.workers:
        launcher.check(placement.workers)
    if placement.bind is not None:
        check_bind(placement.bind)
    if placement.evaluator == "keys" and placement.keys is None:
        raise ScenarioError("--evaluator keys", ["there are no keys; expected --keys too, or --evaluator own"])


def connected(hosting: Hosting) -> AbstractContextManager[Connect]:
    """Return the context in which the transport of a run's placement connects its server and clients."""
    wrap = hosting.placement.wrap
    recruit = hosting.recruit
    if recruit is not None and wrap is not None:
        hosting = replace(hosting, recruit=wrap(recruit))
    return TRANSPORTS[hosting.placement.transport].connected(hosting)


def worker_transport(name: str, is_on_nodes: bool) -> str:
    """Return the transport of a run whose clients are in worker processes.

    Args:
        name: the scenario's own transport.
        is_on_nodes: whether the processes may be on other machines.
    """
    if is_on_nodes:
        return FOR_NODES
    return name if TRANSPORTS[name].reaches_processes else FOR_WORKERS
