"""Commits that a client is sent again cost bytes and no work, and are counted as what really happens."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from power_cuts import run_with_power_cuts
from worlds import DECOMFL, HISO, lossy, outcome

from seedbus.agents.client.clients import Host
from seedbus.agents.server.positions import Positions
from seedbus.algorithms.contract import pending
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

LATE = {"fault": "delay", "by": {"distribution": "pareto", "minimum": 0.2, "shape": 0.8}, "probability": 0.3}
DROP = {"fault": "drop", "probability": 0.2}
STAYS, AWAY = ({"distribution": "exponential", "mean": mean} for mean in (3, 2))
CHURN = {"fault": "churn", "stays": STAYS, "away": AWAY}
CLIENTS = {"clients": 8, "cohort": 3, "deadline_s": 0.5}
WORLDS: dict[str, dict[str, Any]] = {
    "lost": {"faults": [DROP, LATE, {"fault": "duplicate", "probability": 0.2, "copies": 2}]},
    "late terms": {"faults": [DROP, LATE], "participation": CLIENTS | {"late": {}}},
    "buffer": {
        "faults": [DROP, LATE],
        "participation": {"clients": 8, "cohort": 4, "buffer": 2, "late": {}, "deadline_s": 1},
    },
    "without state": {"faults": [DROP, LATE, CHURN | {"returns": "without-state"}]},
    "another run": {"faults": [DROP, CHURN | {"returns": "from-another-run"}]},
    "snapshots": {"faults": [DROP, LATE, CHURN], "lag": {"snapshot_after_commits": 5, "chunk_bytes": 300}},
    "hostile": {"faults": [DROP, {"fault": "hostile", "fraction": 0.5}], "lag": {"snapshot_after_commits": 5}},
    "sums": {"faults": [DROP, LATE], "algorithm": {"name": "fedkseed", "pool": 16, "perturbations": 4}},
    "scalars of reports": {"faults": [DROP, LATE], "algorithm": {"name": "fedscalar"}},
    "crashes": {"faults": [DROP, LATE, {"fault": "server-crash", "at_round": 5, "phase": "gathering", "down_s": 1}]},
    "dense": {"faults": [DROP, LATE], "algorithm": {"name": "fedavg", "local_steps": 1}},
}


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_what_is_counted_as_replayed_is_what_replicas_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: str
) -> None:
    """Each client handles its plans in the order of delivery, in which the ledger has them."""
    folded, versions = defaultdict[int, list[Any]](list), dict[int, int]()

    def prepare(host: Host, envelope: Any, original: Any = Host._prepare) -> Any:
        client, algorithm = envelope.client, host.algorithm
        _, plan, missed = host._unpacked(envelope)
        before = host.replicas.version(client)
        answer = original(host, envelope)
        versions[client] = host.replicas.version(client)
        fresh = pending(algorithm.facts, before, missed) if versions[client] > before else []
        folded[client].append((plan.round, versions[client] - before, algorithm.pack_commits(fresh, whole=True).seeds))
        return answer

    def take_actual(positions: Positions, original: Any = Positions.take_actual) -> Any:
        known = [*range(8)]
        assert positions.lags(known, 0) == [-positions.actual.get(client, 0) for client in known]
        return original(positions)

    monkeypatch.setattr(Host, "_prepare", prepare)
    monkeypatch.setattr(Positions, "take_actual", take_actual)
    results = run(lossy(**{"stop": {"rounds": 60}} | WORLDS[world]), tmp_path / "run")
    plans = results.messages.query("kind == 'PLAN' and fate == 'DELIVERED'")
    for client in map(int, plans["recipient"].unique()):
        of_client = plans[plans["recipient"] == client]
        assert [each for each, _, _ in folded[client]] == of_client["round"].tolist()
        replayed = (of_client["seeds"] - 1 - of_client["repeated"]).clip(lower=0).tolist()
        if world == "sums":  # which count as much work as they are, and each as one of the replica's commits here
            assert [each > 0 for each in replayed] == [each > 0 for _, each, _ in folded[client]]
        else:
            assert replayed == [seeds for _, _, seeds in folded[client]]
            assert results.clients["replayed"][client] == sum(replayed)
    assert (plans["repeated"].sum() > 0) == (world != "dense")


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_clients_that_are_sent_commits_again_take_the_same_time_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = lossy(
        algorithm=HISO,
        faults=[DROP, LATE, CHURN | {"returns": "without-state"}],
        compute={"replay": {"distribution": "exponential", "mean": 0.01}},
        lag={"snapshot_after_commits": 12, "chunk_bytes": 500},
        stop={"rounds": 60},
    )
    whole = run(what, tmp_path / "memory")
    assert whole.messages["repeated"].sum() > 20 and whole.clients["replay_s"].sum() > 0.5
    workers = run(what, tmp_path / "workers", placement=Placement("tcp", 2))
    resumed, cuts = run_with_power_cuts(what, tmp_path / "resumed", monkeypatch, [(9, True), (14, False)])
    assert cuts > 3
    for other in (workers, resumed):
        assert outcome(other) == outcome(whole)
        assert other.history.lags.tolist() == whole.history.lags.tolist()
        assert other.clients.equals(whole.clients)


def test_a_client_whose_answers_are_lost_folds_each_commit_once(tmp_path: Path) -> None:
    """Client 0 is heard of never, and so is sent all commits from the first with every plan."""
    lost = {"fault": "drop", "probability": 1.0, "kind": "report", "clients": [0]}
    participation = {"clients": 3, "cohort": 3, "deadline_s": 5}
    what = lossy(algorithm=DECOMFL, participation=participation, faults=[lost], network={}, stop={"rounds": 9})
    results = run(what, tmp_path / "run")
    assert results.history.lags.tolist() == [0] * 3 + [1] * 24
    plans = results.messages.query("kind == 'PLAN' and recipient == 0")
    assert plans["seeds"].tolist() == [1, *range(2, 10)] and plans["repeated"].tolist() == [0, *range(8)]
    assert results.clients["replayed"].tolist() == [8, 8, 8]
    traffic = results.summary["traffic"]
    assert (traffic["replayed"], traffic["repeated"]) == (24, 28)
    assert "24 commits replayed, 28 sent again" in " ".join(re.split(r"[\s│]+", str(results)))
