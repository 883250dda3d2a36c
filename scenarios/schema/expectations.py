"""`expect:` in a scenario: bounds on the results of a run, which make the scenario file a test.

It is a mapping from names to bounds. A name is a metric (its last value), a metric with the suffix `_ema` (its moving
average, as for `stop.target`), one of `FIGURES`, `verified_` and a field of the replica (x, hessian, …), or `refused_`
and a reason. Expectations change no bit of a run and
are not part of its identity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from seedbus.agents.server.stopping import averages
from seedbus.capabilities import Fact, Needs, Statement
from seedbus.settings import Settings

AVERAGE_SUFFIX = "_ema"
REFUSED_PREFIX = "refused_"
VERIFIED_PREFIX = "verified_"


class Bounds(Settings):
    """The range of accepted values of a figure, both ends included. At least one bound is given."""

    at_least: float | None = Field(default=None, description="lowest accepted value")
    at_most: float | None = Field(default=None, description="highest accepted value")

    @model_validator(mode="after")
    def _check_bounds(self) -> Bounds:
        if self.at_least is None and self.at_most is None:
            raise ValueError("it has no bound; give at_least, at_most or both")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least ({self.at_least:g}) is more than at_most ({self.at_most:g})")
        return self

    def holds(self, value: float | None) -> bool:
        """True if the value is within the bounds; False for None, which stands for a missing or non-finite value."""
        if value is None:
            return False
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


class Figure(NamedTuple):
    """A figure of a run's summary.

    Attributes:
        path: its place in the summary, with dots between the keys.
        what: its description.
        missing: the value where a summary has no such place; None: it is not known.
    """

    path: str
    what: str
    missing: int | None = None


FIGURES = {
    "rounds": Figure("rounds", "rounds attempted"),
    "commits": Figure("version", "rounds with a commit"),
    "simulated_s": Figure("simulated_s", "seconds of the run's clock"),
    "bytes": Figure("traffic.bytes", "bytes of the algorithm's messages, in both directions"),
    "bytes_up": Figure(
        "traffic.up.bytes", "bytes that clients sent: reports, parts of snapshots and of secure aggregation"
    ),
    "bytes_down": Figure(
        "traffic.down.bytes", "bytes that were sent to clients: plans with the commits that they missed, snapshots"
    ),
    "bytes_per_client": Figure("traffic.bytes_per_client", "bytes in both directions per client, over the whole run"),
    "catchup_share": Figure("traffic.catchup_share", "fraction of `bytes` that are commits, the newest included"),
    "heard_share": Figure("participation.heard_share", "fraction of clients from which at least one report arrived"),
    "clients_without_report": Figure(
        "participation.counted.none", "clients none of whose reports counts; without a server, nodes without a commit"
    ),
    "participation_gini": Figure(
        "participation.gini", "Gini coefficient of counted reports per client; 0 if all clients have the same number"
    ),
    "lag_mean": Figure("lag.mean", "commits that a client has missed when it is asked, mean"),
    "lag_max": Figure("lag.max", "the same, maximum"),
    "replayed": Figure("traffic.replayed", "commits that clients folded to catch up, the newest included"),
    "snapshots": Figure(
        "traffic.by_kind.snapshot.messages", "offers and chunks of snapshots, in place of missed commits", missing=0
    ),
    "staleness_mean": Figure("staleness.mean", "commits between the start of a counted report and its commit, mean"),
    "staleness_max": Figure("staleness.max", "the same, maximum"),
    "late_share": Figure("staleness.late_share", "fraction of the counted reports that missed their round"),
    "round_mean_s": Figure("round_times.mean_s", "duration of a round in seconds of the run's clock, mean"),
    "round_p95_s": Figure("round_times.p95_s", "the same, 95th percentile"),
    "rounds_at_deadline": Figure("round_times.at_deadline", "rounds closed by their deadline"),
    "rounds_without_commit": Figure("round_times.without_commit", "rounds without a commit, for any reason"),
    "stragglers_share": Figure(
        "round_times.stragglers_share", "fraction of the run's clock spent waiting for stragglers"
    ),
    "in_vain_share": Figure(
        "round_times.in_vain_share", "the same, in rounds that waited until their deadline for reports that never came"
    ),
    "commits_with_false_reports": Figure(
        "liars.commits", "commits with reports that a fault falsified, or that were made from wrong labels", missing=0
    ),
    "commits_beyond_rule": Figure(
        "liars.beyond", "commits in which more of these were false than the aggregation rule withstands", missing=0
    ),
    "refused": Figure("refusals", "refused messages, for all reasons"),
}
_OF_REPORTS = {
    *("bytes_down", "heard_share", "late_share", "rounds_at_deadline", "stragglers_share", "in_vain_share"),
    *("commits_with_false_reports", "commits_beyond_rule"),
    *(f"staleness_{each}" for each in ("max", "mean")),
}
"""The figures of reports to a server, and of what it sends."""


def of_expected(expected: Mapping[str, Bounds]) -> Iterator[Statement]:
    """Yield what the results need that a scenario expects."""
    for name in sorted(expected):
        if name in _OF_REPORTS or name.startswith(VERIFIED_PREFIX):
            yield Needs(Fact.SERVER, "is of reports to a server", f".{name}")


Expect = Mapping[str, Bounds]


def known_names(metrics: Sequence[str]) -> list[str]:
    """Return the names that `expect` accepts for a run with these metrics, except those of refusals by reason."""
    return [*metrics, *(metric + AVERAGE_SUFFIX for metric in metrics), *FIGURES]


def judged(expect: Expect, summary: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Compare the results of a run with what is expected.

    Args:
        expect: the bounds by name.
        summary: the summary of the run, as in `results.json`.
        lines: the run's evaluations, oldest first.

    Returns:
        For each name: its bounds, `found` (the value, None if there is none) and `is_met`.
    """
    values = found(expect, summary, lines)
    return {
        name: bounds.model_dump() | {"found": values[name], "is_met": bounds.holds(values[name])}
        for name, bounds in expect.items()
    }


def found(
    names: Iterable[str], summary: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> dict[str, float | None]:
    """Return figures and metrics of a run by name; None for one that is missing or not finite. Arguments: `judged`."""
    return {name: _value(name, summary, lines) for name in names}


def _value(name: str, summary: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> float | None:
    if name.startswith(REFUSED_PREFIX):
        return _refusals(summary["refusals"], name.removeprefix(REFUSED_PREFIX))
    if name == "refused":
        return sum(_refusals(summary["refusals"], reason) for reason in summary["refusals"])
    if name.startswith(VERIFIED_PREFIX):
        is_field = name.removeprefix(VERIFIED_PREFIX) in summary.get("digests", {})
        return summary.get("verified", 0) if is_field else None
    if name in FIGURES:
        value: Any = summary
        for part in FIGURES[name].path.split("."):
            value = value.get(part, {})  # an earlier version's summary may lack the last part
        if value == {}:
            return FIGURES[name].missing
        return value if value is None or isinstance(value, float) else int(value)
    if name.endswith(AVERAGE_SUFFIX):
        average = averages(lines, name.removesuffix(AVERAGE_SUFFIX))[-1:]
        return average[0] if average and math.isfinite(average[0]) else None
    last = lines[-1].get(name) if lines else None
    return None if last is None else float(last)


def _refusals(refusals: Mapping[str, Mapping[str, int]], reason: str) -> int:
    return sum(refusals.get(reason, {}).values())
