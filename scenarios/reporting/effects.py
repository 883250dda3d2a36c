"""What faults did to a run: how often each struck, and how rounds went while it was in force, and otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seedbus.scenarios.reporting.ran import due
from seedbus.scenarios.reporting.report import fault_counts
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
