"""Whole runs in which clients lag for hundreds of rounds: every way to a version gives the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from worlds import scenario

from seedbus.agents.client.replicas import Replicas
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run

LONG = 500

DECOMFL = {
    "name": "decomfl",
    "perturbations": {0: 2, 200: 4, 400: 3},
    "learning_rate": {0: 0.003, 200: 0.002, 400: 0.001},
    "momentum": 0.5,
}
HISO = {
    "name": "hiso",
    "perturbations": {0: 5, 200: 6, 400: 5},
    "local_steps": 2,
    "learning_rate": {0: 0.0003, 200: 0.0002, 400: 0.0001},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", [pytest.param(DECOMFL, marks=pytest.mark.soak, id="decomfl"), pytest.param(HISO, id="hiso")]
)
def test_a_client_that_lagged_one_that_is_new_and_a_replay_hold_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: dict[str, Any]
) -> None:
    digests: dict[int, dict[int, str]] = {}
    lags: dict[tuple[int, int], int] = {}
    advance = Replicas.advance

    def watch(self: Replicas, client: int, commits: Any, version: int) -> Any:
        lag = version - self.version(client)
        replica = advance(self, client, commits, version)
        digests.setdefault(version, {})[client] = replica.digest()
        lags[version, client] = lag
        return replica

    monkeypatch.setattr(Replicas, "advance", watch)
    rounds = LONG + 20
    what = scenario(
        algorithm=algorithm,
        task={"name": "quadratic", "dimension": 1003},
        participation={"clients": 700, "cohort": 4},
        stop={"rounds": rounds},
        evaluation={"every": 50},
    )
    results = run(what, tmp_path / "run")
    assert results.summary["refusals"] == {}
    new = [(version, client) for (version, client), lag in lags.items() if lag == version >= LONG]
    lagged = [(version, client) for (version, client), lag in lags.items() if 100 <= lag < version]
    assert new and lagged
    for version, client in new + lagged[::40]:
        assert digests[version][client] == replay(tmp_path / "run", version).digest
    assert replay(tmp_path / "run").digest == results.digest
