"""The exchange of maximum norms before an over-the-air sum: its messages, its bytes, and its survival of faults and
crashes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from algorithm_cases import make
from availability_scenarios import churn
from coordinator_cases import cohort_of, joined_coordinator
from dense_federation import START, Bowl, D
from power_cuts import PowerCut, cut_power
from worlds import go, outcome, scenario

from seedbus.agents import messages
from seedbus.agents.journal.journal import Journal
from seedbus.agents.journal.records import Entry
from seedbus.bus import Bus, Fate, Kind, read_ledger
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement

AIR = {"kind": "aircomp", "threshold": 0.7}
SILENT = {"kind": "aircomp", "snr_db": None, "threshold": 0.0}
VECTOR = 4  # bytes of one norm; msgpack adds two to a byte string and one to an array


def airy(name: str = "fedavg", channel: Any = AIR, **changes: Any) -> Scenario:
    algorithm: dict[str, Any] = {"name": name, "learning_rate": 0.05, "channel": channel}
    return scenario(**{"algorithm": algorithm, "participation": {"clients": 8}, "stop": {"rounds": 12}} | changes)


def stormy() -> Scenario:
    """A scenario in which messages are lost or late, clients drop out, leave and return, and many reports miss the
    deadline."""
    faults = [
        {"fault": "drop", "probability": 0.15},
        {"fault": "straggler", "fraction": 0.3, "factor": {"distribution": "constant", "value": 4.0}},
        {"fault": "dropout", "probability": 0.1, "when": "after-training"},
        churn(),
    ]
    compute = {"evaluation": {"distribution": "exponential", "mean": 0.005}}
    participation = {"clients": 8, "deadline_s": 0.6, "quorum": 2}
    world = {"faults": faults, "compute": compute, "participation": participation, "stop": {"rounds": 20}}
    return airy("scaffold", **world)


def rows_of(results: Results, kind: Kind) -> list[dict[str, int]]:
    columns = read_ledger(results.folder / "messages")
    here = np.flatnonzero(columns["kind"] == kind)
    return [{name: int(column[row]) for name, column in columns.items()} for row in here]


# the server's messages


def gathered(norms: list[float]) -> tuple[Any, list[int]]:
    """Return a coordinator whose cohort has reported vectors with these norms, and the cohort."""
    algorithm = make("fedavg", channel=SILENT).sized(D)
    coordinator = joined_coordinator(4, 4, quorum=2, algorithm=algorithm, x0=START.copy)
    cohort = cohort_of(coordinator)
    plan = algorithm.plan(coordinator.round, coordinator.version, 0)
    for client, norm in zip(cohort, norms, strict=False):
        report, _ = algorithm.local(algorithm.replica(START), None, plan, Bowl(client, 0))
        long = algorithm.with_values(report, report.vectors * np.float32(norm / report.norms[0]))
        assert coordinator.reported(messages.pack_report(algorithm, client, plan, long, {})) is None
    return coordinator, cohort


def test_the_whole_cohort_receives_the_largest_reported_norm() -> None:
    coordinator, cohort = gathered([0.5, 3.0, 1.0])
    coordinator.deadline_passed(coordinator.round)
    coordinator.take_sent()
    coordinator.close_round()
    outbox = coordinator.take_sent()
    assert [(envelope.kind, envelope.client, envelope.round, envelope.base) for envelope, _ in outbox] == [
        (Kind.PEAK, client, 0, 0) for client in cohort
    ], "the fourth too, who was not heard"
    for envelope, tally in outbox:
        (raw,) = envelope.body
        assert np.frombuffer(raw, "<f4") == pytest.approx([3.0], rel=1e-6) and tally.scalars == 1


def test_a_round_without_a_commit_and_a_run_without_a_channel_send_no_peak() -> None:
    coordinator, _ = gathered([0.5])
    coordinator.deadline_passed(coordinator.round)
    coordinator.take_sent()
    assert coordinator.close_round().commit is None and coordinator.take_sent() == []
    plain = joined_coordinator(3, 3)
    plain.open_round()
    plain.close_round()
    assert plain.take_sent() == []


# bytes


@pytest.mark.slow
@pytest.mark.parametrize(("name", "vectors"), [("fedavg", 1), ("scaffold", 2)])
def test_a_round_costs_the_bytes_of_the_exchange(tmp_path: Path, name: str, vectors: int) -> None:
    """Each client of M_t sends ‖Δ_i‖ and receives Δ_max: 4 bytes a vector in addition to msgpack's framing."""
    results = go(tmp_path / "run", airy(name))
    peaks, plans, reports = (rows_of(results, kind) for kind in (Kind.PEAK, Kind.PLAN, Kind.REPORT))
    whom = [{(row["round"], row["recipient"]) for row in rows} for rows in (peaks, plans)]
    assert whom[0] == whom[1] and len(peaks) == len(plans) > 20, "all of M_t, in every round with a commit"
    assert {row["payload_bytes"] for row in peaks} == {1 + 2 + VECTOR * vectors}
    assert {row["scalars"] for row in peaks} == {vectors}
    same = airy(name, SILENT)
    bare = airy(name, None, algorithm={"name": name, "learning_rate": 0.05, "weighting": "uniform"})
    with_norms, without = (go(tmp_path / key, what) for key, what in (("norms", same), ("none", bare)))
    sizes = [
        {row["payload_bytes"] - row["digest_bytes"] for row in rows_of(r, Kind.REPORT)} for r in (results, without)
    ]
    assert [len(size) for size in sizes] == [1, 1]
    assert sizes[0].pop() - sizes[1].pop() == 2 + VECTOR * vectors
    assert len(reports) == len(peaks)
    assert rows_of(without, Kind.PEAK) == []
    assert with_norms.digest == without.digest, "at infinite SNR, with everybody, the same algorithm to the bit"


