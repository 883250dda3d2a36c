"""The contract of a launcher: how worker processes are started somewhere, and what becomes of them.

A launcher is one file of this folder with a class that extends `Launcher`; its fields are its options. It only starts
processes and says how they ended. `worker_processes.py` restarts them and ends them, for all launchers alike, and the
messages travel over ZeroMQ whoever started the process.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from seedbus.bus.transport import Rights, Span
from seedbus.settings import Settings

EXPLAINED_BELOW = 20  # a worker that ends with a lower exit code has printed the reason itself
MAX_KINDS = 8  # of nodes that a sentence names

Note = Callable[..., None]
"""Is told of an event, and facts about it by name, for the run's log; any thread may call it."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker process hosts.

    Attributes:
        spans: its clients.
        evaluates: whether it hosts the evaluator too.
        own: names the files or folders of all clients' owners; "": the scenario's data is common.
    """

    spans: tuple[Span, ...]
    evaluates: bool
    own: str = ""

    @property
    def options(self) -> list[str]:
        """The options of `seedbus client` that ask for it."""
        clients = ",".join(f"{first}-{last}" for first, last in self.spans) or "none"
        owned = ["--own", os.path.abspath(self.own)] if self.own else []
        return ["--clients", clients, *(["--evaluator"] if self.evaluates else []), *owned]

    @property
    def rights(self) -> Rights:
        """What the process may ask for: this, and nothing else."""
        return Rights(self.spans, self.evaluates, is_own=True)


@dataclass(frozen=True, slots=True)
class Order:
    """A worker process that is to be started.

    Attributes:
        number: the worker's, from 0.
        options: of `seedbus client`, but for plug-ins and --out.
        secrets: the line for its standard input, which holds its key.
    """

    number: int
    options: list[str]
    secrets: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a launcher needs to know of a run.

    Attributes:
        run: identifies the run, 16 hexadecimal digits.
        log: the run's log, in the run's folder, by which a process on another machine knows that folder.
        memory: the folder for the state that clients keep between rounds; None: their processes keep it.
        keeps_state: whether the algorithm's clients may have such a state.
        note: is told of what happens to workers.
    """

    run: str
    log: Path
    memory: Path | None
    keeps_state: bool
    note: Note


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker process ended.

    Attributes:
        code: its exit code, minus the number of the signal that killed it, or -9 if its machine is lost.
        why: what is known of the reason; "": nothing more than the code.
        is_final: whether no other may take its place.
    """

    code: int
    why: str = ""
    is_final: bool = False


class Worker(Protocol):
    """A worker process that was started."""

    def wait(self) -> Ended:
        """Wait until the process has ended. Raises `NotStarted` if its machine will never be free for it."""
        ...

    def end(self) -> None:
        """Ask the process to end, without waiting for it."""
        ...

    def kill(self) -> None:
        """End the process at once; without effect if it has ended."""
        ...


class Launcher(Settings, ABC):
    """A way to start worker processes; see the module's docstring. Its name is the default of the field `launcher`.

    Attributes:
        reaches_nodes: whether processes may be on other machines, so that the server listens for them with keys.
        grace_s: how long processes may take to end by themselves when the run is over.
    """

    reaches_nodes: ClassVar[bool] = True
    grace_s: ClassVar[float] = 3.0

    launcher: str

    def workers(self, clients: int) -> int:
        """Return how many processes to start if the user does not say. Raises `ScenarioError`."""
        return 1

    def check(self, workers: int) -> None:
        """Check that so many processes can be started. Raises `ScenarioError`; nothing of the run exists yet."""

    def host(self) -> str:
        """Return the host, a name or an IP address, at which the server listens for its workers."""
        return "127.0.0.1"

    @abstractmethod
    def start(self, orders: Sequence[Order], run: Surroundings) -> list[Worker]:
        """Start processes, one for each order, without waiting for them.

        Raises:
            NotStarted: one cannot be started. Those that were started have been ended.
        """

    def close(self) -> None:
        """Release what `check` and `start` have taken, once all processes have ended."""

    @classmethod
    def end_left(cls, folder: Path, run: str, note: Note) -> None:
        """End what an earlier process of a run has left if it was killed, before the run goes on.

        Args:
            folder: the run's.
            run: identifies the run, 16 hexadecimal digits.
            note: is told what was ended, and what the user must end.
        """


def cause(code: int, last: str) -> str:
    """Return why a process ended.

    Args:
        code: its exit code, or minus the number of the signal that killed it.
        last: the last line that it printed, which tells the reason only if it ended by itself.
    """
    if code < 0:
        return f"killed by {signal.Signals(-code).name if -code in list(signal.Signals) else f'signal {-code}'}"
    return last if last and code < EXPLAINED_BELOW else f"exit code {code}"


def counted_resource(count: float, noun: str) -> str:
    """Return a number of CPUs or GPUs, or of what has them, as text."""
    return f"{count:g} {noun}{'s' * (count != 1)}" if count else f"no {noun}"


def listed_nodes(nodes: Iterable[tuple[float, float]]) -> str:
    """Return what nodes have, CPUs and GPUs, as text; those that have the same are named once."""
    kinds = Counter((counted_resource(cpus, "CPU"), counted_resource(gpus, "GPU")) for cpus, gpus in nodes)
    named = [
        f"{counted_resource(count, 'node')} with {cpus} and {gpus}"
        for (cpus, gpus), count in kinds.most_common(MAX_KINDS)
    ]
    return ", ".join([*named, *["…"] * (len(kinds) > MAX_KINDS)]) or "there are none"


def last_line(error: Exception) -> str:
    """Return the last line of what a cluster's error says, which tells most."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
