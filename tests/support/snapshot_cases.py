"""Scenarios in which clients lag so far behind that they need snapshots."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from worlds import lossy, scenario

from seedbus.agents.catch_up.client import Downloads
from seedbus.algorithms.contract import Replica
from seedbus.scenarios.schema.scenario import Scenario

CROWD = {"clients": 30, "cohort": 3}


def lagging(what: Any = scenario, **changes: Any) -> Scenario:
    """Return a scenario of thirty clients, three asked a round, of which most miss ten commits.

    A snapshot has twenty chunks or more.
    """
    lag = {"snapshot_after_commits": 4, "chunk_bytes": 128, "window": 4} | changes.pop("lag", {})
    result: Scenario = what(**({"participation": CROWD, "stop": {"rounds": 60}, "lag": lag} | changes))
    return result


def rough(probability: float, **changes: Any) -> Scenario:
    """`lagging` on links that lose messages, with a deadline that leaves time for a few windows of chunks."""
    participation = CROWD | {"deadline_s": 3.0}
    return lagging(partial(lossy, probability), **({"participation": participation, "stop": {"rounds": 100}} | changes))


def downloads_from(replica_at: Callable[[int], Replica]) -> Downloads:
    """Return the downloads of a process that could compute each version's replica."""
    replicas: Any = SimpleNamespace(at=replica_at)
    silent: Any = SimpleNamespace(noted=lambda *_, **__: None)
    return Downloads(replicas, silent, lambda envelope: [])
