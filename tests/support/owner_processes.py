"""A server and its owners as processes of the command."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hidden_folders import free_port
from owners import own_scenario, own_tables
from processes import HANGS_S, kill, logged, seedbus, wait_for

from seedbus.bus.zeromq.keys import SECRET, TABLE, Entry, KeyPair, write_table
from seedbus.scenarios.schema.yaml_text import dump


class Federation:
    """A server and its owners, each a process, whose standard error goes to a file.

    Args:
        folder: where all is.
        places: the owners' files or folders; none: tables of three.
        fields: what is not as in `own_scenario`.
    """

    def __init__(self, folder: Path, places: Sequence[Path] = (), **fields: Any) -> None:
        self.folder = folder
        self.places = places or own_tables(folder / "owners")
        self.port = free_port()
        self.processes: list[subprocess.Popen[str]] = []
        self.fields = fields
        self.pairs = {name: KeyPair.new() for name in ("server", "owner0", "owner1", "owner2")}
        for name, pair in self.pairs.items():
            pair.save(folder / "keys", name)
        own = [Entry(f"owner{n}", self.pairs[f"owner{n}"].public, ((n, n),), evaluator=False) for n in range(3)]
        write_table(folder / "keys" / TABLE, own)

    def start(self, name: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        with (self.folder / f"{name}.txt").open("w") as said:
            process: subprocess.Popen[str] = seedbus(*arguments, cwd=self.folder, stderr=said, **options)
        self.processes.append(process)
        return process

    def server(self, *more: object, name: str = "run", is_locked: bool = False, **fields: Any) -> subprocess.Popen[str]:
        (self.folder / f"{name}.yaml").write_text(dump(own_scenario(**(self.fields | fields))))
        keys = ("--keys", "keys") if is_locked else ()
        to = ("--bind", f"tcp://127.0.0.1:{self.port}", "--out", name, "--patience", HANGS_S)
        return self.start(f"server-{name}", "server", f"{name}.yaml", *to, *keys, *more)

    def owner(
        self, number: int, *more: object, at: str = "", name: str = "", is_locked: bool = False, **options: Any
    ) -> subprocess.Popen[str]:
        own = ("--clients", f"{number}-{number}", "--own", self.places[number])
        server = self.pairs["server"].public.decode()
        keys = ("--server-key", server, "--key", f"keys/owner{number}{SECRET}") if is_locked else ()
        to = ("--connect", at or f"tcp://127.0.0.1:{self.port}", "--patience", HANGS_S)
        return self.start(name or f"owner{number}", "client", *to, *own, *keys, *more, **options)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def rounds(self, name: str = "run") -> int:
        return logged(self.folder / name)

    def goes_on(self, name: str = "run", rounds: int = 3) -> None:
        until = self.rounds(name) + rounds
        wait_for(lambda: self.rounds(name) >= until)

    def ends(self, *processes: subprocess.Popen[str]) -> list[int]:
        for process in processes:
            process.communicate(timeout=HANGS_S)
        return [process.returncode for process in processes]

    def digest(self, name: str = "run") -> str:
        found: str = json.loads((self.folder / name / "results.json").read_text())["digest"]
        return found

    def rehearsed(self, pattern: str = "owners/*/*.csv", *more: object) -> str:
        """Return the digest of a rehearsal of the run."""
        alone = self.start("alone", "run", "run.yaml", "--own", pattern, "--out", "alone", *more)
        assert self.ends(alone) == [0], self.said("alone")
        return self.digest("alone")


@contextmanager
def federation(folder: Path, places: Sequence[Path] = (), **fields: Any) -> Iterator[Federation]:
    """Yield a federation, whose processes are killed at the end."""
    here = Federation(folder, places, **fields)
    try:
        yield here
    finally:
        for process in here.processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    kill(process.pid, signal.SIGKILL)
            process.communicate()
