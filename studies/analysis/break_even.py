"""Replay or pull: at which lag a snapshot takes fewer bytes than the commits, or their sum, that a client missed.

Commits are this run's own, packed as its server packs them; a snapshot is one of its replica, in chunks, with its offer
and the client's requests, as `lag:` sends it (DeComFL, arXiv:2405.15861, A.3, pulls a model past some lag). It is new:
commits do not come on top; with `source: peer` what the peer is sent and sends counts, too. `snapshot_after_bytes:
snapshot` has one fetched above the same lag. Where the ledger has plans with so many missed commits, and none that the
client had, its mean is beside the count: they are the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np

from seedbus.agents.catch_up.settings import Lag
from seedbus.agents.catch_up.snapshot_bytes import SnapshotBytes
from seedbus.algorithms.contract import Algorithm
from seedbus.bus import Fate, Kind
from seedbus.scenarios.reporting.findings import Finding, Plot
from seedbus.scenarios.reporting.looks import Line
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.round_table import Pairs
from seedbus.scenarios.running.prepare import proofs_of
from seedbus.studies.analysis.subject import NotHere, Subject

TITLE = "Replay or pull: bytes by lag"
_STEPS = (1, 2, 5)


class BreakEven(NamedTuple):
    """Where a snapshot begins to take fewer bytes.

    Attributes:
        lag: the most missed commits that take no more bytes than a snapshot; None: any number does.
        is_measured: whether the run has so many commits; otherwise the lag is extrapolated.
    """

    lag: int | None
    is_measured: bool

    def __str__(self) -> str:
        if self.lag is None:
            return "at no lag"
        return f"above a lag of {self.lag:,}{'' if self.is_measured else ', extrapolated'}"


def break_even(run: Subject) -> Finding:
    """Count them. Raises `NotHere`."""
    algorithm, commits = run.algorithm, run.commits
    if algorithm.facts.is_dense:
        raise NotHere(
            f"{algorithm.facts.label} is dense: every plan has the whole model, and nobody catches up by commits"
        )
    if not run.scenario.has_server:
        raise NotHere("nodes without a server send each other the commits that they lack, and no snapshots")
    if len(commits) < 2:
        raise NotHere("the run has fewer than two commits")
    replica = run.models[-1].replayed.replica
    lag = run.scenario.lag or Lag(snapshot_after_commits=1)
    size_of_model = sum(field.nbytes for field in replica.fields.values())
    counts = SnapshotBytes(size_of_model, lag, proofs_of(run.scenario, run.problem))
    about = replica.version, 0, replica.version  # a client and a round with numbers about as long as any
    down, up = counts.of_offer(*about)
    fetched = sum(counts.of_fetch(*about)) if lag.source == "peer" else 0
    whole = down + up + fetched

    def size(lag: int) -> int:
        return catch_up_bytes(algorithm, commits, lag)

    shown = [lag for lag in _round_numbers(len(commits)) if lag <= len(commits)]
    sizes = {lag: size(lag) for lag in sorted({*shown, len(commits)})}
    # the plan after a snapshot has an empty list in the commits' place, a byte
    found = crossing(size, len(commits), whole + 1, algorithm.facts.most_catch_up_bytes)
    measured = _measured(run)
    rows = [[f"{lag:,}", f"{each:,}", _ledger(measured, lag), f"{each / whole:.2%}"] for lag, each in sizes.items()]
    lags = run.results.history.lags
    beyond = float((lags > found.lag).mean()) if found.lag is not None and lags.size else 0.0
    notes = [
        f"A snapshot takes {whole:,} bytes ({readable(down)} down, {readable(up)} up"
        f"{f', {readable(fetched)} to and from its peer' if fetched else ''}), and is cheaper {found}.",
        f"In this run clients had missed {np.median(lags):g} commits (median) and {lags.max():,} at most when they "
        f"were asked; {beyond:.1%} of the lags were beyond that.",
    ]
    facts = {
        "snapshot_bytes": {"down": down, "up": up, "fetched": fetched},
        "catch_up_bytes": {str(lag): each for lag, each in sizes.items()},
        "ledger_mean_bytes": {str(lag): mean for lag, (mean, _) in sorted(measured.items())},
        "break_even_lag": found.lag,
        "is_measured": found.is_measured,
        "share_beyond": beyond,
    }
    return Finding(
        "break-even",
        TITLE,
        ["missed commits", "bytes", "mean in the ledger", "of a snapshot"],
        rows,
        notes,
        [_plot(sizes, whole)],
        facts,
    )


def _plot(sizes: Mapping[int, int], whole: int) -> Plot:
    """Draw the bytes of commits by how many were missed, beside those of a snapshot."""
    drawn = [
        Line("commits, or their sum", list(sizes), [each / 1000 for each in sizes.values()]),
        Line("snapshot", list(sizes), [whole / 1000] * len(sizes)),
    ]
    return Plot.of_lines("Catching up", "missed commits (log scale)", "kB", drawn, is_log=True)


def catch_up_bytes(algorithm: Algorithm, commits: Sequence[Any], lag: int) -> int:
    """Return the bytes of what a client is sent that missed the last `lag` of the commits."""
    return len(msgpack.packb(algorithm.pack_commits(commits[len(commits) - lag :]).body))


def crossing(size: Callable[[int], int], most: int, snapshot: int, bound: int | None) -> BreakEven:
    """Return the lag above which a snapshot takes fewer bytes.

    Args:
        size: lag → bytes of catching up, for lags from 1 to `most`; it does not fall.
        most: the number of commits that there are, at least 2. Beyond, bytes grow as over the last half.
        snapshot: bytes of a snapshot.
        bound: the most bytes that catching up takes; None: there is no bound.
    """
    whole = size(most)
    if whole > snapshot:
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if size(middle) > snapshot else (middle, high)
        return BreakEven(low, is_measured=True)
    if bound is not None and bound <= snapshot:
        return BreakEven(None, is_measured=True)
    slope = (whole - size(most // 2)) / (most - most // 2)
    return BreakEven(most + int((snapshot - whole) / slope), is_measured=False) if slope > 0 else BreakEven(None, False)


def _round_numbers(most: int) -> list[int]:
    return [step * 10**power for power in range(len(str(most))) for step in _STEPS]


def _measured(run: Subject) -> dict[int, tuple[float, int]]:
    """Return lag → mean bytes of catch-up in the ledger's plans without commits that came again, and their number."""
    history, columns = run.results.history, run.results.columns
    is_plan = (columns["kind"] == Kind.PLAN) & (columns["recipient"] >= 0) & (columns["fate"] == Fate.DELIVERED)
    is_plan &= (columns["recipient"] < history.clients) & (columns["repeated"] == 0)
    keys = Pairs(columns["round"][is_plan], columns["recipient"][is_plan]).keys(history.clients)
    once, first = np.unique(keys, return_index=True)
    asked = history.asked.keys(history.clients)
    place = np.minimum(np.searchsorted(once, asked), max(once.size - 1, 0))
    if not once.size:
        return {}
    is_known = once[place] == asked
    sizes, lags = columns["catchup_bytes"][is_plan][first][place][is_known], history.lags[is_known]
    return {
        lag: (float(sizes[lags == lag].mean()), int((lags == lag).sum())) for lag in np.unique(lags).tolist() if lag > 0
    }


def _ledger(measured: dict[int, tuple[float, int]], lag: int) -> str:
    if lag not in measured:
        return "–"
    mean, plans = measured[lag]
    return f"{mean:,.1f} ({plans:,} {'plan' if plans == 1 else 'plans'})"
