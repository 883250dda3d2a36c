"""The losses of a local step leave their device together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import DEVICE
from own_task import Points, own
from small_language import bind, write_model, write_sets
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.models import Iid, client_samples
from seedbus.models.device import on_device, placed_beside
from seedbus.models.parameters import losses
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.language_model import LanguageModel

P, K, CLIENTS = 5, 2, 2


pytestmark = pytest.mark.usefixtures("one_thread")


class Numbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the tensors of one number that are made numbers, each of which waits for its device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_local_scalar_dense" in str(func)
        return func(*args, **(kwargs or {}))


@contextmanager
def transfers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Collect how many losses each transfer reads; within this context nothing else may be read."""
    read, counts, numbers = losses.read, list[int](), Numbers()

    def counted(losses: Sequence[Tensor]) -> list[float]:
        values: list[float] = read(losses)
        counts.append(len(values))
        return values

    with monkeypatch.context() as patch, numbers:
        patch.setattr(client_samples, "read", counted)
        yield counts
    assert numbers.count == 0, "a loss was read by itself"


def scalars(problem: Any, **fields: Any) -> Any:
    """Return what two clients report of a round."""
    algorithm = DeComFL(perturbations=P, local_steps=K, **fields)
    replica = algorithm.replica(placed_beside(problem)(problem.x0()))
    objectives = [problem.objective(client, 1) for client in range(CLIENTS)]
    results: Any = algorithm.local_together(replica, [None] * CLIENTS, algorithm.plan(1, 0, 99), objectives)
    return np.array([report for report, _ in results])


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("fields", "losses"),
    [({}, P + 1), ({"estimator": "central"}, 2 * P), ({"revert": "light"}, P + 1)],
    ids=["forward", "central", "light"],
)
def test_the_losses_of_a_step_are_read_in_one_transfer(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], losses: int
) -> None:
    task = Digits(model="cnn", batch_size=8)
    with on_device(DEVICE):
        problem = task.bind(seed=1, clients=CLIENTS, partition=Iid())
    with transfers(monkeypatch) as counts:
        there = scalars(problem, **fields)
    # the first step of all clients together, then each client's further steps
    assert counts == [CLIENTS * losses] + [losses] * (CLIENTS * (K - 1))
    if DEVICE == "torch":
        here = scalars(task.bind(seed=1, clients=CLIENTS, partition=Iid()), **fields)
        assert there.tobytes() == here.tobytes()


def test_those_of_a_network_with_several_targets_a_sample_are_too(monkeypatch: pytest.MonkeyPatch) -> None:
    task = own(
        network=lambda: nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (3, 2))),
        train=Points(target=lambda row: np.array([row % 3, row % 2])),
        test=Points(20, target=lambda row: np.array([row % 3, row % 2])),
    )
    with on_device(DEVICE):
        problem = task.bind(seed=1, clients=CLIENTS, partition=Iid())
    with transfers(monkeypatch) as counts:
        scalars(problem)
    assert counts == [CLIENTS * (P + 1)] + [P + 1] * (CLIENTS * (K - 1))


@pytest.mark.few(1)
@pytest.mark.parametrize("revert", ["copy", "light"])
def test_those_of_a_language_model_are_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revert: str) -> None:
    task = LanguageModel(
        model=str(write_model(tmp_path / "model")), data=str(write_sets(tmp_path / "data") / "sst2"), batch_size=4
    )
    with on_device(DEVICE):
        problem = bind(task, clients=CLIENTS)
    with transfers(monkeypatch) as counts:
        scalars(problem, revert=revert)
    assert counts == [CLIENTS * (P + 1)] + [P + 1] * (CLIENTS * (K - 1))
