"""What a process of clients does for a server that its user does not control, and what not.

The server's scenario is read as data that anybody may have written. A scenario or an offer that asks for more than the
user allows is refused before anything is loaded: the user gets the sentence, the server a code.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
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
from seedbus.models.task import tasks
from seedbus.models.text.weights import PUBLISHED
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario

CLIENTS = 1_000_000
LEAST_MEMORY = 2**30  # torch, transformers and compiled kernels take half of it
SCENARIO_BYTES = 2**18  # of JSON: every second byte may be a mistake that takes half a kilobyte to name
CLIENT_BYTES = 128  # that a client takes at least
_PROBLEMS = 5  # of a server's scenario that are shown
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a user allows. roots: where a scenario may name folders; max_memory: in bytes; None: no limit of its own."""

    roots: Roots = field(default_factory=lambda: Roots(own_roots(), PUBLISHED))
    tasks: frozenset[str] | None = None
    max_dimension: int | None = None
    max_memory: int | None = None
    max_clients: int = CLIENTS

    def check_task(self, document: Any) -> None:
        """Raises `NotAllowed`. document: a scenario as it came; what it lacks is not said here."""
        task = document.get("task") if isinstance(document, dict) else None
        name = task.get("name") if isinstance(task, dict) else None
        if self.tasks is not None and isinstance(name, str) and name in tasks() and name not in self.tasks:
            raise NotAllowed("the task", name, f"{', '.join(sorted(self.tasks))} (--tasks)")

    def check(self, scenario: Scenario, offer: Offer) -> None:
        """Raises `NotAllowed`, and `DataError` where a model that the task names is not on this machine."""
        dimension = scenario.task.dimension
        if self.max_dimension is not None and dimension > self.max_dimension:
            raise NotAllowed("a dimension of", f"{dimension:,}", f"at most {self.max_dimension:,} (--max-dimension)")
        needed = least_memory(scenario, count_of(offer.spans))
        most = installed_memory() if self.max_memory is None else self.max_memory
        if needed > most:
            raise NotAllowed("memory of at least", f"{needed:,} bytes", f"at most {most:,} bytes (--max-memory)")


def least_memory(scenario: Scenario, clients: int) -> int:
    """Bytes that a process with so many clients of this scenario takes at least, counted and not measured.

    One replica (float32 fields of the algorithm), or with `verify` one for each client that may be asked; pretrained
    weights beside x, in 16 bits; and what each client of the run and of this process takes.
    """
    dimension, participation = scenario.task.dimension, scenario.participation
    fields = len(scenario.algorithm.replica(np.zeros(1, np.float32)).fields)
    asked = (participation.cohort or participation.clients) * scenario.stop.rounds
    replicas = max(1, min(clients, asked)) if scenario.verify else 1
    frozen = max(0, scenario.task.stored() - dimension)
    return 4 * dimension * fields * replicas + 2 * frozen + CLIENT_BYTES * (clients + participation.clients)


def installed_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def hold_to(most: int) -> None:
    """Let the system refuse this process more bytes of data than it has now and `most` beside.

    On Linux alone, by RLIMIT_DATA: neither code nor mapped files count. What is refused is a `MemoryError` or torch's
    own; ZeroMQ ends the process.
    """
    with suppress(ValueError, OSError):  # no such file elsewhere; and a hard limit that is lower holds already
        status = Path("/proc/self/status").read_text()
        used = int(status.partition("VmData:")[2].split()[0]) * 1024
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (used + most, hard))


def bytes_of(text: str, option: str) -> int:
    """What --max-memory says: 4GiB, 500MB, 1000000. Raises `ScenarioError`."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?([kMGT]i?|)B?", text.replace("K", "k"))
    unit = "" if found is None else found[2].replace("ki", "Ki")
    if found is None or (most := int(float(found[1]) * _UNITS[unit])) < LEAST_MEMORY:
        raise ScenarioError(f"{option} {text}", ["expected bytes, like 4GiB or 1500MB; libraries alone need 1GiB"])
    return most


def tasks_of(text: str) -> frozenset[str] | None:
    """What --tasks says: names, separated by commas. Raises `ScenarioError`."""
    if not text:
        return None
    names, known = frozenset(name.strip() for name in text.split(",")), tasks()
    for name in sorted(names - set(known)):
        raise ScenarioError(f"--tasks {text}", [f"there is no task {name}; there are {', '.join(known)}"])
    return names


def folders_of(named: Sequence[Path]) -> list[Path]:
    """What --data says: directories, made absolute. Raises `ScenarioError`."""
    for folder in named:
        if not os.path.isdir(folder) or os.pathsep in str(folder):
            raise ScenarioError(f"--data {folder}", [f"expected a directory, without {os.pathsep} in its name"])
    return [folder.absolute() for folder in named]


# -- what a server sends


def read_scenario(offer: Offer, endpoint: str, limits: Limits | None) -> Scenario:
    """The scenario of an offer. limits: of this process's user; None: the server is trusted, as a parent process is.

    Raises `ScenarioError`, `NotAllowed`, `BadServer`, `DataError`.
    """
    source = f"the scenario of {endpoint}"
    if limits is not None and len(offer.scenario) > SCENARIO_BYTES:
        raise NotAllowed("a scenario of", f"{len(offer.scenario):,} bytes", f"at most {SCENARIO_BYTES:,}")
    document = _plain(offer.scenario, source)
    if limits is not None:
        limits.check_task(document)
    try:
        scenario = validate(document, source, roots=None if limits is None else limits.roots)
    except ScenarioError as error:
        more = [f"and {len(error.problems) - _PROBLEMS} more"] if len(error.problems) > _PROBLEMS else []
        problems = [printable(problem, 600) for problem in error.problems[:_PROBLEMS]]
        raise ScenarioError(source, [*problems, *more]) from None
    last, clients = offer.spans[-1][1] if offer.spans else -1, scenario.participation.clients
    if last >= clients:
        raise BadServer(endpoint, f"it offers client {last}; its scenario has the clients 0 to {clients - 1}")
    if limits is not None:
        limits.check(scenario, offer)
    return scenario


def farewell_code(error: BaseException) -> str:
    """What a server is told of an error that ends this process: one of `packet.FAREWELLS`."""
    from seedbus.bus.zeromq.worker.serve import farewell_code as of_the_bus

    if isinstance(error, NotAllowed):
        return "limits"
    if isinstance(error, ScenarioError):
        return "scenario"
    if is_out_of_memory(error) or (isinstance(error, DataError) and is_out_of_memory(error.__cause__ or error)):
        return "memory"
    return "data" if isinstance(error, DataError) else of_the_bus(error)


def _plain(content: bytes, source: str) -> dict[str, Any]:
    """JSON of which nothing has two meanings: UTF-8, finite numbers, every key once. Raises `ScenarioError`."""
    try:
        document = json.loads(
            content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite
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


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return value
