"""What a run says of its clients and its rounds: participation, lag, staleness, time.

Everything is computed from whole columns, so that a hundred thousand clients and millions of messages take seconds. A
p95 is a nearest-rank percentile: the smallest value that at least 95 % do not exceed. What is empty has zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.bus import Compute, Fate, Kind
from seedbus.bus.ledger import Columns
from seedbus.bus.network import Constant
from seedbus.scenarios.reporting.round_table import Pairs, RoundTable, Whole

Table = dict[str, NDArray[Any]]
FoldingTime = Callable[[int, int, int], float]
"""Seconds, of (client, round, commits)."""
NS = 1e9


def free(client: int, round: int, commits: int) -> float:
    """Where folding takes no time."""
    return 0.0


def folding(compute: Compute, seed: int) -> FoldingTime:
    """What a scenario says of it, without what its faults add."""
    if compute.replay == Constant():
        return free
    return lambda client, round, commits: compute.time_ns(seed, client, round, 0, commits) / NS


def describe(history: RoundTable, heard: Heard, table: Table, simulated_s: float) -> dict[str, Any]:
    """The parts of a run's summary that are about clients and rounds. table: of its clients."""
    return {
        "participation": _participation(table),
        "lag": spread(history.lags) | {"histogram": histogram(history.lags)},
        "staleness": _staleness(history),
        "round_times": _round_times(history, heard, simulated_s),
    }


class Heard:
    """The first report of each client in each round that arrived at the server, in order of round and client."""

    def __init__(self, columns: Columns, history: RoundTable) -> None:
        sender = columns["sender"]
        of_clients = (columns["kind"] == Kind.REPORT) & (sender >= 0) & (sender < history.clients)
        rows = np.flatnonzero(of_clients & (columns["fate"] == Fate.DELIVERED))
        order = np.argsort(columns["arrived_ns"][rows], kind="stable")
        arrived = rows[order]
        keys = Pairs(columns["round"][arrived], sender[arrived]).keys(history.clients)
        self.keys, first = np.unique(keys, return_index=True)
        self.client = sender[arrived][first]
        self.arrived_ns = columns["arrived_ns"][arrived][first]

    def when(self, keys: Whole) -> Whole:
        """The nanosecond at which each of these arrived; −1 for one that the ledger does not have."""
        if not self.keys.size:
            return np.full(keys.size, -1, np.int64)
        place = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
        return np.where(self.keys[place] == keys, self.arrived_ns[place], -1)


def clients_table(columns: Columns, history: RoundTable, heard: Heard, folding_s: FoldingTime = free) -> Table:
    """A column for everything that is counted by client, each with N entries.

    asked, answered (reports that arrived), counted (those in a commit; late: of these, in a later one), lag_mean and
    lag_max (commits missed when asked; −1 for who never was), bytes_up, bytes_down, catchup_bytes (of these, for what
    was missed), replayed (commits, late terms each for one), replay_s (simulated seconds of it), last_heard_s
    (NaN: never). folding_s: what a client takes for so many commits in a round.
    """
    clients, asked = history.clients, _count(history.asked.client, history.clients)
    late = _count(history.late.client, clients)
    lag_sum = np.bincount(history.asked.client, history.lags, minlength=clients)
    lag_max = np.full(clients, -1, np.int64)
    np.maximum.at(lag_max, history.asked.client, history.lags)
    last_heard_ns = np.full(clients, -1, np.int64)
    np.maximum.at(last_heard_ns, heard.client, heard.arrived_ns)
    return {
        "asked": asked,
        "answered": _count(heard.client, clients),
        "counted": _count(history.reported.client[history.is_counted], clients) + late,
        "late": late,
        "lag_mean": np.where(asked > 0, lag_sum / np.maximum(asked, 1), -1.0),
        "lag_max": lag_max,
        "bytes_up": _bytes(columns, (Kind.REPORT,), "sender", clients),
        "bytes_down": _bytes(columns, (Kind.PLAN, Kind.PEAK), "recipient", clients),
        "catchup_bytes": _told(columns, columns["catchup_bytes"], clients),
        "replayed": _told(
            columns, np.where(columns["kind"] == Kind.PLAN, np.maximum(columns["seeds"] - 1, 0), 0), clients
        ),
        "replay_s": _replay_s(columns, clients, folding_s),
        "last_heard_s": np.where(last_heard_ns >= 0, last_heard_ns / NS, np.nan),
    }


