"""What a run leaves behind for people and programs: a JSON log and a line of JSON for every measurement."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import structlog

from seedbus.agents.observer import Observer
from seedbus.agents.refusals import NOBODY, Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.bus.files import descriptor
from seedbus.bus.text import printable
from seedbus.scenarios.reporting.rate_limit import SERVER_BURSTS, RateLimit
from seedbus.scenarios.reporting.results import METRICS, strict

LOG = "log.jsonl"
LONGEST = 65_536  # bytes of a line of the log, and more
TEXT = 500  # characters of a text in the log: peers have their say in some
REFUSED = 1000  # lines of the log for one client's refusals for one reason


class Recorder:
    """Writes `metrics.jsonl` and `log.jsonl`, and passes everything on to another observer.

    What strangers and bad clients can have written to the log is limited; the results have the exact counts.
    lines: the measurements that a resumed run starts with; the file begins with exactly these.
    """

    def __init__(self, folder: Path, lines: Iterable[dict[str, Any]], then: Observer) -> None:
        self._then = then
        self._limit, self._refusals = RateLimit(SERVER_BURSTS), Counter[tuple[int, str]]()
        with ExitStack() as files:
            metrics = descriptor(folder / METRICS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            self._metrics = files.enter_context(open(metrics, "w", encoding="utf-8"))
            log = descriptor(folder / LOG, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            opened = files.enter_context(open(log, "a", encoding="utf-8"))
            _cut_to_lines(log)
            for line in lines:
                self._write(line)
            self._files = files.pop_all()
        self._log = structlog.wrap_logger(
            structlog.WriteLogger(opened),
            processors=[_flat, structlog.processors.TimeStamper(fmt="iso"), structlog.processors.JSONRenderer()],
            wrapper_class=structlog.BoundLogger,
        )

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        facts = {
            "round": closed.round,
            "version": closed.version,
            "committed": closed.commit is not None,
            "asked": len(closed.cohort),
            "reported": len(closed.reported),
            "time_s": now_ns / 1e9,
            "bytes": bytes_so_far,
        }
        self._log.info("round", facts=facts)
        self._then.round_closed(closed, now_ns, bytes_so_far)

    def measured(self, line: dict[str, Any]) -> None:
        self._write(line)
        self._log.info("metrics", facts=strict(line))
        self._then.measured(line)

    def refused(self, refusal: Refusal) -> None:
        who = refusal.client, refusal.reason
        facts = {"client": refusal.client, "round": refusal.round, "reason": refusal.reason, "detail": refusal.detail}
        if refusal.client == NOBODY:
            self._log_limited("refused", facts)
        else:
            self._refusals[who] += 1
            if self._refusals[who] <= REFUSED:
                self._log_one("refused", facts)
        self._then.refused(refusal)

    def noted(self, event: str, **facts: Any) -> None:
        self._log_limited(event, facts)
        self._then.noted(event, **facts)

    def sync(self) -> None:
        """Put the measurements on the disk."""
        os.fsync(self._metrics.fileno())

    def close(self) -> None:
        for event, facts in self._limit.rest():
            self._log_one(event, facts)
        for (client, reason), count in self._refusals.items():
            if count > REFUSED:
                facts = {"of": "refused", "client": client, "reason": reason, "count": count - REFUSED}
                self._log_one("omitted", facts)
        self._files.close()

    def _log_limited(self, event: str, facts: Mapping[str, Any]) -> None:
        for written, what in self._limit.admitted(event, facts):
            self._log_one(written, what)

    def _log_one(self, event: str, facts: Mapping[str, Any]) -> None:
        self._log.info(event, facts={name: _bounded(value) for name, value in facts.items()})

    def _write(self, line: dict[str, Any]) -> None:
        self._metrics.write(json.dumps(strict(line)) + "\n")
        self._metrics.flush()


def _flat(_logger: Any, _method: str, record: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The facts beside `event`. A metric's name never becomes a keyword of a call."""
    return {**record.pop("facts"), **record}


def _bounded(value: Any) -> Any:
    return printable(value, TEXT) if isinstance(value, str) else value


def _cut_to_lines(log: int) -> None:
    """Take away the beginning of a line that a full disk, or a power cut, has left at the end."""
    length = os.fstat(log).st_size
    start = max(0, length - LONGEST)
    end = start + os.pread(log, LONGEST, start).rfind(b"\n") + 1
    if end != length:
        os.ftruncate(log, end)
