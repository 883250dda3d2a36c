"""Statistics of a run's clients and rounds: participation, lag, staleness, round times.

Everything is computed on whole columns, so that a hundred thousand clients and millions of messages take seconds. A
p95 is a nearest-rank percentile: the smallest value that at least 95% do not exceed. The statistics of an empty
column are zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.bus import Compute, Fate, Kind
from seedbus.bus.envelope import BETWEEN, DOWN, SERVER, UP
from seedbus.bus.ledger import Columns
from seedbus.bus.network import Constant
from seedbus.scenarios.reporting.round_table import Pairs, RoundTable, Whole

Table = dict[str, NDArray[Any]]
"""A column for every quantity, with an entry for every client: [N] each."""
ReplayTime = Callable[[int, int, int], float]
"""(client, round, commits) → seconds that the client takes to replay these commits in that round."""
NS = 1e9
_NEVER = 2**63 - 1


def replay_time(compute: Compute, seed: int) -> ReplayTime | None:
    """Return the replay time that a scenario's `compute` section defines, without slowdowns by faults; None: none."""
    if compute.replay == Constant():
        return None
    return lambda client, round, commits: compute.time_ns(seed, client, round, 0, commits) / NS


def describe(history: RoundTable, arrived: ArrivedReports, table: Table, simulated_s: float) -> dict[str, Any]:
    """Return the parts of a run's summary that describe clients and rounds.

    Args:
        table: the columns of `clients_table`.
        simulated_s: duration of the run.
    """
    return {
        "participation": _participation(table) | {"unused": arrived.unused(history)},
        "lag": spread(history.lags) | {"histogram": histogram(history.lags)},
        "staleness": _staleness(history),
        "round_times": _round_times(history, arrived, simulated_s),
    }


class ArrivedReports:
    """The first report of each client in each round that asked it, in order of round and client, if it arrived.

    A report that arrived before its round began does not count: the server crashed, lost it and began the round again.
    Nor does one that answers no plan, which a hostile client may send.

    Attributes:
        keys: int64 [n]; round and client as one number, see `Pairs.keys`.
        client: int64 [n].
        arrived_ns: int64 [n]; time of arrival.
        size: int64 [n]; bytes of header and payload, without digests.
        awaited_until_ns: int64 [R]; until when each round waited for reports: its end, or where they are masked, when
            clients were asked to unmask their sum.
        waited_in_vain: bool [R]; whether a round lasted until its deadline, and a client that it asked never answered.
    """

    def __init__(self, columns: Columns, history: RoundTable) -> None:
        sender = columns["sender"]
        is_clients = (columns["fate"] == Fate.DELIVERED) & (sender >= 0) & (sender < history.clients)
        rows = np.flatnonzero(is_clients & (columns["kind"] == Kind.REPORT))
        opened_ns = np.append(history.opened_ns, 0)  # 0: of a round that is not over
        rows = rows[columns["arrived_ns"][rows] >= opened_ns[np.minimum(columns["round"][rows], opened_ns.size - 1)]]
        order = np.argsort(columns["arrived_ns"][rows], kind="stable")
        arrived = rows[order]
        keys = Pairs(columns["round"][arrived], sender[arrived]).keys(history.clients)
        is_asked = np.isin(keys, history.asked.keys(history.clients))
        arrived, keys = arrived[is_asked], keys[is_asked]
        self.keys, first = np.unique(keys, return_index=True)
        self.client = sender[arrived][first]
        self.arrived_ns = columns["arrived_ns"][arrived][first]
        sizes = columns["header_bytes"] + columns["payload_bytes"] - columns["digest_bytes"]
        self.size = sizes[arrived][first]
        self.awaited_until_ns = history.closed_ns.copy()
        is_of_round = (sender == SERVER) & (columns["round"] < history.closed_ns.size)
        plans, asks = (np.flatnonzero(is_of_round & (columns["kind"] == kind)) for kind in (Kind.PLAN, Kind.ASK))
        planned_ns, asked_ns = (np.full(history.closed_ns.size, bound, np.int64) for bound in (-1, _NEVER))
        np.maximum.at(planned_ns, columns["round"][plans], columns["sent_ns"][plans])
        asks = asks[columns["sent_ns"][asks] > planned_ns[columns["round"][asks]]]
        np.minimum.at(asked_ns, columns["round"][asks], columns["sent_ns"][asks])
        has_sum = (asked_ns < _NEVER) & history.has_commit  # questions after the plans are there to unmask it
        self.awaited_until_ns[has_sum] = asked_ns[has_sum]
        declined = np.flatnonzero(is_clients & (columns["kind"] == Kind.DECLINE))
        answers = [self.keys, Pairs(columns["round"][declined], sender[declined]).keys(history.clients)]
        is_silent = ~np.isin(history.asked.keys(history.clients), np.concatenate(answers))
        silent = np.bincount(history.asked.round[is_silent], minlength=history.opened_ns.size)
        self.waited_in_vain = (silent > 0) & history.is_expired

    def unused(self, history: RoundTable) -> dict[str, int]:
        """Return how many reports are in no commit, and their bytes: too late, refused, or of a round without one."""
        in_time = history.reported.keys(history.clients)[history.is_counted]
        late = history.asked.keys(history.clients)[history.counts_late]
        is_unused = ~np.isin(self.keys, np.concatenate([in_time, late]))
        return {"reports": int(is_unused.sum()), "bytes": int(self.size[is_unused].sum())}

    def arrival_times(self, keys: Whole) -> Whole:
        """Return the arrival time of each report in nanoseconds; −1 for a report that is not in the ledger."""
        if not self.keys.size:
            return np.full(keys.size, -1, np.int64)
        index = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
        return np.where(self.keys[index] == keys, self.arrived_ns[index], -1)


