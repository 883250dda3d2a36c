"""The mistakes of a user's own network and data: each is one sentence, before the run begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from own_task import FIELDS, Points, bind, network, own
from torch import nn
from torch.utils.data import IterableDataset

import seedbus
from seedbus.models import DataError, Dirichlet
from seedbus.models.parameters.gradients import blocks
from seedbus.scenarios.errors import ScenarioError


class Shrinking(Points):
    reads = 0

    def __getitem__(self, row: int) -> Any:
        self.reads += 1
        if self.reads > 61:
            raise IndexError("index out of range")
        return super().__getitem__(row)


class Random(Points):
    def __getitem__(self, row: int) -> Any:
        return torch.rand(4), row % 3


class Uneven(Points):
    def __getitem__(self, row: int) -> Any:
        return torch.ones(3 if row == 41 else 4), row % 3


class Infinite(Points):
    def __getitem__(self, row: int) -> Any:
        return np.array([1.0, 2.0, np.nan if row == 17 else 3.0, 4.0]), row % 3


class Wide(Points):
    def __getitem__(self, row: int) -> Any:
        return torch.ones(5), row % 3


class Lone(Points):
    def __getitem__(self, row: int) -> Any:
        return torch.ones(4)


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


class Noisy(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) + torch.rand(3)


class Scaling(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.div_(2))


class InPlace(nn.Module):
    """Its outputs are its inputs, so that those of two calls are equal at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.mul_(self.scale)


class Counting(nn.Linear):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(inputs)


class Residual(nn.Sequential):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self[1](self[0](inputs))
        return inputs + outputs


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.head(inputs)


def failing() -> nn.Module:
    raise KeyError("weights.pt")


def random_weights() -> nn.Module:
    module = nn.Linear(4, 3)
    with torch.no_grad():
        module.weight += float(np.random.Generator(np.random.PCG64()).random())
    return module


def share(row: int) -> float:
    return row / 60


def tokens() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (3, 2)))


SHARES = {"train": Points(60, share), "test": Points(20, share)}


class Mistake(NamedTuple):
    what: str
    fields: dict[str, Any]
    sentence: str


