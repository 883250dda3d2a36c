"""Worker processes on the nodes of a Ray cluster, one for each actor.

Ray places the actors by CPUs and (fractions of) GPUs, and tells when one is lost with its node; the messages of the run
travel over ZeroMQ, encrypted. An actor's key is an argument of a method call, which Ray sends to the actor's process
alone; arguments of its constructor would be kept in Ray's tables.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.extras import require
from seedbus.scenarios.launchers.launcher import (
    Ended,
    Launcher,
    Order,
    Surroundings,
    Worker,
    cause,
    counted_resource,
    last_line,
    listed_nodes,
)
from seedbus.scenarios.launchers.node import NodeProcess, Parcel

CONNECT_S = 5.0  # how long a cluster's address may take to answer
PLACED_WITHIN_S = 10.0  # a worker that waits longer for a node says so
_VARIABLE = "RAY_ADDRESS"


class Ray(Launcher):
    """Actors of a Ray cluster that runs already; the run's own process is on one of its nodes."""

    launcher: Literal["ray"] = "ray"
    address: str = Field("auto", description="HOST:PORT of the cluster's head, or auto for the cluster of this machine")
    worker_cpus: float = Field(1.0, ge=0, description="CPUs of a worker")
    worker_gpus: float = Field(0.0, ge=0, description="GPUs of a worker; a fraction shares one")
    _is_connected: bool = PrivateAttr(False)

    def workers(self, clients: int) -> int:
        """Return how many workers the cluster has room for, at least one and not more than clients."""
        return max(1, min(clients, sum(map(self._room, self._nodes()))))

    def check(self, workers: int) -> None:
        room = sum(map(self._room, nodes := self._nodes()))
        if room < workers:
            self.close()
            needs = f"each needs {self._needs}, and the nodes have room for {room} ({_listed(nodes)})"
            less = "expected less for each, by --launch worker_cpus and worker_gpus"
            accepted = f"expected {room} at most" if room else less
            raise ScenarioError(f"--workers {workers}", [f"{needs}; {accepted}"])

    def host(self) -> str:
        """Return the IP address by which Ray knows this process's node."""
        ray = self._connected()
        own = ray.get_runtime_context().get_node_id()
        address = next(str(node["NodeManagerAddress"]) for node in ray.nodes() if node["NodeID"] == own)
        return f"[{address}]" if ":" in address else address

    def start(self, orders: Sequence[Order], run: Surroundings) -> list[Worker]:
        parcels = [Parcel.of(order, run).packed() for order in orders]
        ray = self._connected()
        kind = ray.remote(Berth).options(
            num_cpus=self.worker_cpus,
            num_gpus=self.worker_gpus,
            max_restarts=0,  # the run restarts workers itself, with new keys
            max_concurrency=2,  # `end` is called while `read` waits
            scheduling_strategy="SPREAD",
        )
        return [
            RayWorker(self, kind.remote(), order, parcel, run) for order, parcel in zip(orders, parcels, strict=True)
        ]

    def close(self) -> None:
        if self._is_connected:
            self._is_connected = False
            _ray().shutdown()

    def waiting(self) -> dict[str, str]:
        """Return what a worker waits for, and what the nodes have."""
        return {"needs": self._needs, "nodes": _listed(self._nodes())}

    @property
    def _needs(self) -> str:
        return f"{counted_resource(self.worker_cpus, 'CPU')} and {counted_resource(self.worker_gpus, 'GPU')}"

    def _room(self, resources: Mapping[str, float]) -> int:
        """Return how many workers a node has room for when nothing else is on it."""
        needs = {"CPU": self.worker_cpus, "GPU": self.worker_gpus}
        each = [int(resources.get(name, 0.0) / count + 1e-6) for name, count in needs.items() if count]
        return min(each, default=1024)

    def _nodes(self) -> list[Mapping[str, float]]:
        return [node["Resources"] for node in self._connected().nodes() if node["Alive"]]

    def _connected(self) -> Any:
        """Return the module `ray`, connected to the cluster. Raises `ScenarioError`."""
        ray = _ray()
        if not ray.is_initialized():
            self._check_address()
            _silence(ray)
            with _own_signals():
                try:
                    ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
                except (ConnectionError, RuntimeError, ValueError, OSError, AssertionError) as error:
                    raise self._no_cluster(str(error).strip().partition("\n")[0]) from None
            self._is_connected = True
        return ray

    def _check_address(self) -> None:
        """Find out now whether somebody listens at an address; Ray itself would try for long."""
        named, address = self._address()
        if address == "auto":
            return
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
            raise ScenarioError(f"{named}{address}", [f"it is no address of a cluster; {_EXPECTED}"])
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except OSError as error:
            raise self._no_cluster(error.strerror or str(error)) from None

    def _no_cluster(self, reason: str) -> ScenarioError:
        return ScenarioError("".join(self._address()), [f"there is no Ray cluster ({reason}); {_EXPECTED}"])

    def _address(self) -> tuple[str, str]:
        """Return what names the cluster's address, an option or the variable that Ray reads, and the address."""
        variable = os.environ.get(_VARIABLE, "")
        is_variable = self.address == "auto" and variable != ""
        return (f"{_VARIABLE} ", variable) if is_variable else ("--launch address=", self.address)