def clients_table(
    columns: Columns, history: RoundTable, arrived: ArrivedReports, replay_s: ReplayTime | None = None
) -> Table:
    """Return all per-client statistics as columns of N entries each.

    The columns are:

    - asked: how many rounds asked the client;
    - answered: how many of these rounds got its report, in time or late;
    - counted: how many of its reports are part of a commit;
    - late: how many of the counted reports are part of a later round's commit; reports that were too late to count are
      in `answered` and not in `counted`;
    - lag_mean, lag_max: commits that it had missed when it was asked; −1 for a client that never was asked;
    - bytes_up, bytes_down: header and payload of the messages that it sent, and that were sent to it, as in `traffic`;
    - catchup_bytes: the part of bytes_down that brought it commits, the newest too, or the model, if delivered;
    - replayed: how many commits it replayed, without those that it was sent again and had; every late term counts as
      one more, and of `fedscalar` each report as one; −1: the algorithm does not tell;
    - replay_s: simulated seconds of replaying;
    - last_heard_s: when its last report arrived; NaN if none did.
    """
    clients = history.clients
    asked = _count(history.asked.client, clients)
    late = _count(history.late.client, clients)
    lag_sum = np.bincount(history.asked.client, history.lags, minlength=clients)
    lag_max = np.full(clients, -1, np.int64)
    np.maximum.at(lag_max, history.asked.client, history.lags)
    last_heard_ns = np.full(clients, -1, np.int64)
    np.maximum.at(last_heard_ns, arrived.client, arrived.arrived_ns)
    return {
        "asked": asked,
        "answered": _count(arrived.client, clients),
        "counted": _count(history.reported.client[history.is_counted], clients) + late,
        "late": late,
        "lag_mean": np.where(asked > 0, lag_sum / np.maximum(asked, 1), -1.0),
        "lag_max": lag_max,
        "bytes_up": _bytes(columns, (*UP, *BETWEEN), "sender", clients),
        "bytes_down": _bytes(columns, (*DOWN, *BETWEEN), "recipient", clients),
        "catchup_bytes": _delivered(columns, columns["catchup_bytes"], clients),
        "replayed": _replayed(columns, clients),
        "replay_s": _replay_s(columns, clients, replay_s),
        "last_heard_s": np.where(last_heard_ns >= 0, last_heard_ns / NS, np.nan),
    }


def spread(values: NDArray[Any]) -> dict[str, float]:
    """Return min, mean, median, p95 and max of the values."""
    if not values.size:
        return {"min": 0, "mean": 0.0, "median": 0.0, "p95": 0, "max": 0}
    return {
        "min": values.min().item(),
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "p95": np.quantile(values, 0.95, method="inverted_cdf").item(),
        "max": values.max().item(),
    }


def histogram(values: Whole) -> dict[str, int]:
    """Count the values that are 0, 1, 2, 3-4, 5-8, 9-16, …, up to the largest value."""
    digits = np.frexp(np.maximum(values, 1) - 1)[1]  # number of binary digits of value − 1
    buckets = np.bincount(np.where(values > 0, digits + 1, 0))
    return {_bucket(number): count for number, count in enumerate(buckets.tolist())}


def gini(values: NDArray[Any]) -> float:
    """Return the Gini coefficient (Gini 1912): 0 if all values are equal, near 1 if one value makes up the total."""
    total = float(values.sum())
    if total == 0:
        return 0.0
    ranks = np.arange(1, values.size + 1)
    return float(2 * (ranks * np.sort(values)).sum() / (values.size * total) - (values.size + 1) / values.size)


def _bucket(number: int) -> str:
    return str(number) if number <= 2 else f"{2 ** (number - 2) + 1}-{2 ** (number - 1)}"


def _count(clients: Whole, minlength: int) -> Whole:
    return np.bincount(clients, minlength=minlength)


def _bytes(columns: Columns, kinds: tuple[Kind, ...], end: str, clients: int) -> Whole:
    """Sum up header and payload bytes of all messages of some kinds by client, without the verification digests.

    end: the column with the client, "sender" or "recipient".
    """
    selected = np.isin(columns["kind"], kinds) & (columns[end] >= 0) & (columns[end] < clients)
    size = columns["header_bytes"] + columns["payload_bytes"] - columns["digest_bytes"]
    return np.bincount(columns[end][selected], size[selected], minlength=clients).astype(np.int64)


