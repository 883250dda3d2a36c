"""Runs that end by their clock: after the round in which a number of simulated seconds is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import go, scenario

from seedbus.scenarios.conformance.runs import ended, require_equal_ends, world
from seedbus.scenarios.transports.placement import Placement

INTEGER = {"name": "decomfl", "arithmetic": "integer", "learning_rate": 0.01}
WORK = {"evaluation": {"distribution": "exponential", "mean": 0.05}}
KINDS: dict[str, dict[str, Any]] = {
    "rounds": {},
    "buffer": {
        "participation": {"clients": 8, "cohort": 4, "buffer": 2, "deadline_s": 9, "late": {"max_staleness": 5}},
        "compute": WORK,
    },
    "stream": {"participation": {"mode": "stream", "clients": 8, "cohort": 4}, "algorithm": INTEGER, "compute": WORK},
    "gossip": {"topology": {"kind": "gossip", "graph": "ring"}, "algorithm": INTEGER, "participation": {"clients": 4}},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_round_in_which_the_time_is_over_is_the_last_and_is_evaluated(tmp_path: Path, kind: str) -> None:
    whole = go(tmp_path / "whole", world(**KINDS[kind]))
    closed_ns = whole.history.closed_ns
    for limit_ns, rounds in ((closed_ns[4], 5), (closed_ns[4] + 1, 6)):
        limit_s = int(limit_ns) / 1e9
        what = world(**KINDS[kind], stop={"rounds": 12, "simulated_s": limit_s})
        end = ended(what)
        require_equal_ends(ended(what, interrupted=True), end, "resumed", "in one piece")  # stopped after round 4
        if kind != "gossip":
            require_equal_ends(ended(what, Placement("tcp")), end, "on tcp", "in memory")
        assert end[0]["rounds"] == rounds and end[0]["metrics"]["round"] == rounds - 1
        passed = f"{closed_ns[rounds - 1] / 1e9:,.1f} s have passed, the limit was {limit_s:,g} s"
        assert end[0]["reason"].startswith(passed)


@pytest.mark.slow
def test_rounds_begin_at_multiples_of_a_time_and_none_at_the_end(tmp_path: Path) -> None:
    paced = {"clients": 8, "cohort": 4, "deadline_s": 0.7, "every_s": 0.5}
    what = world(participation=paced, stop={"rounds": 50, "simulated_s": 6.5})
    whole = go(tmp_path / "whole", what)
    opened_ns, closed_ns = whole.history.opened_ns, whole.history.closed_ns
    assert opened_ns[0] == 0 and set(opened_ns % 500_000_000) == {0}
    after_ns = opened_ns[1:] - closed_ns[:-1]
    assert ((after_ns > 0) & (after_ns < 500_000_000)).all(), "the next multiple, though a round takes several"
    assert {500_000_000, 1_000_000_000} <= set(opened_ns[1:] - opened_ns[:-1])
    assert whole.summary["reason"] == "6.5 s have passed, the limit was 6.5 s" and closed_ns[-1] < 6_500_000_000
    assert [*whole.metrics["round"]] == [0, 3, opened_ns.size - 1], "x₀, every fourth round, and the last"
    end = ended(what)
    require_equal_ends(ended(what, interrupted=True), end, "resumed", "in one piece")
    require_equal_ends(ended(what, Placement("tcp")), end, "on tcp", "in memory")


@pytest.mark.slow
def test_in_real_time_it_is_real_time_that_passes(tmp_path: Path) -> None:
    what = scenario(clock="wall", network={}, stop={"rounds": 10**6, "simulated_s": 0.4})
    summary = go(tmp_path / "run", what).summary
    assert 0.4 <= summary["simulated_s"] < 5 and 1 <= summary["rounds"] < 10**6
    assert "s have passed, the limit was 0.4 s" in summary["reason"]
