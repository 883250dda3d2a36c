"""Messages over ZeroMQ: within a process, between processes of one machine, and between machines.

Heavy modules are imported when a run needs them, because `--help` reads the table of transports too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from seedbus.scenarios.transports.contract import Connect, Hosting
from seedbus.scenarios.transports.placement import Placement

if TYPE_CHECKING:
    from seedbus.bus import Registration, Transport
    from seedbus.bus.zeromq import Hub
    from seedbus.scenarios.launchers.launcher import Share
    from seedbus.scenarios.launchers.worker_processes import WorkerProcesses
    from seedbus.scenarios.transports.access import Access
    from seedbus.scenarios.transports.hosted_thread import HostedThread

    Hosts = HostedThread | WorkerProcesses

FILES_PER_CONNECTION = 2  # file descriptors of a connection
MAX_FOLDER_BYTES = 80  # a socket's path has 107 bytes at most, and clusters have long names for temporary folders


class ZeroMQ:
    """The common base of the ZeroMQ transports; see `TransportKind`.

    Attributes:
        endpoint: where a server binds if `bind` is not set; None: in a folder that only this user may enter.
        is_encrypted: whether the run makes keys of its own, because other users of this machine can connect there.
    """

    name = ""
    summary = ""
    reaches_processes = True
    reaches_nodes = False
    endpoint: str | None = None
    is_encrypted = False

    @contextmanager
    def connected(self, hosting: Hosting) -> Iterator[Connect]:
        import zmq

        from seedbus.bus.zeromq.sockets import allow_files, check_files

        placement = hosting.placement
        check_files(max(placement.workers, placement.expect), each=FILES_PER_CONNECTION)
        if placement.bind is not None:
            allow_files(
                hosting.spec.participation.clients * FILES_PER_CONNECTION
            )  # each client may have a socket of its own
        with ExitStack() as stack:
            own = stack.enter_context(_private_endpoint()) if self._needs_private_endpoint(placement) else ""
            context = stack.enter_context(zmq.Context())
            context.max_sockets = 65_535
            access = stack.enter_context(closing(self._access(placement, own, context)))
            with closing(_Connector(hosting, access, context)) as connector:
                yield connector.connect

    def _needs_private_endpoint(self, placement: Placement) -> bool:
        if placement.bind is None:
            return self.endpoint is None
        return placement.evaluator != "anybody"

    def _access(self, placement: Placement, own: str, context: Any) -> Access:
        from seedbus.scenarios.transports.access import Access

        if placement.bind is not None:
            trusts_all = placement.evaluator == "anybody"
            return Access.for_clients(context, placement.bind, own, keys=placement.keys, trusts_all=trusts_all)
        endpoint = self.endpoint or own
        if placement.launcher is not None and placement.launcher.reaches_nodes:
            endpoint = f"tcp://{placement.launcher.host()}:*"
        return Access.for_workers(context, endpoint, own, is_encrypted=self.is_encrypted)


class Inproc(ZeroMQ):
    name = "inproc"
    summary = "ZeroMQ between threads of one process"
    reaches_processes = False
    endpoint = "inproc://seedbus"


class Ipc(ZeroMQ):
    name = "ipc"
    summary = "ZeroMQ over a socket in a private folder"


class Tcp(ZeroMQ):
    name = "tcp"
    summary = "ZeroMQ over TCP, encrypted"
    reaches_nodes = True
    endpoint = "tcp://127.0.0.1:*"
    is_encrypted = True


def check_bind(endpoint: str) -> None:
    """Raise `BadEndpoint` if a server cannot bind to an endpoint."""
    from seedbus.bus.zeromq import sockets

    sockets.check_bind(endpoint)


class _Connector:
    """Creates the server's end of the transport, and the thread or processes that host clients."""

    def __init__(self, hosting: Hosting, access: Access, context: Any) -> None:
        from seedbus.scenarios.transports.patience import Patience

        self._hosting = hosting
        self._access = access
        self._context = context
        self._patience = Patience(hosting.placement)
        self._hub: Hub | None = None
        self._hosts: Hosts | None = None

    def connect(self, run: bytes) -> Transport:
        """Bind the server's socket and start the hosts; see `Connect`."""
        from seedbus.bus.zeromq import Entrance, Hub, Limits

        hosting, access, placement = self._hosting, self._access, self._hosting.placement
        self._hub = hub = Hub(
            Entrance(access.endpoint, access.own, access.keys, access.rights),
            run,
            limits=Limits(
                placement.heartbeat_s,
                join_s=placement.join_s,
                answer_s=placement.answer_within_s,
                # so that another process can still take them before the run ends, and an owner's new key soon
                kept_s=min(placement.patience_s / 2, placement.join_s),
            ),
            redelivers=hosting.spec.is_virtual,
            report_limit=hosting.spec.report_limit,
            context=self._context,
            on_tick=self._on_tick,
            offers=hosting.spec.participation.clients,  # each client may have a socket of its own
        )
        hosting.observer.noted(
            "listening", endpoint=hub.endpoint, who=_how_clients_join(placement, hub.endpoint, access)
        )
        # with `bind`, the server's own processes use the private address
        self._start_hosts(hub.endpoint if placement.bind is None else access.own, run)
        return hub

    def _start_hosts(self, endpoint: str, run: bytes) -> None:
        hosting, placement = self._hosting, self._hosting.placement
        shares = _shares(placement, hosting.spec.participation.clients)
        if shares:
            from seedbus.scenarios.launchers.launcher import Surroundings
            from seedbus.scenarios.launchers.local import Local
            from seedbus.scenarios.launchers.worker_processes import WorkerProcesses

            memory = placement.memory if placement.workers else None
            self._hosts = processes = WorkerProcesses(
                placement.launcher or Local(),
                shares,
                endpoint,
                hosting.observer,
                self._access.workers,
                lambda note: Surroundings(run.hex(), hosting.log, memory, hosting.keeps_state, note),
                patience_s=placement.patience_s,
                devices=placement.devices,
            )
            processes.start()
        elif hosting.recruit is not None:
            from seedbus.scenarios.transports.hosted_thread import HostedThread

            self._hosts = HostedThread(endpoint, hosting.recruit, self._context, self._access.workers.issue(None))

    def _on_tick(self, registration: Registration) -> None:
        self._access.report(registration)
        if self._hosts is not None:
            self._hosts.check(registration)
        self._patience.check(registration, 0 if self._hub is None else self._hub.stalls)

    def close(self) -> None:
        if self._hosts is not None:
            self._hosts.close()
        if self._hub is not None:
            self._hub.end()  # without effect unless the run failed before it began