def _delivered(columns: Columns, values: Whole, clients: int) -> Whole:
    """Sum up the values of delivered messages by the client that received them."""
    recipient = columns["recipient"]
    selected = (recipient >= 0) & (recipient < clients) & (columns["fate"] == Fate.DELIVERED)
    return np.bincount(recipient[selected], values[selected], minlength=clients).astype(np.int64)


def replays(columns: Columns) -> Whole:
    """Return how many commits each message made its client replay, by their seeds; −1 where commits count no seeds."""
    is_plan = (columns["kind"] == Kind.PLAN) & (columns["fate"] == Fate.DELIVERED)
    is_untold = (columns["catchup_bytes"] > 0) & (columns["seeds"] <= 1)  # one seed is the plan's own
    folded = np.maximum(columns["seeds"] - 1 - columns["repeated"], 0)
    return np.where(is_plan, np.where(is_untold, -1, folded), 0)


def _replayed(columns: Columns, clients: int) -> Whole:
    counts = replays(columns)
    is_untold = _delivered(columns, (counts < 0).astype(np.int64), clients) > 0
    return np.where(is_untold, -1, _delivered(columns, counts, clients))


def _replay_s(columns: Columns, clients: int, replay_s: ReplayTime | None) -> NDArray[np.float64]:
    """Sum up, by client, the seconds that replaying the commits in delivered plans takes."""
    total_s = np.zeros(clients)
    if replay_s is None:
        return total_s
    recipient, counts = columns["recipient"], replays(columns)
    selected = (counts > 0) & (recipient >= 0) & (recipient < clients)
    found = (recipient[selected], columns["round"][selected], counts[selected])
    for client, round, commits in zip(*(each.tolist() for each in found), strict=True):
        total_s[client] += replay_s(client, round, commits)
    return total_s


def _participation(table: Table) -> dict[str, Any]:
    clients = table["asked"].size
    heard = int((table["answered"] > 0).sum())
    spreads = {
        name: spread(table[name]) | {"total": int(table[name].sum()), "none": int((table[name] == 0).sum())}
        for name in ("asked", "answered", "counted")
    }
    shares = {"heard": heard, "heard_share": heard / clients, "gini": gini(table["counted"])}
    return {"clients": clients, **shares, **spreads}


def _staleness(history: RoundTable) -> dict[str, Any]:
    fresh = np.zeros(int(history.is_counted.sum()), np.int64)
    ages = np.concatenate([fresh, history.staleness])
    late = history.staleness.size
    return spread(ages) | {"late": late, "late_share": late / ages.size if ages.size else 0.0}


def _round_times(history: RoundTable, arrived: ArrivedReports, simulated_s: float) -> dict[str, Any]:
    took_ns = history.closed_ns - history.opened_ns
    waited_ns = waited_by_round_ns(history, arrived)
    straggling_ns, vain_ns = (int(waited_ns[arrived.waited_in_vain == each].sum()) for each in (False, True))
    return {name + "_s": value / NS for name, value in spread(took_ns).items()} | {
        "total_s": int(took_ns.sum()) / NS,
        "at_deadline": int(history.is_expired.sum()),
        "without_commit": int((~history.has_commit).sum()),
        "without_commit_s": int(took_ns[~history.has_commit].sum()) / NS,
        "stragglers_s": straggling_ns / NS,
        "stragglers_share": straggling_ns / NS / simulated_s if simulated_s else 0.0,
        "in_vain_s": vain_ns / NS,
        "in_vain_share": vain_ns / NS / simulated_s if simulated_s else 0.0,
    }


def waited_by_round_ns(history: RoundTable, arrived: ArrivedReports) -> Whole:
    """Return the time that each round spent waiting for its slower half of reports, in nanoseconds: int64 [R].

    It runs from the arrival of the ⌈n/2⌉-th of the n reports in time that the round counts, to when the round stopped
    waiting for reports. It is 0 for a round without such reports.
    """
    counted, rounds = history.is_counted, history.opened_ns.size
    keys, of_round = history.reported.keys(history.clients)[counted], history.reported.round[counted]
    arrived_ns = arrived.arrival_times(keys)
    is_known = arrived_ns >= 0
    arrived_ns, of_round = arrived_ns[is_known], of_round[is_known]
    arrived_ns = arrived_ns[np.lexsort((arrived_ns, of_round))]
    sizes = np.bincount(of_round, minlength=rounds)
    middle = (np.cumsum(sizes) - sizes + (sizes + 1) // 2 - 1)[sizes > 0]  # index of each round's ⌈n/2⌉-th arrival
    waited = np.zeros(rounds, np.int64)
    waited[sizes > 0] = arrived.awaited_until_ns[sizes > 0] - arrived_ns[middle]
    return waited
