"""Data on a device: what is resident there, and that batches have the bits and the layout of those made in host memory.

There is no GPU here. Batches are gathered on torch's path on the processor, free memory is given, and so is a pinned
tensor's copy to a GPU.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from devices import DEVICE, TORCH_DEVICE
from own_task import own
from small_data import SMALLER, all_sets
from small_language import bind, write_model, write_sets
from task_contract import skip_without_packages
from torch import Tensor
from torch.utils._pytree import tree_leaves

from seedbus.models import Iid, Natural
from seedbus.models import resident as module
from seedbus.models.device import moved, on_device
from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.resident import SHARE, Rows, fits
from seedbus.models.task import TASKS
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.text import language_problem
from seedbus.models.text.tokens import collate

FEW = 10_000
"""Bytes of free memory of which no data set here may take a share."""

pytestmark = pytest.mark.usefixtures("one_thread")


def problems(task: Any, partition: Any = None) -> tuple[Any, Any]:
    """Return a task that is bound on the processor, and on the device."""
    here = task.bind(seed=1, clients=3, partition=partition or Iid())
    with on_device(DEVICE):
        return here, task.bind(seed=1, clients=3, partition=partition or Iid())


def bits(tensors: Any) -> list[Any]:
    """Return the types, shapes, layouts and bits of tensors, in whichever structure they are."""
    leaves = [each for each in tree_leaves(tensors) if isinstance(each, Tensor)]
    return [(each.dtype, each.shape, each.stride(), each.cpu().numpy().tobytes()) for each in leaves]


def batches(problem: Any) -> list[Any]:
    """Return the bits of batches of training and of evaluations."""
    first = [problem.objective(client, 1).batch(step) for client in range(2) for step in range(2)]
    every = [(name, split) for name, split in problem.splits.items() if split.labels.size]
    return bits(first) + [bits(problem.tensors(split, np.arange(min(4, split.labels.size)))) for _, split in every]


KINDS = [name for name, kind in TASKS.all().items() if issubclass(kind, ClassifierSettings)]
REGRESSION = {"target": "age", "kind": "regression"}


@pytest.mark.slow
@pytest.mark.parametrize("is_full", [False, True], ids=["resident", "full"])
@pytest.mark.parametrize(("name", "fields"), [*((name, {}) for name in KINDS), ("table", REGRESSION)])
def test_batches_have_the_same_bits_on_the_device_and_in_host_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fields: Any, is_full: bool
) -> None:
    skip_without_packages(name)
    all_sets(tmp_path)
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    monkeypatch.setattr(module, "free_memory", lambda device: 0 if is_full else None)
    kind = TASKS.all()[name]
    task = kind.model_validate(SMALLER.get(name, {}) | {"batch_size": 4} | fields)
    here, there = problems(task, Natural() if kind.has_owners else None)
    assert batches(here) == batches(there)
    assert [each is None for each in there._on_device.values()] == [is_full] * len(there._on_device)
    x = here.x0()
    assert there.evaluate(x, "test") == here.evaluate(x, "test") or TORCH_DEVICE != "cpu"
    assert here._on_device == {} and there._on_device != {}


@pytest.mark.parametrize("free", [None, 0])
def test_so_have_those_of_the_users_own_data(monkeypatch: pytest.MonkeyPatch, free: int | None) -> None:
    monkeypatch.setattr(module, "free_memory", lambda device: free)
    here, there = problems(own())
    assert batches(here) == batches(there)
    (placed,) = {each.are_resident for each in there.splits["train"].reading._placed.values() if each._device}
    assert placed == (free is None)


def test_inputs_that_depend_on_more_than_their_byte_are_made_in_host_memory() -> None:
    class Blurred(Digits, frozen=True):
        def inputs(self, stored: Any) -> Any:
            return (super().inputs(stored) + super().inputs(np.roll(stored, 1, axis=2))) / np.float32(2)

    here, there = problems(Blurred(batch_size=4))
    assert batches(here) == batches(there) and list(there._on_device.values()) == [None]


def test_data_is_resident_if_it_takes_a_quarter_of_the_free_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_memory", lambda device: FEW)
    device, quarter = torch.device(TORCH_DEVICE), int(SHARE * FEW)
    assert SHARE == 0.25 and fits(quarter, device) and not fits(quarter + 1, device)
    indices, numbers = np.array([2, 0, 2]), torch.arange(quarter // 4, dtype=torch.int32)
    for rows, is_resident in (
        (Rows([numbers], device), True),
        (Rows([numbers, numbers], device), False),  # together they are more
        (Rows([numbers], None), False),
    ):
        assert rows.are_resident == is_resident
        assert {tuple(each.tolist()) for each in rows.at(indices)} == {(2, 0, 2)}


def test_a_copy_to_a_gpu_is_from_pinned_memory_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    class OnHost(Tensor):
        """A tensor that notes what is asked of it, for no tensor here can be pinned."""

        def pin_memory(self, *_: Any) -> Any:
            done.append("pinned")
            return self

        def to(self, *args: Any, **kwargs: Any) -> Any:
            done.append((str(args[0]), kwargs))
            return self

    tensor = torch.ones(2).as_subclass(OnHost)
    for device in ("cuda:0", "mps", "cpu"):
        moved([tensor], torch.device(device))
    assert done == ["pinned", ("cuda:0", {"non_blocking": True}), ("mps", {}), ("cpu", {})]
    done.clear()
    monkeypatch.setattr(module, "free_memory", lambda device: None)
    Rows([tensor], torch.device("cuda:0"))
    assert done == [("cuda:0", {})], "torch keeps pinned memory, and never gives that of a whole data set back"


@pytest.mark.parametrize("free", [None, 0])
def test_evaluation_batches_of_a_language_model_are_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int | None
) -> None:
    monkeypatch.setattr(module, "free_memory", lambda device: free)
    made: list[int] = []

    def counted(pairs: Any) -> Any:
        made.append(len(pairs))
        return collate(pairs)

    monkeypatch.setattr(language_problem, "collate", counted)
    task = LanguageModel(model=str(write_model(tmp_path / "model")), data=str(write_sets(tmp_path / "data") / "sst2"))
    here = bind(task, clients=2)
    with on_device(DEVICE):
        there = bind(task, clients=2)
    x = here.x0()
    measured = [problem.evaluate(x, split) for problem in (here, there) for split in ("test", "train", "test")]
    assert len(made) == 2 * 2 and all(first == again != other for first, other, again in (measured[:3], measured[3:]))
    assert measured[:3] == measured[3:] or TORCH_DEVICE != "cpu"  # losses of a GPU have other bits


def test_evaluation_batches_of_parts_of_a_split_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all clients would take as much as all training samples, padded, and on a GPU more than its share."""
    made: list[Any] = []

    def noted(pairs: Any) -> Any:
        batch = collate(pairs)
        made.append(weakref.ref(batch.ids))
        return batch

    monkeypatch.setattr(language_problem, "collate", noted)
    task = LanguageModel(model=str(write_model(tmp_path / "model")), data=str(write_sets(tmp_path / "data") / "sst2"))
    problem = bind(task, clients=2)
    for part in problem.parts:
        problem.evaluate_part(problem.x0(), "train", part)
    assert [batch() for batch in made] == [None, None]
    problem.evaluate(problem.x0(), "test")
    assert made[2]() is not None


@pytest.mark.few(1)
@pytest.mark.parametrize("free", [None, 0])
def test_pixels_of_a_pretrained_classifier_are_kept_where_they_fit(
    make_hub: Any, monkeypatch: pytest.MonkeyPatch, free: int | None
) -> None:
    monkeypatch.setattr(module, "free_memory", lambda device: free)
    here, there = problems(make_hub("vit", validation=0))
    x = here.x0()
    for problem in (here, there):
        problem.point[:] = x
    assert here.objective(0, 0).loss(0) == there.objective(0, 0).loss(0) or TORCH_DEVICE != "cpu"
    assert here.evaluate(x, "test") == there.evaluate(x, "test") or TORCH_DEVICE != "cpu"
    assert there._are_resident is (free is None) and here._are_resident is None
