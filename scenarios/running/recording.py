"""Writing a run's records for people and programs: a JSON log, and one line of JSON for every measurement.

With `run --log messages` the log has a line for each message too, as soon as it is known what becomes of it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import structlog

from seedbus.agents.observer import Observer, Observers
from seedbus.agents.refusals import NOBODY, Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.bus import HOST
from seedbus.bus.files import descriptor
from seedbus.bus.text import printable
from seedbus.scenarios.reporting.messages import FIELDS, Words
from seedbus.scenarios.reporting.rate_limit import SERVER_BURSTS, RateLimit
from seedbus.scenarios.reporting.results import strict
from seedbus.scenarios.run_folder import METRICS

LOG = "log.jsonl"
MAX_LINE_BYTES = 65_536  # no line of the log is longer
MAX_TEXT = 500  # characters of a text in the log, since peers can choose some of them
MAX_REFUSALS = 1000  # lines of the log for one client's refusals for one reason


class Recorder:
    """Writes `metrics.jsonl` and `log.jsonl`, and passes everything on to other observers.

    The number of log lines that strangers and faulty clients can cause is limited; the results hold the exact counts.
    """

    def __init__(
        self, folder: Path, lines: Iterable[dict[str, Any]], observer: Observer, *, run: str = "", round: int = 0
    ) -> None:
        """Open both files for writing.

        Args:
            folder: the run's folder.
            lines: the measurements that a resumed run starts with; the file begins with exactly these.
            observer: receives everything that is recorded.
            run: identifies the run in every line of the log.
            round: the round that is open, or opens next.
        """
        self._observer = Observers([observer])
        self._rate_limit = RateLimit(SERVER_BURSTS)
        self._refusals = Counter[tuple[int, str]]()
        with ExitStack() as files:
            metrics = descriptor(folder / METRICS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            self._metrics = files.enter_context(open(metrics, "w", encoding="utf-8"))
            log = descriptor(folder / LOG, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            log_file = files.enter_context(open(log, "a", encoding="utf-8"))
            _remove_partial_line(log)
            for line in lines:
                self._write(line)
            self._files = files.pop_all()
        self._log = structlog.wrap_logger(
            structlog.WriteLogger(log_file),
            processors=[_flat, structlog.processors.TimeStamper(fmt="iso"), structlog.processors.JSONRenderer()],
            wrapper_class=structlog.BoundLogger,
        ).bind(run=run, round=round)

    def tell(self, observer: Observer) -> None:
        """Pass everything on to this observer, too."""
        self._observer.observers.append(observer)

    def opened(self) -> None:
        """Log that this process writes the run from now on."""
        self._log_one("opened", {"pid": os.getpid()})

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
        self._log = self._log.bind(round=closed.round + 1)
        self._observer.round_closed(closed, now_ns, bytes_so_far)

    def measured(self, line: dict[str, Any]) -> None:
        self._write(line)
        self._log.info("metrics", facts=strict(line))
        self._observer.measured(line)

    def refused(self, refusal: Refusal) -> None:
        key = (refusal.client, refusal.reason)
        sender = _sender(refusal.client)
        facts = {**sender, "round": refusal.round, "reason": refusal.reason, "detail": refusal.detail}
        if refusal.client == NOBODY:
            self._log_limited("refused", facts)
        else:
            self._refusals[key] += 1
            if self._refusals[key] <= MAX_REFUSALS:
                self._log_one("refused", facts)
        self._observer.refused(refusal)

    def noted(self, event: str, **facts: Any) -> None:
        self._log_limited(event, facts)
        self._observer.noted(event, **facts)

    def messages(self, words: Words) -> Callable[[tuple[int, ...]], None]:
        """Return what logs a row of the ledger."""
        return lambda row: self._log.info("message", facts=dict(zip(FIELDS, words.of(row), strict=True)))

    def sync(self) -> None:
        """Make the measurements durable on the disk."""
        os.fsync(self._metrics.fileno())

    def close(self) -> None:
        """Log how many lines were omitted, and close both files."""
        for event, facts in self._rate_limit.rest():
            self._log_one(event, facts)
        for (client, reason), count in self._refusals.items():
            if count > MAX_REFUSALS:
                facts = {"of": "refused", **_sender(client), "reason": reason, "count": count - MAX_REFUSALS}
                self._log_one("omitted", facts)
        self._files.close()

    def _log_limited(self, event: str, facts: Mapping[str, Any]) -> None:
        for admitted_event, admitted_facts in self._rate_limit.admitted(event, facts):
            self._log_one(admitted_event, admitted_facts)

    def _log_one(self, event: str, facts: Mapping[str, Any]) -> None:
        self._log.info(event, facts={name: _shortened(value) for name, value in facts.items()})

    def _write(self, line: dict[str, Any]) -> None:
        self._metrics.write(json.dumps(strict(line)) + "\n")
        self._metrics.flush()


def _flat(_logger: Any, _method: str, record: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Move the facts beside `event`, `run` and `round`. A fact named `round` is about another round than the open one.

    The facts come as one mapping, so that no metric's name becomes a keyword argument or replaces `event` or `run`.
    """
    return {"round": record.pop("round"), **record.pop("facts"), **record}


def _sender(sender: int) -> dict[str, int]:
    """Return the field that names who was refused; a stranger has none, and its address is in the detail."""
    if sender == NOBODY:
        return {}
    return {"host" if sender <= HOST else "client": sender}


def _shortened(value: Any) -> Any:
    return printable(value, MAX_TEXT) if isinstance(value, str) else value


def _remove_partial_line(log: int) -> None:
    """Remove an incomplete last line, which a full disk or a power cut can leave. log: the file's descriptor."""
    length = os.fstat(log).st_size
    start = max(0, length - MAX_LINE_BYTES)
    end = start + os.pread(log, MAX_LINE_BYTES, start).rfind(b"\n") + 1
    if end != length:
        os.ftruncate(log, end)
