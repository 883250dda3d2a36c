"""Losses that are recorded and launched again have the bits of losses that are not, step after step.

Without a GPU the functions of `torch.cuda` are replaced by a recorder of torch's operations on the processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from devices import DEVICE, IS_PROCESSOR, TORCH_DEVICE
from own_task import own
from recorded_cuda import stand_in
from small_data import SMALLER, all_sets

from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.models import Iid
from seedbus.models.device import on_device, placed_beside
from seedbus.models.images import sample_problem
from seedbus.models.parameters import recorded_losses
from seedbus.models.parameters.recorded_losses import MOST, RecordedLosses
from seedbus.models.task import TASKS
from seedbus.models.tasks.digits import Digits

P, K, CLIENTS = 5, 3, 3

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are made; on a GPU they are not counted."""
    if not IS_PROCESSOR:
        return []
    monkeypatch.setattr(sample_problem, "capture_on", recorded_losses._cuda_capture)
    return stand_in(monkeypatch).made


def scalars(problem: Any, round: int = 1) -> Any:
    """Return what clients report of a round of several steps."""
    algorithm = DeComFL(perturbations=P, local_steps=K)
    replica = algorithm.replica(placed_beside(problem)(problem.x0()))
    objectives = [problem.objective(client, round) for client in range(CLIENTS)]
    reports = algorithm.local_together(replica, [None] * CLIENTS, algorithm.plan(round, 0, 99), objectives)
    return np.array([report for report, _ in reports])  # type: ignore[misc]


def both(task: Any) -> tuple[Any, Any]:
    """Return a task's problem on the device without recordings, and with them."""
    with on_device(DEVICE):
        plain, recorded = (task.bind(seed=1, clients=CLIENTS, partition=Iid()) for _ in range(2))
    plain.is_recordable = False
    return plain, recorded


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "shapes"),
    [({}, 1), ({"micro_batch": 3}, 2), ({"forward": "stacked", "chunk": 4}, 2), ({"model": "softmax"}, 1)],
    ids=["eager", "micro-batches", "stacked", "softmax"],
)
def test_recorded_losses_have_the_bits_of_others_in_every_step(
    made: list[Any], fields: dict[str, Any], shapes: int
) -> None:
    plain, recorded = both(Digits(batch_size=8, **fields))
    for round in (1, 2):
        assert scalars(recorded, round).tobytes() == scalars(plain, round).tobytes()
    assert recorded._recorded is not None and len(recorded._recorded._recorded) == shapes
    assert None not in recorded._recorded._recorded.values(), "a recording that is not used"
    if IS_PROCESSOR:
        calls = 2 * CLIENTS * K * ((P + 1) if "chunk" not in fields else 2) * (3 if "micro_batch" in fields else 1)
        assert len(made) == shapes and sum(graph.replays for graph in made) == calls + shapes  # each compared once


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["table", "femnist", "shakespeare"])
def test_so_have_those_of_other_tasks(made: list[Any], tmp_path: Any, monkeypatch: Any, name: str) -> None:
    all_sets(tmp_path)
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    plain, recorded = both(TASKS.all()[name].model_validate(SMALLER.get(name, {}) | {"batch_size": 2}))
    assert scalars(recorded).tobytes() == scalars(plain).tobytes()
    if IS_PROCESSOR:  # a GPU's library for recurrent layers may refuse
        assert None not in recorded._recorded._recorded.values()


def test_evaluations_gradients_and_layers_between_two_steps_change_nothing(made: list[Any]) -> None:
    plain, recorded = both(Digits(batch_size=8))
    x = plain.x0()
    first = [scalars(problem) for problem in (plain, recorded)]
    for problem in (plain, recorded):
        objective = problem.objective(0, 1)
        problem.evaluate(x, "test")
        objective.gradient(0)
        objective.loss_at(0, lambda span, out: np.copyto(out, x[span] * 2))
    assert np.array([*first, scalars(plain), scalars(recorded)]).tobytes() == first[0].tobytes() * 4


def test_large_networks_compiled_losses_and_the_users_own_are_not_recorded(
    made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with on_device(DEVICE):
        problems: list[Any] = [
            task.bind(seed=1, clients=CLIENTS, partition=Iid()) for task in (own(), Digits(batch_size=8))
        ]
    monkeypatch.setattr(sample_problem, "SMALL", problems[1].dimension - 1)
    for problem in problems:
        scalars(problem)
        assert problem._recorded is None
    assert not Digits(forward="compiled").bind(seed=1, clients=2, partition=Iid())._may_record  # type: ignore[attr-defined]


def recorder(capture: Any = None) -> tuple[RecordedLosses, list[str]]:
    """Return recorded losses, and what they say."""
    notes: list[str] = []
    device = torch.device(TORCH_DEVICE)
    return RecordedLosses(
        capture or recorded_losses._cuda_capture(device), lambda _, not_used: notes.append(not_used)
    ), notes


def loss(inputs: Any, labels: Any) -> Any:
    return (inputs * 2).sum() + labels.sum()


def test_what_cannot_be_recorded_is_computed_without_and_said_once(made: list[Any]) -> None:
    losses, notes = recorder()
    batch = torch.ones(3, device=TORCH_DEVICE)

    def reads_a_number(inputs: Any, labels: Any) -> Any:
        return inputs.sum() * 2 if inputs.sum().item() > 0 else inputs.sum()

    for _ in range(2):
        assert losses.losses(reads_a_number, 1, batch, batch).item() == 6
    waits = "operation not permitted when stream is capturing" if IS_PROCESSOR else "synchronizing CUDA operation"
    assert len(notes) == 1 and waits in notes[0]


def test_a_recording_with_other_bits_is_not_used() -> None:
    losses, notes = recorder(lambda launch: lambda: launch() + 1)
    batch = torch.ones(3, device=TORCH_DEVICE)
    assert losses.losses(loss, 1, batch, batch).item() == 9
    assert notes == ["a recorded loss is 10.0, and 9.0 without"]


def test_recordings_are_few_and_their_results_are_not_overwritten(made: list[Any]) -> None:
    losses, notes = recorder()
    sizes = [*range(1, MOST + 3), 1, 2]
    found = [losses.losses(loss, 1, *torch.ones(2, size, device=TORCH_DEVICE)) for size in sizes]
    again = losses.losses(loss, 1, *torch.full((2, 2), 5.0, device=TORCH_DEVICE))
    assert losses.losses(loss, 1, *torch.ones(2, 1, device=TORCH_DEVICE)).item() == 3
    assert [each.item() for each in found] == [3 * size for size in sizes] and again.item() == 30
    assert len(losses._recorded) == MOST and not notes
    assert len(made) == (MOST if IS_PROCESSOR else 0)


def test_a_recording_of_a_loss_that_is_no_number_is_used(made: list[Any]) -> None:
    losses, notes = recorder()
    batch = torch.full((3,), torch.nan, device=TORCH_DEVICE)
    assert losses.losses(loss, 1, batch, batch).isnan() and not notes


def test_a_loss_that_has_memory_only_without_a_recording_is_computed() -> None:
    def capture(launch: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    losses, notes = recorder(capture)
    batch = torch.ones(3, device=TORCH_DEVICE)
    assert losses.losses(loss, 1, batch, batch).item() == 9 and "out of memory" in notes[0]
