"""The clients that take longest to answer, from the newest messages of a run's ledger."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from seedbus.agents.journal.records import Glance
from seedbus.bus import Fate, Kind
from seedbus.bus.ledger import newest_rows


class Answered(NamedTuple):
    """The last report of a client.

    Attributes:
        client: its number.
        round: the round that it answered.
        seconds: from the departure of the plan to the arrival of the report, by the run's clock.
        lag: commits that it lacked when it was last heard of; −1 if that is not known.
    """

    client: int
    round: int
    seconds: float
    lag: int


def slowest_clients(messages: Path, glance: Glance | None, count: int) -> list[Answered]:
    """Return the clients whose last report took longest, the slowest first.

    Only messages of the ledger's newest file, and later ones, are looked at.

    Args:
        messages: the folder of the ledger's files.
        glance: the run's journal; None if all messages are in those files.
        count: maximum number of clients.

    Raises:
        LedgerDamaged: the newest file cannot be read.
    """
    columns = newest_rows(messages, b"" if glance is None else glance.rows)
    is_delivered = columns["fate"] == Fate.DELIVERED
    plans = (columns["kind"] == Kind.PLAN).nonzero()[0]
    reports = ((columns["kind"] == Kind.REPORT) & is_delivered).nonzero()[0]
    asked_ns = {
        (client, round): sent_ns
        for client, round, sent_ns in zip(
            *(columns[name][plans].tolist() for name in ("recipient", "round", "sent_ns")), strict=True
        )
    }
    last: dict[int, Answered] = {}
    for client, round, arrived_ns in zip(
        *(columns[name][reports].tolist() for name in ("sender", "round", "arrived_ns")), strict=True
    ):
        sent_ns = asked_ns.get((client, round))
        if sent_ns is not None and sent_ns <= arrived_ns:  # else it answered a plan from before a crash of the server
            del asked_ns[client, round]  # what comes then is a copy
            last[client] = Answered(client, round, (arrived_ns - sent_ns) / 1e9, _lag(client, glance))
    return sorted(last.values(), key=lambda each: (-each.seconds, each.client))[:count]


def _lag(client: int, glance: Glance | None) -> int:
    if glance is None or client not in glance.positions:
        return -1
    return glance.version - glance.positions[client].version
