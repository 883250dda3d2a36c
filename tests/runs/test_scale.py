"""Many clients: the cost of a round depends on its cohort, not on all clients, and all fit into memory."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
from availability_scenarios import churn

from seedbus.agents.observer import NullObserver
from seedbus.agents.server.member_index import MemberIndex
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate

ROUNDS, FIRST = 24, 6


class Counting(NullObserver):
    """Counts Python's profile events from round FIRST on, a measure of work that other processes do not affect."""

    def __init__(self) -> None:
        self.calls = 0

    def _count(self, frame: Any, event: str, argument: Any) -> None:
        self.calls += 1

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        if closed.round + 1 == ROUNDS:
            sys.setprofile(None)
        elif closed.round == FIRST:
            sys.setprofile(self._count)


def calls(folder: Path, clients: int, faults: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the profile events in the rounds, and the JOINs of the run."""
    document = {
        "name": "scale",
        "task": {"name": "null"},
        "algorithm": {"name": "decomfl"},
        "participation": {"clients": clients, "cohort": 20},
        "network": {"latency": {"distribution": "exponential", "mean": 0.1}},
        "faults": faults,
        "evaluation": {"every": 100},
        "stop": {"rounds": ROUNDS},
    }
    counting = Counting()
    try:
        results = run(validate(document, "scale"), folder, observer=counting)
    finally:
        sys.setprofile(None)
    assert results.summary["version"] == ROUNDS
    return counting.calls, results.summary["traffic"]["by_kind"].get("join", {}).get("messages", 0)


WORLDS: dict[str, Any] = {
    "everybody": lambda clients: [],
    # the same number leaves and returns in a round, however many clients there are
    "churn": lambda clients: [churn(clients / 8, clients / 8, initially=0.5)],
    "without state": lambda clients: [churn(clients / 8, clients / 8, initially=0.5, returns="without-state")],
    "diurnal": lambda clients: [{"fault": "diurnal", "low": 0.2, "period_s": clients / 8, "zones": 24}],
    "replacement": lambda clients: [{"fault": "replacement", "active": 200, "every_rounds": 50}],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_a_round_costs_no_more_with_more_clients(tmp_path: Path, name: str) -> None:
    (few, _), (many, joins) = (
        calls(tmp_path / str(clients), clients, WORLDS[name](clients)) for clients in (2_000, 40_000)
    )
    assert (joins > 10) == (name not in ("everybody", "replacement"))
    assert many < 1.25 * few, f"{few:,} calls with few clients, {many:,} with many"


@pytest.mark.slow
def test_a_hundred_thousand_clients_fit_into_memory(tmp_path: Path) -> None:
    faults = [
        churn(3000.0, 3000.0, initially=0.5),
        {"fault": "diurnal", "low": 0.2, "zones": 24},
        {"fault": "replacement", "active": 25_000, "every_rounds": 10, "fraction": 0.5},
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(tmp_path / "run", 100_000, faults)
    more_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    assert more_mb < 1000


def test_members_that_come_one_by_one_cost_little(tmp_path: Path) -> None:
    members = MemberIndex(50_000)
    members.update(range(0, 50_000, 2))
    assert members[10] == 20
    steps = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        steps[0] += 1

    tree = members._tree
    sys.setprofile(count)
    for client in range(1, 200, 2):
        members.update([client])
        assert members[0] == 0
    sys.setprofile(None)
    assert members._tree is tree and steps[0] < 100 * 200
    assert members[:5] == [0, 1, 2, 3, 4] and len(members) == 25_100


def test_what_is_built_for_a_run_is_not_looked_at_by_the_collector_until_the_run_has_ended(tmp_path: Path) -> None:
    assert gc.get_freeze_count() == 0
    seen: list[tuple[bool, int]] = []

    class Looking(NullObserver):
        def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
            seen.append((gc.isenabled(), gc.get_freeze_count()))

    document = {"name": "scale", "task": {"name": "null"}, "participation": {"clients": 3_000, "cohort": 5}}
    faults = {"faults": [churn(3000.0, 3000.0)], "algorithm": {"name": "decomfl"}, "stop": {"rounds": 2}}
    run(validate(document | faults, "scale"), tmp_path / "run", observer=Looking())
    assert len(seen) == 2 and all(enabled and frozen > 3_000 for enabled, frozen in seen)
    assert gc.isenabled() and gc.get_freeze_count() == 0
