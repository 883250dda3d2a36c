"""Metrics of the user's own: functions of the outputs and targets of all samples that are evaluated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from own_task import Points, own
from own_task import bind as bind_torch
from pydantic import ValidationError
from sklearn.metrics import f1_score, roc_auc_score
from small_data import SMALLER
from task_contract import KINDS, bind, skip_without_packages
from torch import Tensor, nn

from seedbus.models import DataError
from seedbus.models.images.settings import ClassifierSettings
from seedbus.models.own_code import own_metrics
from seedbus.models.own_code.named import METRICS_FIELD
from seedbus.models.tasks.digits import Digits
from seedbus.models.tasks.table import Table

pytestmark = pytest.mark.usefixtures("small_sets")

CLASSIFIERS = sorted(
    name for name, kind in KINDS.items() if issubclass(kind, ClassifierSettings) and name != "blackbox-attack"
)
MANY = {
    "network": lambda: nn.Linear(4, 2),
    "train": Points(60, lambda row: int(row % 9 == 0)),
    "test": Points(300, lambda row: int(row % 9 == 0)),
}


def area(outputs: Tensor, targets: Tensor) -> float:
    return float(roc_auc_score(targets, outputs[:, 1]))


def f1(outputs: Tensor, targets: Tensor) -> float:
    return float(f1_score(targets, outputs.argmax(dim=1), zero_division=0))


def share(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(dim=1) == targets).double().mean()


class Given:
    """Keeps what it is called with, and returns the share of right classes."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, outputs: Any, targets: Tensor) -> float:
        self.calls.append((outputs, targets))
        return 0.5


def test_a_metric_is_the_function_of_all_outputs_and_not_a_mean_over_batches() -> None:
    task = own(**MANY, metrics={"accuracy": "accuracy", "auroc": area, "f1": f1})
    problem = bind_torch(task)
    x = problem.x0()
    for split, indices in (("test", np.arange(300)), ("test", np.arange(0, 300, 2)), ("train", problem.parts[1])):
        found = problem.evaluate_part(x, split, indices)
        inputs, targets = problem.tensors(problem.splits[split], indices)
        with torch.no_grad(), problem.flat.at(x):
            outputs = problem.flat.module(inputs)
        known = [area(outputs, targets), f1(outputs, targets), float(share(outputs, targets))]
        assert [found[name] for name in ("auroc", "f1", "accuracy")] == pytest.approx(known, rel=1e-6)
        assert list(found) == list(task.metrics) == ["loss", "accuracy", "auroc", "f1"]
    batches = [np.arange(300)[first : first + 128] for first in (0, 128, 256)]
    of_batches = [problem.evaluate_part(x, "test", rows)["auroc"] for rows in batches]
    mean = np.average(of_batches, weights=[rows.size for rows in batches])
    by_batches = bind_torch(own(**MANY, metrics={"auroc": area}, metrics_by="batches"))
    assert by_batches.evaluate(x, "test")["auroc"] == pytest.approx(mean)
    assert abs(mean - problem.evaluate(x, "test")["auroc"]) > 0.001


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_takes_metrics_of_the_users_beside_its_own_or_in_their_place(name: str) -> None:
    skip_without_packages(name)
    smaller = SMALLER.get(name, {}) | ({"model": "softmax"} if name in ("mnist", "fashion-mnist") else {})
    known = bind(KINDS[name](**smaller))
    given = Given()
    task = KINDS[name](**smaller, metrics={"right": share, "given": given, "accuracy": "accuracy"})
    problem = bind(task)
    assert task.metrics == ("loss", "right", "given", "accuracy") and task.averaged == ("loss", "accuracy")
    x = known.x0()
    given.calls.clear()
    found, without = problem.evaluate(x, "test"), known.evaluate(x, "test")
    assert {each: found[each] for each in without} == without and list(found) == list(task.metrics)
    assert found["right"] == pytest.approx(found["accuracy"], abs=1e-12) and found["given"] == 0.5
    ((outputs, targets),) = given.calls
    assert targets.tolist() == known.classes("test").tolist() and len(outputs) == len(targets)
    only = KINDS[name](**smaller, metrics={"right": share}, larger_is_better=["right"])
    assert list(bind(only).evaluate(x, "test")) == ["loss", "right"] and "right" in only.rising


def test_a_number_has_metrics_of_its_own_and_a_name_of_ours_must_fit_the_target() -> None:
    people = SMALLER["table"] | {"target": "height"}

    def errors(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] - targets).square().mean()

    problem = bind(Table(**people, metrics={"mae": "mae", "mse": errors}))
    found = problem.evaluate(problem.x0(), "test")
    assert found["mse"] == pytest.approx(found["loss"]) and found["mae"] > found["mse"]
    for fields, sentence in (
        (
            people | {"metrics": {"right": "accuracy"}},
            "right: found accuracy, and the target is a number; expected mae",
        ),
        (
            SMALLER["table"] | {"metrics": {"m": "mae"}},
            "m: found mae, and the target is a class; expected accuracy, or",
        ),
    ):
        with pytest.raises(DataError, match=f"{METRICS_FIELD}.{sentence}"):
            bind(Table(**fields))


def test_an_attack_has_no_metrics_of_the_users() -> None:
    with pytest.raises(ValidationError, match=r"metrics\n  Extra inputs are not permitted"):
        KINDS["blackbox-attack"](metrics={"share": share})