MISTAKES = [
    Mistake("a builder that fails", {"network": failing}, r"failing, which fails \(KeyError: .*_mistakes.py line"),
    Mistake("no module", {"network": lambda: 3}, r"which returns a int; expected a torch.nn.Module"),
    Mistake("other weights", {"network": random_weights}, r"found other weights at a second call of .*random_weights"),
    Mistake("another type", {"network": lambda: network().double()}, r"0.weight in float64; expected .* in float32"),
    Mistake("nothing to train", {"network": nn.ReLU}, r"without a parameter that requires gradients"),
    Mistake(
        "weights that change where they are long",
        {"network": lambda: nn.Sequential(nn.Embedding(9, 3, max_norm=9.0), nn.Linear(3, 3))},
        r"with max_norm in 0: a forward pass changes its weights; expected an embedding without max_norm",
    ),
    Mistake("no sizes yet", {"network": lambda: nn.LazyLinear(3)}, r"without a shape yet: weight; expected layers"),
    Mistake(
        "a forward pass that fails",
        {"network": lambda: nn.Linear(5, 3)},
        r"task.network: found a forward pass that fails on inputs float32\[8, 4\] \(RuntimeError: mat1 and mat2 shapes",
    ),
    Mistake(
        "too few outputs",
        {"network": lambda: nn.Linear(4, 2)},
        r"the train set: found the class 2, and 2 outputs of the network; expected classes from 0 to 1",
    ),
    Mistake(
        "a class beyond the outputs, in a later row of targets",
        {"network": tokens, "train": Points(60, lambda row: np.array([0, 3 if row == 50 else 1]))},
        r"the train set: found the class 3, and 3 outputs of the network; expected classes from 0 to 2",
    ),
    Mistake(
        "a sample that cross-entropy leaves out",
        {"test": Points(20, lambda row: -100 if row == 7 else 1)},
        r"the test set: found no target of item 7 but -100, which cross-entropy leaves out; expected a class from",
    ),
    Mistake(
        "outputs of another shape",
        {"network": lambda: nn.Linear(4, 1), **SHARES},
        r"task.loss: found mse with outputs float32\[8, 1\] and targets float32\[8\]; expected outputs in the shape",
    ),
    Mistake(
        "fractions as classes",
        {**SHARES, "loss": "cross-entropy"},
        r"found cross-entropy with .*expected loss: mse, or whole numbers as targets",
    ),
    *(
        Mistake(
            f"{kind} as classes",
            {"train": Points(60, target), "test": Points(20, target), "loss": "cross-entropy"},
            r"task.loss: found cross-entropy with .*\[8\]; expected .* of an integer type: 1 and neither 1.0 nor True$",
        )
        for kind, target in (("floats", lambda row: row % 3 + 0.0), ("truth values", lambda row: row % 2 == 0))
    ),
    Mistake(
        "a loss for each sample",
        {"loss": lambda outputs, targets: outputs.sum(1)},
        r"task.loss: found float32\[8\] from .*; expected the mean over the batch",
    ),
    Mistake("a loss that fails", {"loss": lambda outputs: outputs}, r"task.loss: found outputs .*refuses \(TypeError"),
    Mistake(
        "a metric that fails",
        {"metrics": {"f1": lambda outputs, targets: outputs}},
        r"task.metrics.f1: found an error with outputs float32\[20, 3\] and targets .* returns one number, nan",
    ),
    Mistake("a pass that draws", {"network": lambda: Noisy(4, 3)}, r"other outputs for the same inputs at a second"),
    Mistake("a pass that changes its inputs", {"network": lambda: Scaling(4, 3)}, r"forward pass that changes its inp"),
    Mistake("outputs in the place of inputs", {"network": InPlace}, r"changes its inputs; expected one that changes a"),
    Mistake("a pass that changes a buffer", {"network": Counting}, r"a forward pass that changes parameters or"),
    Mistake("no items", {"train": Points(0)}, r"task.data: the training set: found no items; expected at least one"),
    Mistake("no length", {"train": Streamed()}, r"the training set: found a Streamed; expected a map-style data set"),
    Mistake("no pair", {"train": Lone()}, r"item 0 of the training set: found a Tensor; expected items \(input, tar"),
    Mistake("items of two shapes", {"train": Uneven()}, r"item 41 of the training set: found what torch cannot put"),
    Mistake("not finite", {"test": Infinite(20)}, r"item 17 of the test set: found an input that is not finite"),
    Mistake(
        "a test set of another shape",
        {"test": Wide(20)},
        r"the test set: found inputs float32\[8, 5\] and targets int64\[8\], which fail \(RuntimeError: mat1 .*\); "
        r"expected samples like those of the training set, whose first have inputs float32\[8, 4\] and targets int64",
    ),
    Mistake("other values", {"train": Random()}, r"item 0 of the training set: found other values than when"),
    Mistake("fewer items", {"train": Shrinking()}, r"found an error when it is read \(IndexError.*had 60 items"),
    Mistake("too few labels", {"labels": [0, 1]}, r"task.labels: found a list; expected a whole number for each of"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_a_mistake_is_told_in_one_sentence(mistake: Mistake) -> None:
    with pytest.raises(DataError, match=mistake.sentence) as raised:
        bind(own(**mistake.fields))
    assert "\n" not in str(raised.value)


def test_a_data_set_that_changes_during_a_run_is_noticed() -> None:
    data = Points()
    problem = bind(own(train=data, in_memory=False))
    data.inputs[:, 0] += 1
    with pytest.raises(DataError, match="found other values than when it was read first"):
        problem.objective(0, 0).loss(0)
    data.inputs = data.inputs[:0]
    with pytest.raises(DataError, match=r"found an error when it is read \(IndexError.*it had 60 items at first"):
        problem.objective(1, 0).loss(0)


def test_a_network_that_fails_on_a_later_batch_is_one_sentence() -> None:
    class Numbers(Points):
        def __getitem__(self, row: int) -> Any:
            return np.array([9 if row == 50 else row % 9]), row % 3

    fields = {"network": lambda: nn.Sequential(nn.Embedding(9, 3), nn.Flatten()), "validation": 0}
    problem = bind(own(**fields, train=Numbers(), test=Numbers()))
    sentence = r"network: found an error on inputs int64\[\d+, 1\] and targets int64\[\d+\] \(IndexError: index out of"
    with pytest.raises(DataError, match=sentence):
        problem.evaluate(problem.x0(), "test")
    (client,) = (client for client in range(4) if 50 in problem.parts[client])
    objective = problem.objective(client, 0)
    for computed in (objective.loss, objective.gradient):
        with pytest.raises(DataError, match=sentence):
            for step in range(100):
                computed(step)


def test_targets_that_are_no_classes_are_not_divided_by_class() -> None:
    columns = {"train": Points(60, lambda row: np.array([row / 60])), "test": Points(20, lambda row: np.array([0.5]))}
    task = own(network=lambda: nn.Linear(4, 1), **columns)
    assert sum(map(bind(task).samples, range(4))) == 54
    for divide in (bind, lambda task, partition: task.division(seed=1, clients=4, partition=partition)):
        with pytest.raises(DataError, match="partition dirichlet: found targets that are no classes; expected task"):
            divide(task, Dirichlet(alpha=0.5))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"network": 3}, "expected a function, or plugin:function"),
        ({"data": "mine:load"}, "expected either `data`, or in Python `train` and `test`"),
        ({"test": None}, "expected either `data`, or in Python `train` and `test`"),
        ({"loss": "hinge"}, "expected cross-entropy, mse, or plugin:function"),
        ({"metrics": {"f1": "f1"}}, "expected accuracy, or plugin:function"),
        ({"metrics": {"round": "accuracy"}}, "no metric may be called 'round'"),
        ({"metrics": {"loss_ema": "accuracy"}}, "no metric may be called 'loss_ema'"),
        ({"metrics": {"epsilon": "accuracy"}}, "no metric may be called 'epsilon'"),
        ({"larger_is_better": ["top2"]}, "larger_is_better names 'top2'; the metrics beside the loss are accuracy"),
    ],
)
def test_a_field_of_another_kind_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        own(**fields)


