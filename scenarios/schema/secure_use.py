"""What a run with secure aggregation cannot have: whatever looks at single reports."""

from __future__ import annotations

from typing import Any

from seedbus.agents.secure.settings import MOST_NEIGHBOURS, SecureAggregation, Terms
from seedbus.agents.server.collusion import Collude
from seedbus.algorithms.summed import DENSE, Summed


def refuse_single_reports(scenario: Any, settings: SecureAggregation) -> None:
    """Raise `ValueError` if a `Scenario` with this `secure_aggregation` needs more than sums of reports."""
    algorithm, who = scenario.algorithm, scenario.participation
    if not (isinstance(algorithm, Summed) and algorithm.adds_up):
        raise ValueError(
            f"secure_aggregation adds whole numbers up, and the reports of algorithm {algorithm.name} are none "
            "with these settings; decomfl and fedscalar-shared with arithmetic: integer and precision: int32, and "
            f"{DENSE} are accepted"
        )
    if algorithm.aggregation.rule != "mean":
        raise ValueError(
            f"algorithm.aggregation: {algorithm.aggregation.rule} compares reports, and with secure_aggregation "
            "the server sees none; mean is accepted"
        )
    if who.late is not None:
        raise ValueError("participation.late: secure_aggregation cannot use late reports; leave late (and buffer) out")
    if who.selection.needs_known:
        raise ValueError(
            f"participation.selection: {who.selection.policy} looks at reports, and with secure_aggregation the "
            "server sees none; uniform is accepted"
        )
    if who.quorum < 2:
        raise ValueError("participation.quorum is 1; with secure_aggregation at least 2: a sum of one is a report")
    terms = Terms.of(settings, who)
    if terms.is_complete and who.wanted < (needed := terms.shares_needed(0)):
        raise ValueError(
            f"participation.over_selection: a round asks {who.asked} clients and closes with {who.wanted} reports, and "
            f"secure_aggregation.threshold {settings.threshold:.3g} unmasks no sum of fewer than {needed}; expected "
            "less of either"
        )
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault, Collude):
            raise ValueError(
                f"faults.{number} replaces reports in a commit, and with secure_aggregation the server sees none; "
                "leave it out"
            )
    if settings.neighbours == "all" and who.most_asked > MOST_NEIGHBOURS + 1:
        raise ValueError(
            f"secure_aggregation.neighbours: all are {who.most_asked - 1} in this cohort; at most {MOST_NEIGHBOURS} "
            "are accepted, as an even number"
        )
