"""Runs on a disk that is too small, or that turns read-only, until there is room again; a program of its own.

It mounts a file system in memory, so it runs where it may: `unshare -rm python full_disk.py FOLDER ROOMS`, where ROOMS
is a JSON list of sizes in KiB. It answers with a JSON list: for each size the exit code, how many rounds were kept, and
what was written on stderr; the last entry is that of the disk that is read-only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from crash_points import Trial, forked, rounds_of
from worlds import HISO, lossy

from seedbus.agents.errors import AgentError
from seedbus.agents.journal.file import FILE
from seedbus.scenarios.cli import main as cli
from seedbus.scenarios.schema.yaml_text import dump

SCENARIO: dict[str, Any] = {"algorithm": HISO, "stop": {"rounds": 12}}


def mount(point: Path, *options: str) -> None:
    subprocess.run(["mount", *options, "tmpfs", str(point)], check=True)


def told(into: Path, *arguments: object) -> tuple[int, str]:
    """The command in another process: its exit code, and what it writes on stderr."""

    def work() -> None:
        os.dup2(os.open(into, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = ["seedbus", *map(str, arguments), "-q"]
        try:
            cli.main()
        except SystemExit as end:
            os._exit(int(end.code or 0))

    return os.waitstatus_to_exitcode(forked(work)), into.read_text()


class Disk:
    """A small disk, mounted at a folder of its own."""

    def __init__(self, base: Path) -> None:
        self.trial = Trial(base, lossy(**SCENARIO))
        self.point, self.stderr, self.file = base / "disk", base / "stderr", base / "what.yaml"
        self.folder = self.point / "run"
        self.file.write_text(dump(self.trial.what.resolved()), encoding="utf-8")
        self.point.mkdir()

    def fills_up(self, room: int) -> dict[str, Any]:
        """A run with so many KiB, and what it takes to end it once there are enough."""
        mount(self.point, "-t", "tmpfs", "-o", f"size={room}k")
        self.folder.with_suffix(".heard").touch()
        code, said = told(self.stderr, "run", self.file, "--out", self.folder)
        found = {"room": room, "code": code, "said": said, "rounds": self.kept()}
        mount(self.point, "-o", "remount,size=64m")
        return self.ended(found)

    def turns_read_only(self) -> dict[str, Any]:
        """A run that is killed, and cannot be written where it is."""
        mount(self.point, "-t", "tmpfs", "-o", "size=64m")
        self.trial.life(self.folder, ("after Journal.append", 6))
        mount(self.point, "-o", "remount,ro")
        code, said = told(self.stderr, "run", "--resume", self.folder)
        mount(self.point, "-o", "remount,rw")
        return self.ended({"room": 0, "code": code, "said": said, "rounds": self.kept()})

    def kept(self) -> int:
        kept = 0
        with suppress(AgentError):  # there is no room for a journal, or none to read it with
            kept = len(rounds_of(self.folder)) if (self.folder / FILE).exists() else 0
        return kept

    def ended(self, found: dict[str, Any]) -> dict[str, Any]:
        before = len(self.trial.failures)
        with self.trial.told(self.folder, found["room"]):
            self.trial.check_kept(self.folder)
            assert self.trial.life(self.folder, None)
            self.trial.check_end(self.folder)
        subprocess.run(["umount", str(self.point)], check=True)
        return found | {"failures": self.trial.failures[before:]}


def main() -> None:
    disk = Disk(Path(sys.argv[1]))
    found = [disk.fills_up(room) for room in json.loads(sys.argv[2])]
    sys.stdout.write(json.dumps([*found, disk.turns_read_only()]))


if __name__ == "__main__":
    main()
