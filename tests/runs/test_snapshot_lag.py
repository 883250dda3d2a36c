"""Lags of one to a thousand commits, with models as large as the library's and snapshots in chunks of 32 KiB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import DECOMFL, HISO, scenario

from seedbus.agents.client.replicas import Replicas
from seedbus.algorithms.contract import Replica
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run

CROWD = {"clients": 20, "cohort": 3}


def watched(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, set[int]]]:
    """Return version → digest → by how many commits the clients that installed it had lagged."""
    found: dict[int, dict[str, set[int]]] = {}
    install = Replicas.install

    def watch(self: Replicas, client: int, replica: Replica) -> None:
        lag = replica.version - self.version(client)
        found.setdefault(replica.version, {}).setdefault(replica.digest(), set()).add(lag)
        install(self, client, replica)

    monkeypatch.setattr(Replicas, "install", watch)
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize("lag", [1, 2, 3, 10, 50, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("algorithm", [DECOMFL, HISO], ids=lambda algorithm: str(algorithm["name"]))
def test_a_client_that_missed_so_many_commits_replays_or_installs_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: dict[str, Any], lag: int
) -> None:
    found = watched(monkeypatch)
    budget = 2 if lag <= 10 else 40
    what = scenario(
        algorithm=algorithm,
        participation={"clients": 3, "cohort": 3, "deadline_s": 100.0},
        network={},
        compute={"evaluation": {"distribution": "constant", "value": 0.001}},
        faults=[{"fault": "late-joiners", "clients": [2], "at_round": lag - 1}] if lag > 1 else [],
        lag={"snapshot_after_commits": budget, "chunk_bytes": 256},
        stop={"rounds": lag + 5},
        evaluation={"every": 100},
    )
    results = run(what, tmp_path / "run")
    assert results.summary["refusals"] == {} and results.summary["version"] == lag + 5
    first = results.messages.query("kind == 'REPORT' and sender == 2")["round"].min()
    assert first in (lag - 1, lag)  # it is asked in the round after the one in which it joins
    assert [lags for digests in found.values() for lags in digests.values()] == ([{first}] if first > budget else [])
    for version, digests in found.items():
        assert set(digests) == {replay(tmp_path / "run", version).digest}
    assert results.messages.query("kind == 'REPORT' and sender == 2")["round"].tolist() == list(range(first, lag + 5))


@pytest.mark.slow
def test_a_budget_of_time_is_one_of_commits_and_replay_takes_that_time(tmp_path: Path) -> None:
    """Ten seconds at two seconds a commit are five commits; a client that missed four answers eight seconds later."""
    asked: dict[str, Any] = {
        "participation": {"clients": 20, "cohort": 3},
        "network": {},
        "stop": {"rounds": 30},
        "compute": {"replay": {"distribution": "constant", "value": 2.0}},
    }
    timed = run(scenario(**asked, lag={"snapshot_after_s": 10.0}), tmp_path / "timed")
    counted = run(scenario(**asked, lag={"snapshot_after_commits": 5}), tmp_path / "counted")
    assert timed.summary["ledger_hash"] == counted.summary["ledger_hash"]
    plans = timed.messages.query("kind == 'PLAN'").sort_values(["round", "recipient"])
    reports = timed.messages.query("kind == 'REPORT'").sort_values(["round", "sender"])
    assert plans["recipient"].tolist() == reports["sender"].tolist()
    took_s = (reports["sent_ns"].to_numpy() - plans["arrived_ns"].to_numpy()) / 1e9
    missed = plans["seeds"].to_numpy() - 1
    assert took_s.tolist() == (2.0 * missed).tolist() and missed.max() == 5
    table = timed.clients
    assert table["replay_s"].tolist() == (2.0 * table["replayed"]).tolist()
    assert table["replayed"].sum() == missed.sum() and (table["catchup_bytes"] > 0).any()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [DECOMFL, HISO], ids=lambda algorithm: str(algorithm["name"]))
def test_a_model_of_two_hundred_thousand_coordinates_travels_in_chunks_of_32_kib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: dict[str, Any]
) -> None:
    found = watched(monkeypatch)
    what = scenario(
        algorithm=algorithm | {"learning_rate": 1e-6},
        task={"name": "quadratic", "dimension": 200_000},
        participation=CROWD,
        network={"up_mbps": 20, "down_mbps": 100},
        lag={"snapshot_after_commits": 4, "source": "peer"},
        stop={"rounds": 20},
        evaluation={"every": 20},
    )
    results = run(what, tmp_path / "run")
    assert results.digest == run(what.model_copy(update={"lag": None}), tmp_path / "without").digest
    assert results.summary["refusals"] == {} and len(found) > 2
    for version, digests in found.items():
        assert set(digests) == {replay(tmp_path / "run", version).digest}
    chunks = results.messages.query("kind == 'SNAPSHOT' and payload_bytes > 100")
    size, installed = 2 * 4 * 200_000, (results.messages["kind"] == "JOIN").sum()
    assert chunks["payload_bytes"].max() < 2**15 + 50
    assert len(chunks) >= (installed - 1) * -(-size // 2**15)
