"""`expect:` in a scenario: what a run is to reach, so that its file is also a test.

A mapping from a name to bounds. The name is a metric (its value at the end), a metric with `_ema` (its moving
average, as `stop.target` has it), one of `FIGURES`, or `refused_` and a reason. What is expected changes no bit of a
run, and is no part of which run it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbus.agents.server.stopping import averages

AVERAGE = "_ema"
REFUSED = "refused_"


class Bounds(BaseModel):
    """What a figure is to be, both ends included; at least one of the two."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    at_least: float | None = Field(default=None, description="no less than this")
    at_most: float | None = Field(default=None, description="no more than this")

    @model_validator(mode="after")
    def _sound(self) -> Bounds:
        if self.at_least is None and self.at_most is None:
            raise ValueError("it has no bound; give at_least, at_most or both")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least ({self.at_least:g}) is more than at_most ({self.at_most:g})")
        return self

    def holds(self, found: float | None) -> bool:
        """Whether what was found is within the bounds; what was not found, or is not finite, never is."""
        if found is None:
            return False
        return (self.at_least is None or found >= self.at_least) and (self.at_most is None or found <= self.at_most)


class Figure(NamedTuple):
    """Where a figure stands in a run's summary, and what it is."""

    path: str
    what: str


FIGURES = {
    "rounds": Figure("rounds", "rounds attempted"),
    "commits": Figure("version", "rounds with a commit"),
    "simulated_s": Figure("simulated_s", "seconds of the run's clock"),
    "bytes": Figure("traffic.bytes", "bytes of plans and reports, all clients"),
    "bytes_up": Figure("traffic.up.bytes", "of these, of reports"),
    "bytes_down": Figure("traffic.down.bytes", "of these, of plans with what clients had missed"),
    "bytes_per_client": Figure("traffic.bytes_per_client", "up and down, for one client over the run"),
    "catchup_share": Figure("traffic.catchup_share", "share of these bytes that is commits that clients had missed"),
    "heard_share": Figure("participation.heard_share", "share of all clients that were heard at least once"),
    "participation_gini": Figure("participation.gini", "how unevenly counted reports are shared: 0 evenly, near 1 not"),
    "lag_mean": Figure("lag.mean", "commits that a client has missed when it is asked"),
    "lag_p95": Figure("lag.p95", "of these, 95 % of the times at most"),
    "lag_max": Figure("lag.max", "and the most"),
    "staleness_mean": Figure("staleness.mean", "commits made between the start of a counted report and its own"),
    "staleness_p95": Figure("staleness.p95", "of these, 95 % of the reports at most"),
    "staleness_max": Figure("staleness.max", "and the most"),
    "late_share": Figure("staleness.late_share", "share of the counted reports that missed their round"),
    "round_mean_s": Figure("round_times.mean_s", "how long a round takes, seconds of the run's clock"),
    "round_median_s": Figure("round_times.median_s", "half of the rounds take at most so long"),
    "round_p95_s": Figure("round_times.p95_s", "95 % of the rounds take at most so long"),
    "round_max_s": Figure("round_times.max_s", "and the longest"),
    "rounds_at_deadline": Figure("round_times.at_deadline", "rounds that their deadline closed"),
    "rounds_without_commit": Figure("round_times.without_commit", "rounds that had no quorum"),
    "stragglers_share": Figure("round_times.stragglers_share", "share of the time that rounds wait for stragglers"),
    "refused": Figure("refusals", "messages refused, for whatever reason"),
}
Expect = Mapping[str, Bounds]


def names(metrics: Sequence[str]) -> list[str]:
    """All that may be expected of a run with these metrics, but refusals for one reason."""
    return [*metrics, *(metric + AVERAGE for metric in metrics), *FIGURES]


def judged(expect: Expect, summary: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """name → its bounds, what was found, and whether it is met. lines: of metrics, oldest first."""
    found = {name: _found(name, summary, lines) for name in expect}
    return {
        name: bounds.model_dump() | {"found": found[name], "is_met": bounds.holds(found[name])}
        for name, bounds in expect.items()
    }


def _found(name: str, summary: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> float | None:
    if name.startswith(REFUSED):
        return _refusals(summary["refusals"], name.removeprefix(REFUSED))
    if name == "refused":
        return sum(_refusals(summary["refusals"], reason) for reason in summary["refusals"])
    if name in FIGURES:
        value: Any = summary
        for part in FIGURES[name].path.split("."):
            value = value[part]
        return float(value) if isinstance(value, float) else int(value)
    if name.endswith(AVERAGE):
        average = averages(lines, name.removesuffix(AVERAGE))[-1:]
        return average[0] if average and math.isfinite(average[0]) else None
    last = lines[-1].get(name) if lines else None
    return None if last is None else float(last)


def _refusals(refusals: Mapping[str, Mapping[str, int]], reason: str) -> int:
    return sum(refusals.get(reason, {}).values())