class Twofold(nn.Linear):
    """Its outputs are a tuple of a tensor and a mapping of tensors, and it writes them to the same place each time."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.kept: dict[int, Tensor] = {}

    def forward(self, inputs: Tensor) -> Any:
        logits = super().forward(inputs)
        place = self.kept.setdefault(len(inputs), torch.empty(len(inputs)))
        place.copy_(logits.detach()[:, 0])
        return logits, {"first": place, "pairs": inputs.reshape(-1, 2, 2)}


def first_loss(outputs: Any, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs[0], targets)


def test_outputs_of_several_tensors_are_joined_tensor_by_tensor() -> None:
    given = Given()
    fields = {"network": Twofold, "train": Points(60), "test": Points(300), "loss": first_loss}
    problem = bind_torch(own(**fields, metrics={"given": given}))
    given.calls.clear()
    problem.evaluate(problem.x0(), "test")
    (((logits, others), targets),) = given.calls
    assert torch.equal(others["first"], logits[:, 0]) and targets.tolist() == [row % 3 for row in range(300)]
    inputs = torch.tensor(Points(300).inputs, dtype=torch.float32)
    assert torch.equal(others["pairs"].reshape(300, 4), inputs) and not logits.requires_grad


class Pooled(nn.Linear):
    """Its second output is a sum over the given dimensions of its weights."""

    def __init__(self, *dims: int) -> None:
        super().__init__(4, 3)
        self.dims = dims

    def forward(self, inputs: Tensor) -> Any:
        return super().forward(inputs), self.weight.sum(dim=self.dims)


BATCHES = "task.metrics_by: batches for a metric that is a mean over samples"
KEPT = [
    (
        nn.Linear(4, 3),
        r"float32\[128, 3\] of a batch; with targets, 6,000 bytes for 300 samples; expected at most 4,000: fewer "
        rf"samples, or {BATCHES}",
    ),
    (Pooled(0, 1), rf"float32\[\d+, 3\], float32\[\] of a batch of \d+, which cannot be joined with .*{BATCHES}"),
    (
        Pooled(0),
        r"float32\[\d+, 3\], float32\[4\] of .* expected tensors with the samples as their first dimension",
    ),
]


@pytest.mark.parametrize(("network", "sentence"), KEPT, ids=["too large", "a number", "weights"])
def test_outputs_that_cannot_be_kept_are_refused_and_a_mean_over_batches_is_a_way(
    network: nn.Module, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_large = not isinstance(network, Pooled)

    def right(outputs: Any, targets: Tensor) -> Tensor:
        return share(outputs if is_large else outputs[0], targets)

    fields: Any = {"network": network, "test": Points(300), "metrics": {"right": right}}
    fields |= {} if is_large else {"loss": first_loss}
    monkeypatch.setattr(own_metrics, "MOST_BYTES", 200 * (3 * 4 + 8))
    with pytest.raises(DataError, match=f"{METRICS_FIELD}.right: found outputs {sentence}"):
        problem = bind_torch(own(**fields))
        problem.evaluate_part(problem.x0(), "test", np.arange(200))  # as many as may be kept
        problem.evaluate(problem.x0(), "test")
    problem = bind_torch(own(**fields, metrics_by="batches"))
    x = problem.x0()
    inputs, targets = problem.tensors(problem.splits["test"], np.arange(300))
    with torch.no_grad(), problem.flat.at(x):
        known = right(problem.flat.module(inputs), targets)
    assert problem.evaluate(x, "test")["right"] == pytest.approx(float(known))


def test_a_metric_that_fails_on_few_samples_alone_is_no_mistake_and_nan_is_a_value() -> None:
    def needs_all(outputs: Tensor, targets: Tensor) -> float:
        if len(targets) < 300:
            raise ValueError("a class is missing")
        return math.nan

    problem = bind_torch(own(**MANY, metrics={"rare": needs_all}))
    found = problem.evaluate(problem.x0(), "test")
    assert math.isnan(found["rare"]) and math.isfinite(found["loss"])
    with pytest.raises(DataError, match=r"task.metrics.rare: found an error with .* a class is missing, .*test_own_m"):
        problem.evaluate_part(problem.x0(), "test", np.arange(10))


@pytest.mark.parametrize("way", ["samples", "batches"])
def test_a_metric_that_writes_to_its_arguments_changes_no_other_metric(way: str) -> None:
    def writes(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.zero_() + targets.zero_()[:, None]).sum()

    for task in (own(**MANY, metrics_by=way), Digits(model="softmax", metrics_by=way)):
        found = []
        for metrics in ({"share": share}, {"writes": writes, "share": share, "accuracy": "accuracy"}):
            problem = bind(task.model_copy(update={"own_metrics": metrics}))
            found += [problem.evaluate(problem.x0(), "test") for _ in range(2)]
        assert len({each["share"] for each in found}) == 1 and {found[2]["writes"], found[3]["writes"]} == {0.0}
        assert found[3]["accuracy"] == pytest.approx(found[3]["share"], abs=1e-12)


def test_a_mistake_in_a_metric_of_a_classifier_is_found_before_the_run() -> None:
    with pytest.raises(DataError, match=r"task.metrics.f1: found an error with outputs float32\[\d+, 10\] and targe"):
        bind(Digits(model="softmax", metrics={"f1": lambda outputs, targets: outputs}))
    with pytest.raises(DataError, match=r"task.metrics.f1: found 'mine:f1'; expected plugin:function .* in Python\)$"):
        bind(Digits(model="softmax", metrics={"f1": "mine:f1"}))
    with pytest.raises(DataError, match=r"task.metrics.f1: found test_own_metrics:f1, which only this process has"):
        Digits(model="softmax", metrics={"f1": f1}).check_elsewhere()
