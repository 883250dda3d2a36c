"""Stacked losses: those of one client at several points, in one call, whoever else is there; they are proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import DEVICE, IS_PROCESSOR
from own_networks import LAYERS, Judge
from own_networks import task as own_task
from torch import Tensor
from worlds import go, scenario

from seedbus.agents.client.worker import prove
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.models import Iid
from seedbus.models.device import on_device, placed_beside
from seedbus.models.errors import DataError
from seedbus.models.parameters.stacked import StackedLoss
from seedbus.models.tasks.digits import Digits
from seedbus.scenarios.running.limits import least_memory
from seedbus.scenarios.running.prepare import bind_for_clients
from seedbus.scenarios.running.run import run
from seedbus.scenarios.transports.placement import Placement

P, CLIENTS = 5, 3
STACKED: dict[str, Any] = {"name": "digits", "model": "cnn", "batch_size": 8, "forward": "stacked", "chunk": 4}


pytestmark = pytest.mark.usefixtures("one_thread")


def problem_of(task: Any) -> Any:
    problem: Any = task.bind(seed=1, clients=CLIENTS, partition=Iid())
    problem.prepare(lambda *_, **__: None)
    return problem


def reports(problem: Any, clients: list[int], **fields: Any) -> list[bytes]:
    algorithm = DeComFL(perturbations=P, local_steps=2, learning_rate=0.1, **fields)
    replica = algorithm.replica(placed_beside(problem)(problem.x0()))
    objectives = [problem.objective(client, 1) for client in clients]
    results: Any = algorithm.local_together(replica, [None] * len(clients), algorithm.plan(1, 0, 9), objectives)
    return [report.tobytes() for report, _ in results]


def test_a_client_reports_the_same_bits_alone_beside_others_and_on_a_device() -> None:
    """Six points in calls of four and two; central differences take ten in calls of four, four and two."""
    stacked = problem_of(Digits(**STACKED))
    with on_device(DEVICE):
        there = problem_of(Digits(**STACKED))
    eager = problem_of(Digits(model="cnn", batch_size=8))
    for fields in ({}, {"estimator": "central"}):
        together = reports(stacked, [0, 1, 2], **fields)
        assert together == [reports(stacked, [client], **fields)[0] for client in range(CLIENTS)]
        assert DEVICE != "torch" or together == reports(there, [0, 1, 2], **fields)
        alike, single = (np.frombuffer(each, np.float32) for each in (together[0], reports(eager, [0], **fields)[0]))
        assert np.allclose(alike, single, atol=0.01) and not np.array_equal(alike, single)


@pytest.mark.parametrize("name", ["tied", "constants", "MultiheadAttention", "GroupNorm", "Embedding"])
def test_a_network_of_ones_own_is_stacked_where_vmap_can(name: str) -> None:
    problem = problem_of(own_task(LAYERS[name], forward="stacked", chunk=3))
    objective = problem.objective(0, 1)
    for row, point in enumerate(objective.points()):
        point[:] = problem.x0() + np.float32(row / 8)
    singles = []
    for point in objective.points():
        objective.point[:] = point
        singles.append(objective.loss(0))
    assert objective.read([objective.measure(0, 3)]) == pytest.approx(singles, rel=1e-5)
    assert len(set(singles)) == 3


def test_where_it_cannot_the_layer_is_named() -> None:
    expected = (
        r"task\.forward: stacked: found layer layer \(LSTM\), which vmap cannot run \(.*lstm.*\); expected .*eager"
    )
    with pytest.raises(DataError, match=expected):
        problem_of(own_task(LAYERS["LSTM"], forward="stacked"))


class Hidden(Judge):
    """Computes with weights that it has put aside, where nothing finds them."""

    def __init__(self) -> None:
        super().__init__(LAYERS["Linear"].layer())
        self.aside = [self.head.weight]

    def forward(self, *inputs: Tensor) -> Tensor:
        logits: Tensor = inputs[0][:, :2] @ self.aside[0] * 9
        return logits


def test_a_network_whose_stacked_losses_are_those_of_another_function_is_refused() -> None:
    case = LAYERS["Linear"]
    with pytest.raises(DataError, match=r"a network whose stacked loss is .* where its loss is .*; expected"):
        problem_of(own_task(case, network=Hidden, forward="stacked"))


def test_one_layer_at_a_time_is_refused() -> None:
    with pytest.raises(DataError, match="stacked, which takes all layers at once, with revert: light; expected"):
        reports(problem_of(Digits(**STACKED)), [0], revert="light")


def test_a_process_proves_its_stacked_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    what = scenario(task=STACKED)
    proofs = [prove(what.algorithm, bind_for_clients(what, lambda *_, **__: None)) for _ in range(2)]
    losses = StackedLoss.losses
    monkeypatch.setattr(StackedLoss, "losses", lambda *batch: losses(*batch) * (1 + 2**-23))
    other = prove(what.algorithm, bind_for_clients(what, lambda *_, **__: None))
    assert proofs[0] == proofs[1] and {name for name in other if other[name] != proofs[0][name]} == {"losses"}


def test_the_estimate_of_memory_counts_the_points() -> None:
    eager = scenario(task={"name": "digits", "model": "cnn"})
    task = eager.task.model_copy(update={"forward": "stacked"})
    more = least_memory(eager.model_copy(update={"task": task}), 8) - least_memory(eager, 8)
    assert more == 16 * 4 * task.dimension


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_stacked_run_has_the_same_bits_here_and_in_two_processes(tmp_path: Path) -> None:
    what = scenario(task=STACKED, participation={"clients": 8, "cohort": 6}, stop={"rounds": 8})
    here = go(tmp_path / "here", what).summary
    devices = ("cpu", DEVICE) if IS_PROCESSOR else (DEVICE,)  # losses of a GPU have other bits, so it is not admitted
    spread = run(what, tmp_path / "spread", placement=Placement("ipc", workers=2, devices=devices)).summary
    assert not spread["refusals"] and (here["digest"] == spread["digest"] or not IS_PROCESSOR)