def test_a_peak_is_counted_as_bytes_down_in_the_table_and_for_each_client(tmp_path: Path) -> None:
    results = go(tmp_path / "run", airy())
    down = results.summary["traffic"]["down"]
    peaks, plans = rows_of(results, Kind.PEAK), rows_of(results, Kind.PLAN)
    assert down["bytes"] == sum(row["header_bytes"] + row["payload_bytes"] for row in [*peaks, *plans])
    assert down["messages"] == len(peaks) + len(plans)
    assert results.clients["bytes_down"].sum() == down["bytes"] == results.metrics["bytes_down"].iloc[-1]
    assert results.summary["traffic"]["by_kind"]["peak"]["messages"] == len(peaks)


def test_infinite_snr_over_the_air_is_fedzo_with_the_same_cohorts_to_the_bit(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"name": "fedzo", "learning_rate": 0.05, "perturbations": 3, "local_steps": 2}
    runs = [
        go(tmp_path / str(number), airy(algorithm={**fields, **channel}, participation={"clients": 8, "cohort": 3}))
        for number, channel in enumerate(({}, {"channel": SILENT}))
    ]
    assert runs[0].digest == runs[1].digest and runs[0].summary["version"] == 12


# faults and crashes


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_the_bits_and_the_messages_are_the_same_in_two_processes(tmp_path: Path) -> None:
    what = stormy()
    single = run(what, tmp_path / "here")
    distributed = run(what, tmp_path / "there", placement=Placement("tcp", workers=2))
    assert outcome(single) == outcome(distributed)
    fates = {row["fate"] for row in rows_of(single, Kind.PEAK)}
    assert {Fate.DELIVERED, Fate.DROPPED} <= fates
    assert 0 < single.summary["version"] < 20 and "unexpected" not in (single.folder / "log.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "method", "first", "before"),
    [
        (Journal, "append", 1, False),
        (Journal, "append", 2, True),
        (Bus, "send", 23, True),
        (Bus, "_deliver", 11, False),
        (Bus, "_send_answer", 17, True),
        (Bus, "_settle", 29, False),
    ],
)
def test_a_run_that_crashes_repeatedly_ends_with_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, first: int, before: bool
) -> None:
    what = stormy()
    uninterrupted = outcome(run(what, tmp_path / "whole"))
    in_flight, append = [0], Journal.append

    def look(self: Journal, entry: Entry) -> None:
        in_flight[0] += any(flight[2] == Kind.PEAK for flight in entry.state[1][2])
        append(self, entry)

    for cuts in itertools.count():
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", look)
            # each crash is later than the last, so that every attempt makes progress
            cut_power(patch, owner, method, first + 3 * cuts, before=before)
            patch.setattr("seedbus.agents.launcher._ServerRun.tidy", lambda self: None)
            try:
                results = run(what, tmp_path / "cut", resume=cuts > 0)
                break
            except PowerCut:
                pass
    assert cuts > 1 and in_flight[0] > 0, "a checkpoint has held some on their way"
    assert outcome(results) == uninterrupted
