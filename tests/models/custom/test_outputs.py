"""Methods that use a network's outputs, on a network and data of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from own_task import FIELDS, Points, bind, own
from torch import nn
from torch.nn.functional import cross_entropy

import seedbus
from seedbus.models import DataError

SHORT = FIELDS | {"participation": {"clients": 2}, "stop": {"rounds": 2}}


class Named(Points):
    def __getitem__(self, row: int) -> Any:
        inputs, target = super().__getitem__(row)
        return {"input": inputs}, target


class Listed(Points):
    def __getitem__(self, row: int) -> Any:
        inputs, target = super().__getitem__(row)
        return (inputs,), target


class Turned(nn.Module):
    def forward(self, scores: Any) -> Any:
        return scores.permute(0, 2, 1)


class LastOfSequence(nn.Linear):
    def forward(self, returned: Any) -> Any:
        return super().forward(returned[0][:, -1])


def test_an_input_in_a_list_or_mapping_is_taken_as_it_is_alone() -> None:
    found = []
    for kind in (Points, Named, Listed):
        problem = bind(own(train=kind(), test=kind(20)))
        problem.flat.point[:] = problem.x0()
        objective = problem.objective(1, 0)
        gradient = objective.gradient(0, lambda outputs: cross_entropy(outputs.logits, outputs.labels))
        received = objective.outputs(0, problem.x0())
        found.append([each.tobytes() for each in (gradient, received.logits.numpy(), received.features.numpy())])
    assert found[1] == found[2] == found[0]


@pytest.mark.parametrize(
    ("target", "head", "found"),
    [
        (
            lambda row: torch.tensor([row % 3, 1]),
            (nn.Unflatten(1, (2, 2)), nn.Linear(2, 3), Turned()),
            r"int64\[8, 2\]",
        ),
        (lambda row: torch.tensor([0.2, 0.3, 0.5]), (nn.Linear(4, 3),), r"float32\[8, 3\]"),
    ],
    ids=["a class for each part", "probabilities"],
)
@pytest.mark.parametrize("algorithm", ["fedntd", "fedmlb"])
def test_a_method_that_needs_a_class_for_each_sample_says_so(
    algorithm: str, target: Any, head: tuple[nn.Module, ...], found: str, tmp_path: Path
) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), *head)

    data = {"train": Points(60, target), "test": Points(20, target), "loss": "cross-entropy", "metrics": {}}
    sentence = f"task.data: the training set: found targets {found} of a batch; expected a class for each sample, or a"
    with pytest.raises(DataError, match=sentence):
        seedbus.run(SHORT | {"algorithm": algorithm}, tmp_path / "run", task=own(network=build, **data))


def test_a_method_that_needs_features_says_so_of_a_head_that_takes_no_tensor(tmp_path: Path) -> None:
    def recurrent() -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (2, 2)), nn.GRU(2, 5, batch_first=True), LastOfSequence(5, 3))

    with pytest.raises(DataError, match=r"the task's network: found a tuple as the input of its last layer .*; expect"):
        seedbus.run(SHORT | {"algorithm": "moon"}, tmp_path / "run", task=own(network=recurrent))