_EXPECTED = "expected HOST:PORT of a cluster of which this machine is a node, or auto after `ray start` here"


class Berth:
    """The actor: a worker process on its node."""

    def __init__(self) -> None:
        self._process: NodeProcess | None = None
        self._is_over = False

    def start(self, parcel: bytes, secrets: bytes) -> tuple[str, bool]:
        """Start the process; return the node's address, and whether the node sees the run's folder."""
        import ray

        self._process = NodeProcess(Parcel.unpacked(parcel), secrets)
        if self._is_over:
            self._process.end()
        return str(ray.util.get_node_ip_address()), self._process.sees_folder

    def read(self) -> tuple[list[str], int | None]:
        """See `NodeProcess.read`."""
        return ([], 0) if self._process is None else self._process.read()

    def end(self) -> None:
        """End the process."""
        self._is_over = True
        if self._process is not None:
            self._process.end()


class RayWorker:
    """A worker process in an actor, see `Worker`."""

    def __init__(self, launcher: Ray, actor: Any, order: Order, parcel: bytes, run: Surroundings) -> None:
        self._launcher = launcher
        self._actor = actor
        self._number = order.number
        self._run = run
        self._node = ""
        self._loses_state = False
        self._started = actor.start.remote(parcel, order.secrets)

    def wait(self) -> Ended:
        import ray

        try:
            self._await_node(ray)
            last, code = "", None
            while code is None:
                lines, code = ray.get(self._actor.read.remote())
                for last in lines:
                    self._run.note("output", number=self._number, node=self._node, line=last)
            return Ended(code, f"at {self._node}: {cause(code, last)}", is_final=bool(code) and self._loses_state)
        except ray.exceptions.RayTaskError as error:
            return Ended(1, f"at {self._node or 'a node'}: {error.cause}", is_final=True)
        except ray.exceptions.RayError as error:
            forgets = ", and with it the state of its clients" if self._loses_state else ""
            lost = f"its actor at {self._node} is lost{forgets}: {type(error).__name__}"
            why = lost if self._node else f"its actor could not be started: {last_line(error)}"
            return Ended(-signal.SIGKILL, why, is_final=self._loses_state)
        finally:
            self.kill()

    def end(self) -> None:
        self._actor.end.remote()

    def kill(self) -> None:
        import ray

        with suppress(Exception):  # it has ended already, or its node has
            ray.kill(self._actor)

    def _await_node(self, ray: Any) -> None:
        if not ray.wait([self._started], timeout=PLACED_WITHIN_S)[0]:
            self._run.note("waiting", number=self._number, **self._launcher.waiting())
        self._node, sees_folder = ray.get(self._started)
        self._run.note("placed", number=self._number, node=self._node)
        self._loses_state = self._run.keeps_state and not sees_folder
        if self._loses_state:
            self._run.note("apart", number=self._number, node=self._node, folder=str(self._run.log.parent))


def _ray() -> Any:
    require("--launcher ray", "ray")
    import ray

    return ray


def _silence(ray: Any) -> None:
    """Keep what Ray's nodes report of themselves off standard output, where a table or JSON is printed."""
    with suppress(AttributeError):  # it has no public switch, and another version may have another place
        ray._private.worker.print_to_stdstream = lambda data, ignore_prefix: None


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, which Ray would replace."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with suppress(ValueError):  # on a thread, where Ray does not replace it either
            signal.signal(signal.SIGTERM, before)


def _listed(nodes: Sequence[Mapping[str, float]]) -> str:
    return listed_nodes((node.get("CPU", 0), node.get("GPU", 0)) for node in nodes)
