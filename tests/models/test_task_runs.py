"""Every task trains on small data: a few rounds of DeComFL with verified replicas, in one process and in several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_data import SMALLER
from task_contract import skip_without_packages
from worlds import scenario

from seedbus.models.task import TASKS
from seedbus.models.tasks.moments import Moments
from seedbus.models.tasks.torch_task import TorchTask
from seedbus.models.text.task import PretrainedTask
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

pytestmark = pytest.mark.usefixtures("small_sets")


def world(name: str, kind: Any) -> Any:
    return scenario(
        task={"name": name, **SMALLER.get(name, {})},
        partition={"kind": "natural" if kind.has_owners else "iid"},
        algorithm={"name": "decomfl", "perturbations": 2, "learning_rate": 0.001},
        participation={"clients": 4, "cohort": 2},
        evaluation={"every": 3},
        stop={"rounds": 3},
        verify=True,
    )


# text tasks need pretrained weights, the user's own task code, and moments the files of owners; separate tests run them
APART = PretrainedTask | TorchTask | Moments
KINDS = {name: kind for name, kind in TASKS.all().items() if not issubclass(kind, APART)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), KINDS.items(), ids=list(KINDS))
def test_a_task_trains_for_three_rounds(name: str, kind: Any, tmp_path: Path) -> None:
    skip_without_packages(name)
    summary = run(world(name, kind), tmp_path / "run").summary
    assert summary["version"] == 3 and summary["refusals"] == {}
    assert set(kind(**SMALLER.get(name, {})).metrics) <= set(summary["metrics"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["femnist", "blackbox-attack"])
@pytest.mark.usefixtures("warm_workers")
def test_a_task_gives_the_same_bits_in_several_processes(name: str, tmp_path: Path) -> None:
    alone = run(world(name, TASKS.all()[name]), tmp_path / "alone")
    shared = run(world(name, TASKS.all()[name]), tmp_path / "shared", placement=Placement("tcp", 2))
    assert shared.summary["digest"] == alone.summary["digest"]