def spread(values: NDArray[Any]) -> dict[str, float]:
    """Where values lie: min, mean, median, p95, max."""
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
    """How many values are 0, 1, 2, 3-4, 5-8, 9-16, …, up to the largest."""
    if not values.size:
        return {}
    digits = np.frexp(np.maximum(values, 1) - 1)[1]  # binary ones, of value − 1
    buckets = np.bincount(np.where(values > 0, digits + 1, 0))
    return {_bucket(number): count for number, count in enumerate(buckets.tolist())}


def gini(values: NDArray[Any]) -> float:
    """How unevenly a total is shared: 0 if all have the same, near 1 if one has all (Gini 1912)."""
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
    """Header and payload of all messages of these kinds by the client at one end, without digests of verification."""
    here = np.isin(columns["kind"], kinds) & (columns[end] >= 0) & (columns[end] < clients)
    size = columns["header_bytes"] + columns["payload_bytes"] - columns["digest_bytes"]
    return np.bincount(columns[end][here], size[here], minlength=clients).astype(np.int64)


def _told(columns: Columns, values: Whole, clients: int) -> Whole:
    """Values of what was delivered to clients, added up by client."""
    to = columns["recipient"]
    here = (to >= 0) & (to < clients) & (columns["fate"] == Fate.DELIVERED)
    return np.bincount(to[here], values[here], minlength=clients).astype(np.int64)


def _replay_s(columns: Columns, clients: int, folding_s: FoldingTime) -> NDArray[np.float64]:
    """Of each client, for the commits that delivered plans brought it."""
    found = np.zeros(clients)
    if folding_s is free:
        return found
    here = (columns["kind"] == Kind.PLAN) & (columns["fate"] == Fate.DELIVERED) & (columns["seeds"] > 1)
    names = ("recipient", "round", "seeds")
    for client, round, seeds in zip(*(columns[name][here].tolist() for name in names), strict=True):
        found[client] += folding_s(client, round, seeds - 1)
    return found


def _participation(table: Table) -> dict[str, Any]:
    clients, heard = table["asked"].size, int((table["answered"] > 0).sum())
    spreads = {
        name: spread(table[name]) | {"total": int(table[name].sum())} for name in ("asked", "answered", "counted")
    }
    shares = {"heard": heard, "heard_share": heard / clients, "gini": gini(table["counted"])}
    return {"clients": clients, **shares, **spreads}


def _staleness(history: RoundTable) -> dict[str, Any]:
    fresh = np.zeros(int(history.is_counted.sum()), np.int64)
    ages = np.concatenate([fresh, history.staleness])
    late = history.staleness.size
    return spread(ages) | {"late": late, "late_share": late / ages.size if ages.size else 0.0}


def _round_times(history: RoundTable, heard: Heard, simulated_s: float) -> dict[str, Any]:
    took_ns = history.closed_ns - history.opened_ns
    waited_ns = int(straggling_ns(history, heard).sum())
    return {name + "_s": value / NS for name, value in spread(took_ns).items()} | {
        "total_s": int(took_ns.sum()) / NS,
        "at_deadline": int(history.is_expired.sum()),
        "without_commit": int((~history.has_commit).sum()),
        "without_commit_s": int(took_ns[~history.has_commit].sum()) / NS,
        "stragglers_s": waited_ns / NS,
        "stragglers_share": waited_ns / NS / simulated_s if simulated_s else 0.0,
    }


def straggling_ns(history: RoundTable, heard: Heard) -> Whole:
    """Of each round, the time from when half of the reports in time that it counts were there (the ⌈n/2⌉-th of n) to
    its closing; 0 for a round without."""
    counted, rounds = history.is_counted, history.opened_ns.size
    keys, of_round = history.reported.keys(history.clients)[counted], history.reported.round[counted]
    arrived_ns = heard.when(keys)
    is_known = arrived_ns >= 0
    arrived_ns, of_round = arrived_ns[is_known], of_round[is_known]
    arrived_ns = arrived_ns[np.lexsort((arrived_ns, of_round))]
    sizes = np.bincount(of_round, minlength=rounds)
    halves = (np.cumsum(sizes) - sizes + (sizes + 1) // 2 - 1)[sizes > 0]
    waited = np.zeros(rounds, np.int64)
    waited[sizes > 0] = history.closed_ns[sizes > 0] - arrived_ns[halves]
    return waited
