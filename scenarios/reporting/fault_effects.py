"""What faults did to a run: when each was in force, how often it struck, and how rounds went then and otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seedbus.scenarios.faults.base import Fault, RoundSelector, TrafficSelector
from seedbus.scenarios.faults.server_crash import ServerCrash
from seedbus.scenarios.reporting.axes import segments
from seedbus.scenarios.reporting.closing_table import fault_counts
from seedbus.scenarios.reporting.looks import Marks
from seedbus.scenarios.reporting.round_table import Flags, RoundTable
from seedbus.scenarios.reporting.terminal import shown
from seedbus.scenarios.schema.scenario import Scenario

HEADS = (
    "fault",
    "what it did",
    "rounds in force",
    "reports in time",
    "a round takes (median)",
    "rounds without commit",
)
NOTE = "Reports in time are a share of those asked. The second line tells of the rounds without the fault."


def effects(scenario: Scenario, summary: Mapping[str, Any], history: RoundTable) -> list[list[str]]:
    """Return a row for each fault, as `HEADS` says; all texts are safe to print."""
    rows, has_server = [], scenario.has_server
    for fault, did in zip(scenario.faults, summary["faults"], strict=False):  # as many, in a folder that is our own
        is_due = due(fault, history)
        spans = [is_due, *([~is_due] if not is_due.all() else [])]
        parts = [_rounds(history, each, has_server=has_server) for each in spans]
        figures = ["\n".join(lines) for lines in zip(*parts, strict=True)]
        in_force = f"{int(is_due.sum()):,} of {is_due.size:,}"
        rows.append([shown(str(did["fault"])), shown(fault_counts(did)), in_force, *figures])
    return rows


def _rounds(history: RoundTable, of: Flags, *, has_server: bool) -> tuple[str, str, str]:
    """Return how some rounds went, bool [R]: the share of reports in time, their median duration, and commits.

    Without a server there are no reports, and so no share.
    """
    if not of.any():
        return "–", "–", "–"
    asked, reported = int(of[history.asked.round].sum()), int(of[history.reported.round].sum())
    took_s = (history.closed_ns - history.opened_ns)[of] / 1e9
    share = f"{reported / asked:.0%}" if asked and has_server else "–"
    return share, f"{float(np.median(took_s)):,.3g} s", f"{int((~history.has_commit[of]).sum()):,}"


def marks(scenario: Scenario, history: RoundTable) -> Marks:
    """Return which rounds made no commit, and in which a fault was in force that is not always."""
    windows = []
    for fault in scenario.faults:
        is_due = due(fault, history)
        if is_due.any() and not is_due.all():
            name = str(type(fault).model_fields["fault"].default)
            windows += [(float(start), float(end), name) for start, end in segments(is_due)]
    return Marks(np.flatnonzero(~history.has_commit) + 0.5, windows)


def due(fault: Fault, history: RoundTable) -> Flags:
    """Return in which rounds a fault was in force, bool [R]: for one of times, at the round's begin or end.

    A fault that has no rounds or times of its own, such as churn, is in force in all.
    """
    rounds = range(history.opened_ns.size)
    if isinstance(fault, ServerCrash):
        return np.array([fault.outage_ns(round, fault.phase) is not None for round in rounds], bool)
    if not isinstance(fault, RoundSelector):
        return np.ones(len(rounds), bool)
    found = np.array([fault.is_due(round) for round in rounds], bool)
    if isinstance(fault, TrafficSelector):
        times = zip(history.opened_ns.tolist(), history.closed_ns.tolist(), strict=True)
        found &= np.array([fault.is_open(opened) or fault.is_open(closed) for opened, closed in times], bool)
    return found
