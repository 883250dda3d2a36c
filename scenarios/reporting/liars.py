"""How many of a commit's reports were false, beside how many the aggregation rule is made for."""

from __future__ import annotations

import numpy as np

from seedbus.bus.fault_hooks import ByzantineHook, Mislabelling
from seedbus.scenarios.reporting.round_table import RoundTable
from seedbus.scenarios.schema.scenario import Scenario


def liars(scenario: Scenario, history: RoundTable) -> dict[str, float]:
    """Return the `liars` part of a run's summary: `commits` with false reports, `median`, `most`, `beyond`.

    A report is false if a fault falsifies it, or the labels that it was made from; late ones are left out. Median and
    most are of all commits, and in `beyond` of them there were more than the rule withstands. {} without such a fault,
    or without commits.

    Args:
        scenario: the run's scenario.
        history: its rounds.
    """
    faults = scenario.faults_with_draws
    lying = [(fault.lies, random) for fault, random in faults if isinstance(fault, ByzantineHook)]
    lying += [(fault.mislabels, random) for fault, random in faults if isinstance(fault, Mislabelling)]
    if not lying or not scenario.has_server or not history.has_commit.any():
        return {}
    rounds = history.reported.round[history.is_counted]
    clients = history.reported.client[history.is_counted]
    is_false = [
        any(lies(client, round, random) for lies, random in lying)
        for round, client in zip(rounds.tolist(), clients.tolist(), strict=True)
    ]
    count = history.has_commit.size
    reports = np.bincount(rounds, minlength=count)[history.has_commit]
    false = np.bincount(rounds, np.array(is_false, np.float64), count)[history.has_commit].astype(np.int64)
    withstands = {number: scenario.algorithm.facts.rule.withstands(number) for number in set(reports.tolist())}
    beyond = [found > withstands[number] for found, number in zip(false.tolist(), reports.tolist(), strict=True)]
    return {
        "commits": int((false > 0).sum()),
        "median": float(np.median(false)),
        "most": int(false.max()),
        "beyond": sum(beyond),
    }
