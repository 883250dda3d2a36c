"""A worker process on a node of a cluster: what the node is sent, and the process that it starts from that.

A node may be another machine. So plug-ins travel as bytes with their digests, and are written to a temporary folder
that only the node's user may enter, and that the next worker there removes if this one is killed. The key travels apart
from all else, and goes to the process through a pipe.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import msgpack

from seedbus.agents.errors import NotStarted
from seedbus.bus.files import temporary_folder
from seedbus.discovery import PLUGINS, plugin_sources, source_digest
from seedbus.scenarios.launchers.launcher import Order, Surroundings
from seedbus.scenarios.launchers.local import COMMAND, LocalWorker

PLACES = ("SEEDBUS_DATA", "SEEDBUS_SEED_SECRET")  # variables that name files, which each node has itself
MAX_LINE = 500  # characters of a line of output; the rest is left out
READ_S = 1.0  # how long `read` waits for a line


@dataclass(frozen=True, slots=True)
class Parcel:
    """What a node needs to start a worker process, but for the key.

    Attributes:
        options: of `seedbus client`.
        plugins: for each plug-in its digest and its files.
        run: identifies the run, 16 hexadecimal digits.
        log: path of the run's log.
        memory: the folder for the state of clients; it is used only if the node sees this run's log at `log`.
        places: the values of `PLACES`, for a node that has none of its own.
    """

    options: list[str]
    plugins: list[tuple[str, dict[str, bytes]]]
    run: str
    log: str
    memory: str
    places: dict[str, str]

    @classmethod
    def of(cls, order: Order, run: Surroundings) -> Self:
        """Return the parcel of an order. Raises `NotStarted` if a plug-in has changed since it was loaded."""
        plugins = []
        for plugin in PLUGINS.values():
            if plugin.path:
                files = _sources(Path(plugin.path))
                if source_digest(files) != plugin.digest:
                    changed = f"--plugin {plugin.path}: it is not what this run has loaded any more"
                    raise NotStarted(f"{changed}; every closed round is kept")
                plugins.append((plugin.digest, files))
        memory = "" if run.memory is None else str(run.memory.absolute())
        places = {name: os.environ[name] for name in PLACES if os.environ.get(name)}
        return cls(order.options, plugins, run.run, str(run.log.absolute()), memory, places)

    def packed(self) -> bytes:
        """Return the parcel as bytes."""
        return bytes(msgpack.packb(asdict(self)))

    @classmethod
    def unpacked(cls, content: bytes) -> Self:
        """Return the parcel that `packed` has made bytes of."""
        return cls(**msgpack.unpackb(content, use_list=True))


class NodeProcess:
    """A worker process of this node, and its output.

    Attributes:
        sees_folder: whether this node sees the run's folder, so that what its clients remember outlives it.
    """

    def __init__(self, parcel: Parcel, secrets: bytes) -> None:
        """Start the process.

        Args:
            parcel: what to start.
            secrets: the line for its standard input.

        Raises:
            OSError: the plug-ins cannot be written, or the process cannot be started.
            ValueError: a plug-in is not the one that was sent.
        """
        self._folder = ExitStack()
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        try:
            options = [*parcel.options]
            folder = self._folder.enter_context(temporary_folder())
            for number, (digest, files) in enumerate(parcel.plugins):
                options += ["--plugin", str(_written(folder / str(number), digest, files))]
            self.sees_folder = bool(parcel.memory) and _is_log_of(Path(parcel.log), parcel.run)
            if self.sees_folder:
                options += ["--out", parcel.memory]
            environment = parcel.places | os.environ
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [*COMMAND, *options],
                env=environment,
                start_new_session=True,
                **pipes,  # type: ignore[call-overload]
            )
        except BaseException:
            self._folder.close()
            raise
        self._worker = LocalWorker(self._process, secrets)
        threading.Thread(target=self._collect, name="output", daemon=True).start()

    def read(self) -> tuple[list[str], int | None]:
        """Wait for lines of output, a second at most; return them, and the exit code once the process has ended."""
        lines: list[str] = []
        with suppress(queue.Empty):
            line = self._lines.get(timeout=READ_S)
            while line is not None:
                lines.append(line)
                line = self._lines.get_nowait()
            code = self._worker.wait().code
            self._folder.close()
            return lines, code
        return lines, None

    def end(self) -> None:
        """Close the pipe of the process, which ends it."""
        self._worker.end()

    def _collect(self) -> None:
        if self._process.stderr is not None:
            with self._process.stderr as output:
                while line := output.readline(4 * MAX_LINE):
                    self._lines.put(line.decode(errors="replace").rstrip()[:MAX_LINE])
        self._lines.put(None)


def _sources(place: Path) -> dict[str, bytes]:
    try:
        return plugin_sources(place)
    except OSError as error:
        raise NotStarted(f"--plugin {place}: it cannot be read ({error.strerror})") from None


def _written(folder: Path, digest: str, files: Mapping[str, bytes]) -> Path:
    """Write a plug-in into a folder and return its path there. Raises `OSError`, `ValueError`."""
    if source_digest(files) != digest:
        raise ValueError("a plug-in arrived with another digest than it was sent with")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(content)
    return folder / next(iter(files)).partition("/")[0]


def _is_log_of(log: Path, run: str) -> bool:
    """Return whether a run's log is at a path on this node."""
    try:
        with log.open("rb") as file:
            return run.encode() in file.readline(4096)
    except OSError:
        return False
