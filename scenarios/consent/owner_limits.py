"""When a client takes part: the hours, the bytes a day and the command of its owner. Outside of them it is away.

The command is hers alone: it is split into words as a shell does and run without one, and nothing of a server is in it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from seedbus.bus.clock import local_time, wall_seconds
from seedbus.bus.files import PRIVATE, atomic_write, check_file, make_folder, read
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.amounts import byte_count

EVERY_S = 60.0  # from one run of the command to the next
TIMEOUT_S = 10.0  # after which a command that runs is ended, and counts as a no
KEEP_S = 5.0  # from one time that the bytes of the day are written to the next; a process that is killed loses these
TODAY = "bytes-today.json"
_MOST_KEPT = 1000  # bytes of that file
LEAST_BYTES = 100_000  # joining and the heartbeats of an hour take less


class OwnerLimits:
    """The limits of one process.

    Args:
        hours: when it takes part, as `22-6`: from ten in the evening until six in the morning, local time; "": always.
        bytes_a_day: how much it sends and receives on the wire in a day of local time, as `20MB`; "": any amount.
        command: while it ends with status 0; "": there is none.
        file: where the bytes of a day are kept, for a process that is started again; None: nowhere.

    Raises:
        ScenarioError: one of these cannot be read.
    """

    def __init__(self, hours: str = "", bytes_a_day: str = "", command: str = "", file: Path | None = None) -> None:
        self._hours = _hours(hours)
        self._most = _bytes(bytes_a_day)
        self._command = _Command(_words(command)) if command else None
        self._file = None if self._most is None else file
        self._day, self._bytes_today = (0, 0), 0
        self._counted = 0  # of the bytes of this process
        self._next_s = 0.0  # when the file is written next
        if self._file is not None:
            self._day, self._bytes_today = _kept(self._file)

    @property
    def forgets(self) -> bool:
        """Whether the bytes of a day are lost with this process."""
        return self._most is not None and self._file is None

    @property
    def are_any(self) -> bool:
        return self._hours is not None or self._most is not None or self._command is not None

    def why_away(self, wire_bytes: int) -> str:
        """Return why this process takes no part now; "": it does.

        Args:
            wire_bytes: what it has sent and received until now.
        """
        now = local_time()
        if (now.tm_year, now.tm_yday) != self._day:
            self._day, self._bytes_today = (now.tm_year, now.tm_yday), 0
        else:
            self._bytes_today += wire_bytes - self._counted
        has_more, self._counted = wire_bytes != self._counted, wire_bytes
        if has_more and wall_seconds() >= self._next_s:
            self._keep()
        if self._hours is not None and not _is_within(*self._hours, now.tm_hour):
            return "--hours {}-{}".format(*self._hours)
        if self._most is not None and self._bytes_today >= self._most:
            return f"--bytes-a-day: {self._bytes_today:,} bytes today"
        return "" if self._command is None else self._command.why_not()

    def close(self) -> None:
        """End the command, if it runs, and keep the bytes of the day."""
        self._keep()
        if self._command is not None:
            self._command.close()

    def _keep(self) -> None:
        if self._file is not None and self._counted:
            make_folder(self._file.parent, 0o700)
            with atomic_write(self._file, PRIVATE) as file:
                file.write(json.dumps({"day": self._day, "bytes": self._bytes_today}).encode())
            self._next_s = wall_seconds() + KEEP_S


@dataclass(slots=True)
class _Command:
    """A command that says whether a process takes part; asking waits for it the first time only.

    Attributes:
        words: the program and its arguments.
    """

    words: list[str]
    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _began_s: float = field(default=0.0, init=False)
    _said: str = field(default="", init=False)

    def why_not(self) -> str:
        now_s, is_first = wall_seconds(), not self._began_s
        if self._running is None and (is_first or now_s - self._began_s >= EVERY_S):
            self._begin(now_s)
        if self._running is not None:
            with suppress(subprocess.TimeoutExpired):
                self._running.wait(TIMEOUT_S if is_first else 0)
            self._look(self._running, wall_seconds())
        return self._said

    def _begin(self, now_s: float) -> None:
        self._began_s = now_s
        nowhere = subprocess.DEVNULL
        try:
            self._running = subprocess.Popen(
                self.words, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
            )
        except OSError as error:  # it was there, and is not any more
            self._said = f"--while: {error.strerror}"

    def _look(self, running: subprocess.Popen[bytes], now_s: float) -> None:
        status = running.poll()
        if status is not None:
            self._said = f"--while: its command ended with status {status}" if status else ""
            self._running = None
        elif now_s - self._began_s >= TIMEOUT_S:
            self.close()
            self._said = f"--while: its command took more than {TIMEOUT_S:g} s"

    def close(self) -> None:
        """End the command and what it has started, if it runs."""
        if self._running is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()
            self._running = None


def file_of_today(folder: Path | None, key: Path | None) -> Path | None:
    """Return where a process keeps the bytes of its day: in its folder, else beside its key, if that can be written."""
    if folder is not None:
        return folder / TODAY
    return key.with_name(f"{key.stem}-{TODAY}") if key is not None and os.access(key.parent, os.W_OK) else None


def _kept(file: Path) -> tuple[tuple[int, int], int]:
    """Return the day of a file, year and day of it, and its bytes. Raises `ScenarioError`."""
    try:
        if not check_file(file):
            return (0, 0), 0
        content = json.loads(read(file, _MOST_KEPT))
        (year, day), size = content["day"], content["bytes"]
        return (int(year), int(day)), int(size)
    except (OSError, ValueError, TypeError, KeyError) as error:
        what = f"the bytes of a day cannot be read ({error}); expected a file as this option writes it, or none"
        raise ScenarioError(f"--bytes-a-day, {file}", [what]) from None


def _is_within(first: int, end: int, hour: int) -> bool:
    return first <= hour < end if first < end else hour >= first or hour < end


def _hours(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,2})-([0-9]{1,2})", text)
    first, end = (int(found[1]), int(found[2])) if found else (0, 0)
    if not (first < 24 and 0 <= end <= 24 and first != end):
        expected = "expected two hours of a day, like 22-6, from ten in the evening until six in the morning"
        raise ScenarioError(f"--hours {text}", [expected])
    return first, end


def _bytes(text: str) -> int | None:
    if not text:
        return None
    size = byte_count(text)
    if size is None or size < LEAST_BYTES:
        expected = f"expected bytes, like 20MB, at least {LEAST_BYTES:,}: joining and heartbeats take some"
        raise ScenarioError(f"--bytes-a-day {text}", [expected])
    return size


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ScenarioError(f"--while {command}", [f"it has no end ({error}); expected a program and words"]) from None
    if not words or shutil.which(words[0]) is None:
        raise ScenarioError(f"--while {command}", ["there is no such program; expected one, and its words"])
    return words
