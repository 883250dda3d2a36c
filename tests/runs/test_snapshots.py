"""Clients that lag get a snapshot, with the bits of a replay, whatever the transport and whatever fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from power_cuts import PowerCut, cut_power
from snapshot_cases import CROWD, lagging, rough
from worlds import DECOMFL, HISO, outcome, scenario

from seedbus.agents.catch_up.client import Downloads
from seedbus.agents.journal.journal import Journal
from seedbus.agents.server.server import Server
from seedbus.bus import Kind, read_ledger
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario

INTEGER: dict[str, Any] = DECOMFL | {"momentum": 0.0, "arithmetic": "integer"}
POOL = {"name": "fedkseed", "pool": 64, "perturbations": 5, "learning_rate": 0.01, "directions": "rademacher"}


def kinds(results: Results) -> dict[str, int]:
    return {kind: line["messages"] for kind, line in results.summary["traffic"]["by_kind"].items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "source", "budget"),
    [
        (DECOMFL, "evaluator", {"snapshot_after_commits": 4}),
        (DECOMFL, "peer", {"snapshot_after_bytes": 300}),
        (HISO, "evaluator", {"snapshot_after_bytes": 300}),
        (HISO, "peer", {"snapshot_after_commits": 4}),
        (INTEGER, "evaluator", {"snapshot_after_commits": 4}),
        (POOL, "evaluator", {"snapshot_after_commits": 4}),
    ],
    ids=str,
)
def test_a_client_that_pulled_a_snapshot_holds_the_bits_of_one_that_replayed(
    tmp_path: Path, algorithm: dict[str, Any], source: str, budget: dict[str, Any]
) -> None:
    what = lagging(algorithm=algorithm, lag={"snapshot_after_commits": None, "source": source} | budget)
    results = run(what, tmp_path / "run")
    without = run(what.model_copy(update={"lag": None}), tmp_path / "without")
    assert results.digest == without.digest == replay(tmp_path / "run").digest
    assert results.summary["refusals"] == {}
    assert kinds(results)["snapshot"] > 200 and kinds(results)["join"] > 10
    assert "snapshot" not in kinds(without)
    plans = results.messages.query("kind == 'PLAN'")
    assert plans["catchup_bytes"].max() < without.messages.query("kind == 'PLAN'")["catchup_bytes"].max()


@pytest.mark.slow
def test_a_budget_bounds_the_commits_of_every_plan(tmp_path: Path) -> None:
    results = run(lagging(), tmp_path / "run")
    assert results.messages.query("kind == 'PLAN'")["seeds"].max() == 1 + 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "probability", "source"),
    [(DECOMFL, 0.1, "evaluator"), (DECOMFL, 0.3, "peer"), (HISO, 0.1, "peer"), (HISO, 0.3, "evaluator")],
    ids=str,
)
def test_what_is_lost_is_asked_for_again_when_the_client_is(
    tmp_path: Path, algorithm: dict[str, Any], probability: float, source: str
) -> None:
    results = run(rough(probability, algorithm=algorithm, lag={"source": source}), tmp_path / "run")
    assert results.digest == replay(tmp_path / "run").digest
    assert "diverged" not in results.summary["refusals"]
    lost = results.messages.query("fate == 'DROPPED'")["kind"].unique()
    assert {"SNAPSHOT", "PULL"} <= set(lost)


@pytest.mark.slow
def test_a_half_snapshot_is_not_pulled_twice(tmp_path: Path) -> None:
    """One client lags on links that lose a third; only chunks that were lost are sent twice."""
    what = rough(
        0.3,
        participation={"clients": 2, "cohort": 2, "deadline_s": 3.0},
        lag={"snapshot_after_commits": 50},
        faults=[
            {"fault": "crash", "clients": [1], "at_round": 1, "for_rounds": 60, "returns": "with-state"},
            {"fault": "drop", "probability": 0.3, "clients": [1]},
        ],
    )
    results = run(what, tmp_path / "run")
    sent = results.messages.query("kind == 'SNAPSHOT' and recipient == 1")
    offers = sent.query("payload_bytes < 40")
    chunks = len(sent) - len(offers)
    count = -(-2 * 4 * 300 // 128)
    lost = len(sent.query("payload_bytes >= 40 and fate == 'DROPPED'"))
    assert len(offers) > 1 and lost > 0
    assert chunks == count + lost
    assert (results.messages.query("kind == 'JOIN' and sender == 1")).shape[0] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("returns", ["without-state", "from-another-run"])
def test_a_client_that_lost_its_state_gets_a_snapshot(tmp_path: Path, returns: str) -> None:
    what = lagging(
        participation={"clients": 4, "cohort": 4, "deadline_s": 10.0},
        faults=[{"fault": "crash", "clients": [2], "at_round": 20, "for_rounds": 3, "returns": returns}],
    )
    results = run(what, tmp_path / "run")
    assert set(results.summary["refusals"]) <= {"foreign-version"}
    pulled = results.messages.query("kind == 'PULL'")
    assert set(pulled["sender"]) == {2} and len(pulled) >= 5
    assert results.messages.query("kind == 'REPORT' and sender == 2")["round"].max() == 59


@pytest.mark.slow
def test_a_newcomer_to_a_long_run_gets_a_snapshot(tmp_path: Path) -> None:
    what = lagging(
        participation={"clients": 200, "cohort": 2}, stop={"rounds": 150}, lag={"snapshot_after_commits": 20}
    )
    results = run(what, tmp_path / "run")
    assert results.messages.query("kind == 'PLAN'")["seeds"].max() <= 21
    assert results.digest == replay(tmp_path / "run").digest


def _rough(algorithm: dict[str, Any], source: str) -> Scenario:
    return rough(0.2, algorithm=algorithm, lag={"source": source})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """The outcomes of the same runs without an interruption."""
    folder = tmp_path_factory.mktemp("whole")
    return {
        (algorithm["name"], source): outcome(run(_rough(algorithm, source), folder / f"{algorithm['name']}-{source}"))
        for algorithm in (DECOMFL, HISO)
        for source in ("evaluator", "peer")
    }


@pytest.mark.slow
def test_a_run_cut_off_again_and_again_rebuilds_what_its_clients_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[tuple[str, str], Any]
) -> None:
    rebuilt: list[int] = []
    joined = Downloads._joined

    def watch(self: Downloads, download: Any) -> bytes:
        rebuilt.extend(index for index in range(download.title.count) if index not in download.checks)
        return joined(self, download)

    monkeypatch.setattr(Downloads, "_joined", watch)
    what, cuts, resume = _rough(HISO, "evaluator"), 0, False
    while True:
        with monkeypatch.context() as patch:
            cut_power(patch, Journal, "append", 3, before=cuts % 2 == 0)
            try:
                results = run(what, tmp_path / "cut", resume=resume)
                break
            except PowerCut:
                cuts, resume = cuts + 1, True
    assert cuts > 20 and len(rebuilt) > 3
    assert outcome(results) == whole["hiso", "evaluator"]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["evaluator", "peer"])
def test_the_server_holds_few_commits_and_strands_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    held = _watched(monkeypatch)
    participation = {"clients": 100, "cohort": 5, "deadline_s": 4.0}
    lag = {"snapshot_after_commits": 30, "source": source, "chunk_bytes": 1024}
    what = rough(0.1, participation=participation, stop={"rounds": 400}, lag=lag)
    results = run(what, tmp_path / "run")
    assert results.summary["version"] > 300 and max(held) <= 31
    last = results.messages.query("kind == 'REPORT'").groupby("sender")["round"].max()
    assert len(last) == 100 and last.min() > 100


@pytest.mark.slow
def test_without_a_budget_history_goes_back_to_the_slowest_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _watched(monkeypatch)
    results = run(scenario(participation={"clients": 4, "cohort": 4}, stop={"rounds": 50}), tmp_path / "run")
    assert results.summary["version"] == 50 and max(held) <= 2
    held.clear()
    results = run(scenario(participation={"clients": 400, "cohort": 4}, stop={"rounds": 50}), tmp_path / "pinned")
    assert max(held) == results.summary["version"] == 50


def test_what_is_held_no_more_is_read_back_for_who_needs_it_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _watched(monkeypatch)
    what = scenario(
        participation={"clients": 4, "cohort": 4, "deadline_s": 10.0},
        faults=[{"fault": "crash", "clients": [2], "at_round": 30, "for_rounds": 3, "returns": "without-state"}],
        stop={"rounds": 40},
    )
    results = run(what, tmp_path / "run")
    assert results.messages.query("kind == 'PLAN' and recipient == 2")["seeds"].max() > 30
    assert results.messages.query("kind == 'REPORT' and sender == 2")["round"].max() == 39
    assert max(held) < 10 and set(results.summary["refusals"]) <= {"duplicate"}


def _watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many commits the server holds after each round."""
    held: list[int] = []
    close = Server._keep

    async def watch(self: Server, closed: Any) -> None:
        held.append(len(self.coordinator.history))
        await close(self, closed)

    monkeypatch.setattr(Server, "_keep", watch)
    return held


