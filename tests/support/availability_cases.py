"""Hypothesis strategies: random availability faults, and random moments of a run, (round, time in ns), ascending."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from seedbus.scenarios.faults.churn import Churn
from seedbus.scenarios.faults.crash import Crash
from seedbus.scenarios.faults.diurnal import Diurnal
from seedbus.scenarios.faults.late_joiners import LateJoiners
from seedbus.scenarios.faults.ramp import Ramp, Stage
from seedbus.scenarios.faults.replacement import Replacement

SECOND = 10**9
CLIENTS = 12


def exponential(mean: float) -> Any:
    return {"distribution": "exponential", "mean": mean}


churns = st.builds(
    lambda stays, away, initially: Churn(
        stays=exponential(stays),
        away=exponential(away),
        initially=initially,
    ),
    st.floats(0.1, 20),
    st.floats(0.1, 20),
    st.sampled_from([0.0, 0.5, 1.0]),
)
crashes = st.integers(1, 9).flatmap(
    lambda every: st.builds(
        Crash,
        at_round=st.integers(0, 20),
        for_rounds=st.integers(1, every),
        every_rounds=st.just(every),
        probability=st.sampled_from([0.1, 0.5, 1.0]),
    )
)
lasting = st.builds(
    Crash, at_round=st.integers(0, 20), for_rounds=st.none() | st.integers(1, 9), fraction=st.sampled_from([0.5, 1.0])
)
stages = st.lists(st.builds(Stage, rounds=st.integers(1, 12), target=st.integers(0, 15)), min_size=1, max_size=4)
ramps = st.builds(Ramp, start=st.integers(0, 15), stages=stages)
late = st.builds(LateJoiners, at_round=st.integers(1, 9), spread_rounds=st.integers(1, 20))
replacements = st.builds(
    Replacement,
    active=st.integers(1, 14),
    every_rounds=st.integers(1, 9),
    probability=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
diurnals = st.builds(
    lambda low, extra, period, zones: Diurnal(low=low, high=min(1.0, low + extra), period_s=period, zones=zones),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0.5, 50),
    st.integers(1, 5),
)
PRESENCES: dict[str, Any] = {
    "churn": churns,
    "crash": crashes | lasting,
    "ramp": ramps,
    "late-joiners": late,
    "replacement": replacements,
    "diurnal": diurnals,
}
anything = st.one_of(*PRESENCES.values())
moments = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8 * SECOND)), min_size=1, max_size=12).map(
    lambda steps: [
        (sum(step[0] for step in steps[: number + 1]), sum(step[1] for step in steps[: number + 1]))
        for number in range(len(steps))
    ]
)