def test_no_memory_for_the_samples_names_settings_that_need_less(tmp_path: Path) -> None:
    class Large(Points):
        def __getitem__(self, row: int) -> Any:
            raise MemoryError("Unable to allocate 3.00 GiB for an array")

    expected = r"no memory for 3.00 GiB more .*; expected .*task.in_memory: false"
    with pytest.raises(DataError, match=expected):
        seedbus.run(seedbus.load(FIELDS), tmp_path / "run", task=own(train=Large()))


def test_a_method_that_needs_blocks_says_so_of_a_network_that_has_none(tmp_path: Path) -> None:
    what = seedbus.load(FIELDS | {"algorithm": "moon"})
    with pytest.raises(DataError, match=r"found Plain, which is not a sequence of layers; expected nn.Sequential"):
        seedbus.run(what, tmp_path / "run", task=own(network=Plain))
    with pytest.raises(DataError, match=r"found Residual, which is not a sequence of layers; expected nn.Sequential"):
        blocks(Residual(nn.Linear(4, 4), nn.Linear(4, 4)))


@pytest.mark.parametrize(
    "fields",
    [{"loss": lambda outputs, targets: outputs.square().mean()}, {**SHARES, "loss": "mse"}],
    ids=["own", "mse"],
)
def test_a_method_that_uses_outputs_is_refused_with_another_loss_that_it_would_replace(fields: dict[str, Any]) -> None:
    for algorithm in ("fedlc", "moon", {"name": "fedavg", "also": [{"name": "feddecorr"}]}):
        with pytest.raises(
            ScenarioError, match=r"needs the outputs of a classifier that learns by cross-entropy, and t"
        ):
            seedbus.load(FIELDS | {"algorithm": algorithm, "task": own(**fields)})
    assert seedbus.load(FIELDS | {"algorithm": "fedavg", "task": own(**fields)}).has_task