@contextmanager
def _private_endpoint() -> Iterator[str]:
    """An ipc endpoint in a new folder that only this user may enter."""
    is_short = len(os.fsencode(tempfile.gettempdir())) <= MAX_FOLDER_BYTES
    from seedbus.bus.files import temporary_folder  # with the bus comes NumPy, which --help needs not load

    with temporary_folder(None if is_short else "/tmp") as folder:
        yield f"ipc://{folder}/own"


def _shares(placement: Placement, clients: int) -> list[Share]:
    """Return what each process that the server starts hosts; the first one evaluates."""
    from seedbus.scenarios.launchers.launcher import Share

    if placement.bind is not None:
        return [Share((), evaluates=True)] if placement.evaluator == "own" else []
    workers = placement.workers
    bounds = [number * clients // workers for number in range(workers + 1)] if workers else []
    own = placement.own
    return [Share(((first, end - 1),), evaluates=first == 0, own=own) for first, end in pairwise(bounds)]


def _how_clients_join(placement: Placement, endpoint: str, access: Access) -> str:
    if placement.bind is None:
        if not placement.workers:
            return "the clients are in this process"
        return "1 worker is starting" if placement.workers == 1 else f"{placement.workers} workers are starting"
    command = f"seedbus client --connect {endpoint.replace('0.0.0.0', 'THIS-HOST')}"
    if access.keys is not None:
        command += f" --server-key '{access.keys.public.decode()}'"
    evaluator = " and one with `--evaluator`" if placement.evaluator == "keys" else ""
    return f"clients join by `{command}`, and a new run begins when all{evaluator} have"
