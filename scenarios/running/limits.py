"""Limits on what a process of clients does for a server that its user does not control.

The server's scenario is untrusted data. A scenario or an offer that asks for more than the user allows is refused
before anything is loaded: the user sees the error message, and the server receives only a code.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seedbus.bus import Offer
from seedbus.bus.errors import BadServer
from seedbus.bus.text import printable
from seedbus.bus.transport import count_of
from seedbus.models.data.roots import Roots, own_roots
from seedbus.models.errors import DataError, NotAllowed, is_out_of_memory
from seedbus.models.task import TASKS
from seedbus.models.text.published import PUBLISHED
from seedbus.scenarios.consent.terms import Accepted
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.seed_secret import read_secret, refuse_unshifted
from seedbus.scenarios.schema.amounts import byte_count
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.versions import minor_of, version

MAX_CLIENTS = 1_000_000
MIN_MEMORY = 2**30  # bytes; torch, transformers and compiled kernels take half of them
SCENARIO_BYTES = 2**18  # maximum size of the JSON: every second byte may be a mistake with a message of half a kilobyte
CLIENT_BYTES = 128  # minimum memory for one client
_RELEASE = "seedbus"  # the key of the minor version in an offered scenario
_MAX_PROBLEMS = 5  # mistakes in a server's scenario that are shown


@dataclass(frozen=True, slots=True)
class Limits:
    """What a user allows a server's scenario to ask for.

    Attributes:
        roots: the folders under which a scenario may name folders.
        tasks: names of allowed tasks; None: all.
        max_dimension: maximum number of coordinates; None: no limit.
        max_memory: maximum bytes of memory; None: the memory of this machine.
        max_clients: maximum number of clients that this process hosts.
        accepted: the terms that a scenario must have; None: any.
    """

    roots: Roots = field(default_factory=lambda: Roots(own_roots(), PUBLISHED))
    tasks: frozenset[str] | None = None
    max_dimension: int | None = None
    max_memory: int | None = None
    max_clients: int = MAX_CLIENTS
    accepted: Accepted | None = None

    def check_task(self, document: Any) -> None:
        """Check the task of a scenario that is not validated yet; missing or malformed fields are not reported here.

        Args:
            document: the decoded JSON.

        Raises:
            NotAllowed: the task is not one of `tasks`.
        """
        task = document.get("task") if isinstance(document, dict) else None
        name = task.get("name") if isinstance(task, dict) else None
        if self.tasks is not None and isinstance(name, str) and name in TASKS.all() and name not in self.tasks:
            raise NotAllowed("the task", name, f"{', '.join(sorted(self.tasks))} (--tasks)")

    def check(self, scenario: Scenario, offer: Offer) -> None:
        """Check a scenario's terms and its dimension, and the memory for the clients of an offer.

        Raises:
            NotAllowed: these are not the accepted terms, or one of the others is above its limit.
            DataError: a model that the task names is not on this machine.
        """
        if self.accepted is not None:
            self.accepted.check(scenario)
        dimension = scenario.task.dimension
        if self.max_dimension is not None and dimension > self.max_dimension:
            raise NotAllowed("a dimension of", f"{dimension:,}", f"at most {self.max_dimension:,} (--max-dimension)")
        needed = least_memory(scenario, count_of(offer.spans))
        limit = installed_memory() if self.max_memory is None else self.max_memory
        if needed > limit:
            raise NotAllowed("memory of at least", f"{needed:,} bytes", f"at most {limit:,} bytes (--max-memory)")


def least_memory(scenario: Scenario, clients: int) -> int:
    """Return a lower bound on the bytes of memory that a process with this many clients needs.

    The bound is calculated, not measured. It counts one replica (the algorithm's fields), or with `verify` one
    for each client that may be asked; the points of stacked losses; pretrained weights outside x, in 16 bits; and
    `CLIENT_BYTES` for each client of the run and of this process.

    Args:
        scenario: the run's scenario.
        clients: number of clients in this process.
    """
    dimension, participation = scenario.task.dimension, scenario.participation
    replicas = replicas_of(scenario, clients)
    frozen = max(0, scenario.task.pretrained_size() - dimension)
    weights = replica_bytes(scenario) * replicas + 4 * dimension * scenario.task.stacked_points + 2 * frozen
    return weights + CLIENT_BYTES * (clients + participation.clients)


def replicas_of(scenario: Scenario, clients: int) -> int:
    """Return how many replicas a process with so many clients has at least, at the end of the run."""
    participation = scenario.participation
    asked = (participation.cohort or participation.clients) * scenario.stop.most_rounds
    return max(1, min(clients, asked)) if scenario.verify else 1


def replica_bytes(scenario: Scenario) -> int:
    """Return the bytes of the fields of a replica."""
    fields = scenario.algorithm.replica(np.zeros(1, np.float32)).fields.values()
    return scenario.dimension * sum(field.itemsize for field in fields)


def installed_memory() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    """Return the most bytes that this process has had in memory.

    Linux says it of the program that runs; what `getrusage` says there is inherited from the process that started it.
    """
    with suppress(OSError, IndexError):
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def limit_memory(more: int) -> None:
    """Limit this process's data to the bytes that it has now and `more` bytes in addition.

    The limit is RLIMIT_DATA, which counts neither code nor mapped files, and works on Linux only. An allocation beyond
    it raises `MemoryError` or torch's own error; in ZeroMQ it ends the process.
    """
    with suppress(ValueError, OSError):  # other systems have no such file; a lower hard limit stays as it is
        status = Path("/proc/self/status").read_text()
        used = int(status.partition("VmData:")[2].split()[0]) * 1024
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (used + more, hard))


def bytes_of(text: str, option: str) -> int:
    """Return the bytes that a size in text stands for, such as 4GiB, 1500MB or 2000000000.

    Args:
        text: the value of the option.
        option: the option's name, for the message.

    Raises:
        ScenarioError: it is no size, or less than `MIN_MEMORY`.
    """
    size = byte_count(text)
    if size is None or size < MIN_MEMORY:
        raise ScenarioError(f"{option} {text}", ["expected bytes, like 4GiB or 1500MB; libraries alone need 1GiB"])
    return size


def gib(size: int) -> str:
    """Return bytes as text, in GiB."""
    return f"{size / 2**30:.2f} GiB"


def tasks_of(text: str) -> frozenset[str] | None:
    """Return the names in the value of --tasks, which commas separate; None if it is empty.

    Raises:
        ScenarioError: there is no such task.
    """
    if not text:
        return None
    names = frozenset(name.strip() for name in text.split(","))
    all_tasks = TASKS.all()
    for name in sorted(names - set(all_tasks)):
        raise ScenarioError(f"--tasks {text}", [f"there is no task {name}; there are {', '.join(all_tasks)}"])
    return names


def folders_of(folders: Sequence[Path]) -> list[Path]:
    """Return the directories of --data as absolute paths.

    Raises:
        ScenarioError: one is no directory, or its name holds the separator of paths.
    """
    for folder in folders:
        if os.pathsep in str(folder):
            raise ScenarioError(f"--data {folder}", [f"expected a directory without {os.pathsep} in its name"])
        if not os.path.isdir(folder):
            found = "it is no directory" if os.path.lexists(folder) else "it does not exist"
            raise ScenarioError(f"--data {folder}", [f"{found}; expected a directory"])
    return [folder.absolute() for folder in folders]


def offered_scenario(scenario: Scenario) -> bytes:
    """Return what an offer tells of a scenario, for `read_scenario`: its fields, and the server's minor version."""
    return json.dumps({_RELEASE: minor_of(version("seedbus"))} | scenario.resolved()).encode()


def read_scenario(offer: Offer, endpoint: str, limits: Limits | None) -> Scenario:
    """Return the scenario of an offer, checked against the limits of this process's user.

    Args:
        offer: the server's offer.
        endpoint: the server's, for messages.
        limits: the user's; None: the server is trusted, because it is this process's parent.

    Raises:
        ScenarioError: the scenario is malformed, or shifts seeds and this process has no secret; or the server is of
            another minor version.
        NotAllowed: it asks for more than the limits allow.
        BadServer: the offer names clients that the scenario does not have.
        DataError: a model that the task names is not on this machine.
    """
    source = f"the scenario of {endpoint}"
    if limits is not None and len(offer.scenario) > SCENARIO_BYTES:
        raise NotAllowed("a scenario of", f"{len(offer.scenario):,} bytes", f"at most {SCENARIO_BYTES:,}")
    document = _parse_json(offer.scenario, source)
    theirs, ours = document.pop(_RELEASE, None), version("seedbus")
    if theirs != minor_of(ours):
        its = f"version {printable(theirs, 20)}" if isinstance(theirs, str) else "a version before 0.2"
        raise ScenarioError(source, [f"its server is Seedbus of {its}, and this is {ours}; expected {minor_of(ours)}"])
    if limits is not None:
        limits.check_task(document)
    try:
        scenario = validate(document, source, roots=None if limits is None else limits.roots)
    except ScenarioError as error:
        omitted = len(error.problems) - _MAX_PROBLEMS
        more = [f"and {omitted} more"] if omitted > 0 else []
        problems = [printable(problem, 600) for problem in error.problems[:_MAX_PROBLEMS]]
        raise ScenarioError(source, [*problems, *more]) from None
    last = offer.spans[-1][1] if offer.spans else -1
    clients = scenario.participation.clients
    if last >= clients:
        raise BadServer(endpoint, f"it offers client {last}; its scenario has the clients 0 to {clients - 1}")
    if limits is not None:
        limits.check(scenario, offer)
    if scenario.seed_shift:
        read_secret()  # it is missed before data is loaded
    elif limits is not None:
        refuse_unshifted()
    return scenario


def farewell_code(error: BaseException) -> str:
    """Return the code, one of `packet.FAREWELLS`, that tells a server which error ends this process."""
    from seedbus.bus.zeromq.worker.serve import farewell_code as transport_farewell_code

    if isinstance(error, NotAllowed):
        return "limits"
    if isinstance(error, ScenarioError):
        return "scenario"
    if is_out_of_memory(error) or (isinstance(error, DataError) and is_out_of_memory(error.__cause__ or error)):
        return "memory"
    return "data" if isinstance(error, DataError) else transport_farewell_code(error)


def _parse_json(content: bytes, source: str) -> dict[str, Any]:
    """Return a JSON object without ambiguities: UTF-8, finite numbers, every key once. Raises `ScenarioError`."""
    try:
        document = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
        )
    except UnicodeDecodeError:
        raise ScenarioError(source, ["it is not UTF-8 text"]) from None
    except RecursionError:
        raise ScenarioError(source, ["it is nested too deeply"]) from None
    except ValueError as error:
        raise ScenarioError(source, [f"it is not JSON that can be used ({printable(str(error))})"]) from None
    if not isinstance(document, dict):
        raise ScenarioError(source, [f"it is {type(document).__name__}; expected a mapping of fields"])
    return document


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key is given twice")
    return fields


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return value
