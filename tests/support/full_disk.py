"""Runs on a disk that is too small or turns read-only, and resumes each when there is room again.

This is a program. It mounts a file system in memory, which needs a user namespace:

    unshare -rm python full_disk.py FOLDER ROOMS

ROOMS is a JSON list of sizes in KiB. The program prints a JSON list: for each size the exit code (`code`), how many
rounds were kept (`rounds`) and what was written on stderr (`said`); the last entry is the disk that turns read-only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from crash_points import CrashTrial, forked, rounds_of
from worlds import HISO, lossy

from seedbus.agents.errors import AgentError
from seedbus.agents.journal.file import FILE
from seedbus.cli import main as cli
from seedbus.scenarios.schema.yaml_text import dump

SCENARIO: dict[str, Any] = {"algorithm": HISO, "stop": {"rounds": 12}}


def mount(point: Path, *options: str) -> None:
    subprocess.run(["mount", *options, "tmpfs", str(point)], check=True)


def run_command(stderr: Path, *arguments: object) -> tuple[int, str]:
    """Run the command in another process and return its exit code and its stderr. stderr: a file for it."""

    def work() -> None:
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = ["seedbus", *map(str, arguments), "-q"]
        try:
            cli.main()
        except SystemExit as end:
            os._exit(int(end.code or 0))

    return os.waitstatus_to_exitcode(forked(work)), stderr.read_text()


class Disk:
    """A small disk, mounted at a folder of its own."""

    def __init__(self, base: Path) -> None:
        self.trial = CrashTrial(base, lossy(**SCENARIO))
        self.point = base / "disk"
        self.stderr = base / "stderr"
        self.file = base / "what.yaml"
        self.folder = self.point / "run"
        self.file.write_text(dump(self.trial.what.resolved()), encoding="utf-8")
        self.point.mkdir()

    def fills_up(self, room: int) -> dict[str, Any]:
        """Run with `room` KiB, then enlarge the disk and finish the run."""
        mount(self.point, "-t", "tmpfs", "-o", f"size={room}k")
        self.folder.with_suffix(".heard").touch()
        code, stderr = run_command(self.stderr, "run", self.file, "--out", self.folder)
        result = {"room": room, "code": code, "said": stderr, "rounds": self.rounds_kept()}
        mount(self.point, "-o", "remount,size=64m")
        return self.finish(result)

    def turns_read_only(self) -> dict[str, Any]:
        """Kill a run, resume it while its disk is read-only, then make the disk writable and finish the run."""
        mount(self.point, "-t", "tmpfs", "-o", "size=64m")
        self.trial.run_once(self.folder, ("after Journal.append", 6))
        mount(self.point, "-o", "remount,ro")
        code, stderr = run_command(self.stderr, "run", "--resume", self.folder)
        mount(self.point, "-o", "remount,rw")
        return self.finish({"room": 0, "code": code, "said": stderr, "rounds": self.rounds_kept()})

    def rounds_kept(self) -> int:
        """How many rounds the journal holds; 0 if there was no room to create it or to open it."""
        count = 0
        with suppress(AgentError):
            count = len(rounds_of(self.folder)) if (self.folder / FILE).exists() else 0
        return count

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Check the journal, finish the run, check its end, and return the result with the failures."""
        before = len(self.trial.failures)
        with self.trial.recording_failures(self.folder, result["room"]):
            self.trial.check_kept(self.folder)
            assert self.trial.run_once(self.folder, None)
            self.trial.check_end(self.folder)
        subprocess.run(["umount", str(self.point)], check=True)
        return result | {"failures": self.trial.failures[before:]}


def main() -> None:
    disk = Disk(Path(sys.argv[1]))
    results = [disk.fills_up(room) for room in json.loads(sys.argv[2])]
    sys.stdout.write(json.dumps([*results, disk.turns_read_only()]))


if __name__ == "__main__":
    main()
