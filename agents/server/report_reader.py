"""Reads reports that have come together at once, which costs a fraction of reading each alone.

A report that was read so is taken when its own time comes. Whatever is not plainly sound is read and refused then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seedbus.agents import messages
from seedbus.agents.server.rounds import Rounds
from seedbus.agents.verification import Verifier
from seedbus.algorithms.contract import Algorithm
from seedbus.bus import Envelope, Tally
from seedbus.bus.envelope import NO_TALLY, REPORT

_NOTHING: tuple[Any, Any] = (None, None)


class ReportReader:
    """Reads reports for the server."""

    def __init__(self, algorithm: Algorithm, rounds: Rounds, verifier: Verifier) -> None:
        self._algorithm = algorithm
        self._rounds = rounds
        self._verifier = verifier
        self._shares = algorithm.facts.shares_work
        self._plan: Any = None  # of the reports that were read together
        self._reports: dict[int, tuple[list[Any], Any]] = {}  # client → the body of its report, and the report
        self._tally = NO_TALLY  # of each of them

    def read_together(self, envelopes: Sequence[Envelope]) -> None:
        """Read what followers will send soon. Only reports to the open round are, and only if they have no digests."""
        now = self._rounds.current
        if now is None or not self._shares or self._verifier.is_due(now.plan.version):
            return
        number, version = now.plan.round, now.plan.version
        plain = [each for each in envelopes if each[0] is REPORT and each[2] == number and each[3] == version]
        bodies = [body for _, _, _, _, body in plain]
        if now.plan is not self._plan:
            self._plan = now.plan
            self._reports.clear()
        for envelope, report in zip(plain, self._algorithm.read_reports(bodies, now.plan), strict=True):
            if not isinstance(report, Exception):
                if not self._reports:
                    self._tally = messages.tally(self._algorithm, self._verifier.is_due, envelope)
                self._reports[envelope.client] = envelope.body, report

    def tally(self, envelope: Envelope) -> Tally:
        """Return what a follower's message carries."""
        if self._reports.get(envelope.client, _NOTHING)[0] is envelope.body:
            return self._tally
        now = self._rounds.get(envelope.round) if envelope.kind is REPORT else None
        bare = envelope if now is None else now.exchange.bare(envelope)
        return messages.tally(self._algorithm, self._verifier.is_due, bare)

    def read(self, envelope: Envelope, plan: Any, *, has_digests: bool) -> tuple[Any, bytes]:
        """Return a report that may be aggregated, and its digests. Raises `BadPayload`, `ReportRefused`."""
        if plan is self._plan:
            body, report = self._reports.pop(envelope.client, _NOTHING)
            if body is envelope.body:
                return report, b""
        return messages.unpack_report(self._algorithm, envelope, plan, has_digests=has_digests)
