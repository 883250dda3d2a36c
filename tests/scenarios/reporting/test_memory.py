"""What clients remember, as the results of a run give it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from worlds import go, scenario

from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Results:
    algorithm, participation = {"name": "scaffold", "learning_rate": 0.1}, {"clients": 4, "cohort": 2}
    return go(tmp_path_factory.mktemp("memory") / "run", scenario(algorithm=algorithm, participation=participation))


def test_scaffold_s_control_variate_is_the_mean_of_those_that_clients_remember(finished: Results) -> None:
    remembered = [finished.memory(client) for client in range(4)]
    assert all(memory.keys() == {"scaffold.c"} for memory in remembered)
    mean = np.mean([memory["scaffold.c"] for memory in remembered], axis=0)
    fields = replay(finished.folder).replica.fields
    np.testing.assert_allclose(fields["scaffold.c"], mean, rtol=1e-4, atol=1e-6)
    assert np.abs(mean).max() > 0.01


def test_an_algorithm_that_remembers_nothing_has_no_memory(tmp_path: Path) -> None:
    assert go(tmp_path / "run", scenario(stop={"rounds": 1})).memory(0) is None


@pytest.mark.parametrize("client", [-1, 4])
def test_a_client_that_there_is_not_is_refused(finished: Results, client: int) -> None:
    with pytest.raises(ScenarioError, match=rf"^Results.memory: there is no client {client}; expected 0 to 3$"):
        finished.memory(client)
