"""A round that has begun: its plan, its cohort and the answers so far."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgpack

from seedbus.agents.extensions import Exchange
from seedbus.algorithms.contract import Packed, ReportRefused
from seedbus.bus import Envelope
from seedbus.bus.envelope import REPORT

Phase = Literal["asking", "gathering", "committing", "publishing"]
"""What the server is about to do in a round, or in the middle of."""


@dataclass(slots=True)
class Round:
    """One round, open or closed.

    Attributes:
        plan: the algorithm's plan.
        cohort: the clients that it asked, ascending; [] if the round was restored from a checkpoint.
        opened_ns: when it began, in nanoseconds of the run's clock.
        asked_ns: when its plans were sent: later, where it waits for clients at work, or has questions before plans.
        size: |C_r|, number of clients asked.
        waiting: the clients of the cohort whose answers are awaited.
        members: number of members when it began, those at work for earlier rounds included.
        reports: client → its report, until this is in a commit.
        bodies: client → the checksum of its report's body, as far as this process has read it.
        declined: the clients that have declined to report.
        dismissed: the clients that have left, or joined anew, since it began.
        too_large: the clients whose answers, while it was open, were refused because of their magnitude.
        lags: how many commits each client of the cohort had missed, in its order.
        is_expired: whether the deadline has passed, or has passed before enough clients were free.
        peak: what a channel tells the cohort of its reports; None before the commit, or without a channel.
        exchange: what it asks beside reports.
    """

    plan: Any
    cohort: list[int]
    opened_ns: int
    asked_ns: int
    size: int
    waiting: set[int]
    members: int = 0
    reports: dict[int, Any] = field(default_factory=dict)
    bodies: dict[int, int] = field(default_factory=dict)
    declined: set[int] = field(default_factory=set)
    dismissed: set[int] = field(default_factory=set)
    lags: Sequence[int] = ()
    is_expired: bool = False
    peak: Packed | None = None
    exchange: Exchange = field(default_factory=Exchange)
    too_large: set[int] = field(default_factory=set)

    def admit(self, envelope: Envelope) -> None:
        """Check that an answer to this round is due.

        Raises:
            ReportRefused: the client has answered already, with the same or another report, or was not asked, or its
                answer is based on another version.
        """
        client, number = envelope.client, self.plan.round
        if client in self.reports or client in self.declined:
            first = self.bodies.get(client)
            if first is not None and envelope.kind is REPORT and first != _checksum(envelope.body):
                raise ReportRefused("equivocates", f"client {client} has sent another report in round {number}")
            raise ReportRefused("duplicate", f"client {client} has answered in round {number}")
        if client not in self.waiting:
            raise ReportRefused("not-asked", f"client {client} is not asked in round {number}")
        if envelope.base != self.plan.version:
            raise ReportRefused("wrong-version", f"it started at version {envelope.base}, not {self.plan.version}")

    def heard(self, envelope: Envelope) -> None:
        """Remember what a report says: one that says something else later is no copy of it."""
        self.bodies[envelope.client] = _checksum(envelope.body)


def _checksum(value: Any, before: int = 0) -> int:
    """Return the CRC-32 of a report's body, of which no copy is made: it may have a model's size.

    Who makes two reports with one checksum is taken for one that sends a copy; only the first counts in any case.
    """
    if isinstance(value, bytes | memoryview):
        return zlib.crc32(value, zlib.crc32(b"%d:" % len(value), before))
    if isinstance(value, list | tuple):
        for each in value:
            before = _checksum(each, before)
        return zlib.crc32(b"]", before)
    return zlib.crc32(msgpack.packb(value), before)
