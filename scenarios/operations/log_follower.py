"""Follows a run's log: which processes are there, and the newest rounds and measurements.

The log may be somebody else's: a line that is no JSON object, or has other types than ours, is passed over.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

from seedbus.bus.files import check_file, descriptor
from seedbus.scenarios.running.recording import LOG, MAX_LINE_BYTES

CHUNK = 2**20  # bytes that are read at a time
KEPT = 2000  # rounds that rates are taken from
WINDOW_S = 10.0  # seconds that rates are taken from
_EVENTS = [f'"event": "{event}"'.encode() for event in ("round", "metrics", "joined", "gone", "opened")]


class LogFollower:
    """What the log of a run says, up to where it was read.

    Attributes:
        hosts: host → its clients in words, of the processes that joined and are not gone.
        missing: number of clients without a process, since a process joined or was gone.
        rounds: the newest rounds, as events.
        line: the newest measurement; {}: none.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._offset = 0
        self._rest = b""
        self.hosts: dict[int, str] = {}
        self.missing = 0
        self.rounds: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.line: dict[str, Any] = {}

    def read(self) -> None:
        """Read what was added since the last call. Raises `OSError` if something other than a file is there."""
        if not check_file(self._path):
            return
        log = descriptor(self._path, os.O_RDONLY)
        try:
            if os.fstat(log).st_size < self._offset:  # it was moved away, and begins anew
                self._offset, self._rest = 0, b""
            while chunk := os.pread(log, CHUNK, self._offset):
                self._offset += len(chunk)
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                self._rest = self._rest[-MAX_LINE_BYTES:]
                for line in lines:
                    self._heard(line)
        finally:
            os.close(log)

    @property
    def rates(self) -> tuple[float, float]:
        """Rounds and bytes in a second, over the last `WINDOW_S` seconds in which rounds were closed."""
        last = self.rounds[-1] if self.rounds else {}
        for first in self.rounds:
            seconds = _seconds(last) - _seconds(first)
            if 0 < seconds <= WINDOW_S:
                counts = (number(last, name) - number(first, name) for name in ("round", "bytes"))
                rounds, sent = (max(0.0, count) / seconds for count in counts)
                return rounds, sent
        return 0.0, 0.0

    @property
    def last_round_s(self) -> float:
        """When the last round was closed, in seconds since 1970; 0.0: none was."""
        return _seconds(self.rounds[-1]) if self.rounds else 0.0

    @property
    def sent_bytes(self) -> float:
        """Bytes of the algorithm so far."""
        return number(self.rounds[-1], "bytes") if self.rounds else 0.0

    def _heard(self, line: bytes) -> None:
        if not any(event in line for event in _EVENTS):
            return
        with suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict):
                self._note(event)

    def _note(self, event: dict[str, Any]) -> None:
        what, host = event.get("event"), event.get("host")
        if what == "round":
            self.rounds.append(event)
        elif what == "metrics":
            self.line = {name: value for name, value in event.items() if _is_number(value)}
        elif what == "opened":
            self.hosts.clear()
            self.missing = 0
        elif isinstance(host, int) and what in ("joined", "gone"):
            self.missing = max(0, int(number(event, "missing")))
            if what == "joined":
                self.hosts[host] = str(event.get("clients"))
            else:
                self.hosts.pop(host, None)


def number(values: dict[str, Any], name: str) -> float:
    """Return a number of an event; 0.0 if it has none that can be used."""
    value = values.get(name)
    return value if _is_number(value) else 0.0


def _is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number; an integer has no more than 64 bits, where JSON's have any length."""
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and abs(value) < 2**63


def _seconds(event: dict[str, Any]) -> float:
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(str(event.get("timestamp"))).timestamp()
    return 0.0
