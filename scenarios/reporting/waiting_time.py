"""Where the time of rounds went, and for whom they waited; read from the ledger.

A round lasts until its last report in time, or until its deadline. The path of that last report is what its time went
into: its plan's way to the client, the client's work, and the report's way back. Before that plan there may be a wait
for clients at work, an exchange of keys, the model for a client that lags, or a plan that was lost. After the report
there may be a wait for reports that did not come, or for late ones, and the unmasking of their sum. The parts of a
round add up to its duration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.bus import Fate, Kind
from seedbus.bus.ledger import Columns
from seedbus.scenarios.reporting.round_table import Pairs, RoundTable, Whole
from seedbus.scenarios.reporting.statistics import ArrivedReports

PARTS = ("before the plan", "plan on its way", "client works", "report on its way", "after the report")
"""What a round's time goes into, in the order of time. Where clients are processes of their own, whose clocks nobody
reads, work includes the report's way."""


@dataclass(frozen=True)
class Waits:
    """Where the time of R rounds went, and for which of N clients they waited.

    Attributes:
        parts_ns: int64 [R, 5]; the time of each round that went into each of `PARTS`; all zeros where no report of the
            round came in time, but for the last, which then is the whole round.
        ended: int64 [N]; rounds whose last report in time was the client's.
        alone_ns: int64 [N]; how much sooner those rounds would have had all their other reports.
        missed: int64 [N]; rounds that waited for the client until they closed, or unmasked a sum, in vain.
        missed_ns: int64 [N]; how long these did after their last report in time, each client that was missed counting.
            Asynchronous rounds wait for whoever comes, so there a report that is in a later commit was not missed.
    """

    parts_ns: Whole
    ended: Whole
    alone_ns: Whole
    missed: Whole
    missed_ns: Whole

    @staticmethod
    def of(columns: Columns, history: RoundTable, arrived: ArrivedReports, *, is_asynchronous: bool) -> Waits:
        """Find it all in a run's ledger.

        Args:
            columns: all rows of the ledger.
            history: all rounds.
            arrived: the reports that arrived.
            is_asynchronous: whether rounds close as soon as they have so many reports, fresh or late.
        """
        rounds, clients = history.opened_ns.size, history.clients
        keys = history.reported.keys(clients)
        times_ns = arrived.arrival_times(keys)
        order = np.lexsort((times_ns, history.reported.round))
        order = order[times_ns[order] >= 0]
        of_round, key, time_ns = history.reported.round[order], keys[order], times_ns[order]
        last = np.flatnonzero(np.append(of_round[1:] != of_round[:-1], True)) if of_round.size else np.empty(0, int)
        which, who, end_ns = of_round[last], key[last] % clients, time_ns[last]
        opened_ns, closed_ns = history.opened_ns[which], history.closed_ns[which]

        sent_ns = latest(columns, Kind.REPORT, "sender", clients, key[last], end_ns, "sent_ns")
        came_ns = latest(columns, Kind.PLAN, "recipient", clients, key[last], sent_ns, "arrived_ns")
        left_ns = latest(columns, Kind.PLAN, "recipient", clients, key[last], sent_ns, "sent_ns")
        moments = np.stack([opened_ns, left_ns, came_ns, sent_ns, end_ns, closed_ns], axis=1)
        moments = np.maximum.accumulate(np.clip(moments, opened_ns[:, None], closed_ns[:, None]), axis=1)
        parts_ns = np.zeros((rounds, len(PARTS)), np.int64)
        parts_ns[:, -1] = history.closed_ns - history.opened_ns
        parts_ns[which] = np.diff(moments, axis=1)

        has_other = np.append([False], of_round[1:] == of_round[:-1])[last] if last.size else np.empty(0, bool)
        before_ns = np.where(has_other, time_ns[np.maximum(last - 1, 0)], left_ns)
        is_missing = ~np.isin(history.asked.keys(clients), keys)
        if is_asynchronous:
            is_missing &= ~history.counts_late
        missing = Pairs(history.asked.round[is_missing], history.asked.client[is_missing])
        in_vain_ns = np.maximum(parts_ns[:, -1] - (history.closed_ns - arrived.awaited_until_ns), 0)[missing.round]
        return Waits(
            parts_ns,
            np.bincount(who, minlength=clients),
            _sum(who, end_ns - before_ns, clients),
            np.bincount(missing.client[in_vain_ns > 0], minlength=clients),
            _sum(missing.client, in_vain_ns, clients),
        )

    @property
    def total_ns(self) -> dict[str, int]:
        """Nanoseconds of all rounds together that went into each part."""
        return dict(zip(PARTS, self.parts_ns.sum(axis=0).tolist(), strict=True))

    def most(self, count: int) -> Whole:
        """Return the clients that rounds waited for longest, alone or in vain; the longest first, at most `count`."""
        waited = self.alone_ns + self.missed_ns
        order = np.argsort(-waited, kind="stable")[:count]
        return order[waited[order] > 0]


def latest(
    columns: Columns, kind: Kind, end: str, clients: int, keys: Whole, before_ns: Whole, column: str
) -> NDArray[Any]:
    """Return, of the last delivered message of each key that had arrived or left by a moment, one of its columns.

    Args:
        columns: all rows of the ledger.
        kind: the kind of the messages.
        end: the column with the client, "sender" or "recipient".
        clients: number of clients, N.
        keys: round and client as one number, [n].
        before_ns: the moment, [n], at or before which it arrived; −1, where no message is meant.
        column: what is returned, [n]; the moment itself where there is no such message.
    """
    is_meant = (columns["kind"] == kind) & (columns["fate"] == Fate.DELIVERED)
    is_meant &= (columns[end] >= 0) & (columns[end] < clients)
    rows = np.flatnonzero(is_meant)
    found = Pairs(columns["round"][rows], columns[end][rows]).keys(clients)
    order = np.lexsort((columns["arrived_ns"][rows], found))
    rows, found = rows[order], found[order]
    # both keys are turned into ranks, so that a pair of them is one number
    messages, values = np.unique(found), np.unique(np.concatenate([columns["arrived_ns"][rows], before_ns]))
    wide = values.size + 1
    ranks = np.searchsorted(messages, found) * wide + np.searchsorted(values, columns["arrived_ns"][rows])
    wanted = np.searchsorted(messages, keys) * wide + np.searchsorted(values, before_ns)
    at = np.searchsorted(ranks, wanted, side="right") - 1
    is_there = (at >= 0) & (found[np.maximum(at, 0)] == keys) if rows.size else np.zeros(keys.size, bool)
    return np.where(is_there, columns[column][rows[np.maximum(at, 0)]] if rows.size else 0, before_ns)


def _sum(clients: Whole, values: Whole, count: int) -> Whole:
    total = np.zeros(count, np.int64)
    np.add.at(total, clients, values)
    return total