@pytest.mark.slow
def test_bytes_of_snapshots_are_billed_to_those_who_pull_them_and_to_peers_that_give(tmp_path: Path) -> None:
    results = run(lagging(lag={"source": "peer"}), tmp_path / "run")
    rows = read_ledger(results.folder / "messages")
    size = rows["header_bytes"] + rows["payload_bytes"] - rows["digest_bytes"]
    is_client = np.minimum(rows["sender"], rows["recipient"]) == -1

    def total(*names: Kind) -> int:
        return int(size[is_client & np.isin(rows["kind"], names)].sum())

    traffic = results.summary["traffic"]
    assert traffic["up"]["bytes"] == total(Kind.REPORT, Kind.PULL, Kind.PIECE)
    assert traffic["down"]["bytes"] == total(Kind.PLAN, Kind.SNAPSHOT, Kind.FETCH)
    assert total(Kind.PIECE) > 0 and total(Kind.FETCH) > 0
    assert traffic["catchup_bytes"] == int(rows["catchup_bytes"].sum())
    assert traffic["catchup_bytes"] > 0.9 * total(Kind.SNAPSHOT)
    last = results.metrics.iloc[-1]
    assert (last["bytes_up"], last["bytes_down"]) == (traffic["up"]["bytes"], traffic["down"]["bytes"])
    each = np.bincount(rows["recipient"][is_client & (rows["sender"] == -1)], minlength=30)
    assert len(each) == 30
    assert traffic["catchup_per_client"]["max"] >= traffic["catchup_per_client"]["median"] > 0
    assert traffic["replayed"] < traffic["down"]["seeds"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "source"),
    [("asking", "evaluator"), ("gathering", "peer"), ("committing", "evaluator"), ("publishing", "peer")],
)
def test_a_server_that_crashes_among_snapshots_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, source: str
) -> None:
    crash = {"fault": "server-crash", "at_round": 3, "every_rounds": 4, "phase": phase, "down_s": 2.5}
    participation = CROWD | {"deadline_s": 10.0}
    what = lagging(participation=participation, faults=[crash], lag={"source": source, "window": 2})
    results = run(what, tmp_path / "run")
    assert results.summary["version"] == 60 and results.digest == replay(tmp_path / "run").digest
    assert kinds(results)["pull"] > 100 and results.summary["faults"][0]["crashed"] == 15
    assert set(results.summary["refusals"]) <= {"not-fetched", "late", "no-snapshot", "not-offered"}
    with monkeypatch.context() as patch:
        cut_power(patch, Journal, "append", 24, before=False)
        with pytest.raises(PowerCut):
            run(what, tmp_path / "cut")
    assert outcome(run(what, tmp_path / "cut", resume=True)) == outcome(results)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["evaluator", "peer"])
@pytest.mark.parametrize("cohort", [2, 4])
def test_rounds_that_close_before_a_snapshot_is_there_leave_nobody_behind(
    tmp_path: Path, source: str, cohort: int
) -> None:
    """No deadline and no lost message: a client that has not been sent anything is asked again."""
    participation = {"clients": 4, "cohort": cohort, "buffer": cohort, "late": {"max_staleness": 1000}}
    what = lagging(participation=participation, lag={"snapshot_after_commits": 1, "source": source, "window": 1})
    results = run(what, tmp_path / "run")
    assert results.summary["rounds"] == 60 and results.digest == replay(tmp_path / "run").digest
    last = results.messages.query("kind == 'REPORT'").groupby("sender")["round"].max()
    assert len(last) == 4 and last.min() > 30
