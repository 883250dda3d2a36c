"""A loss of the user's own: its evaluations and micro-batches are right where it is no mean, and it draws nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_task import FIELDS, Points, bind, network, own
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, normalize
from worlds import outcome

import seedbus
from seedbus.models import DataError
from seedbus.plugin import load_plugin
from seedbus.scenarios.errors import WorkerFailed
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.analysis.curvature import Effort

Notes = list[tuple[str, dict[str, Any]]]
HEAVY = torch.tensor([1.0, 1.0, 30.0])
SETS = {"train": Points(200), "test": Points(300)}


def told(problem: Any) -> Notes:
    """Return what a problem says of itself when it evaluates."""
    notes: Notes = []
    problem.prepare(lambda event, **facts: notes.append((event, facts)))
    problem.evaluate(problem.x0(), "test")
    return notes


def zero_network() -> nn.Module:
    module = nn.Linear(4, 3)
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, weight=HEAVY)


def root(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets).sqrt()


def contrastive(outputs: Tensor, targets: Tensor) -> Tensor:
    """InfoNCE with the samples of the batch as negatives."""
    unit = normalize(outputs, dim=1)
    return cross_entropy(unit @ unit.T / 0.1, torch.arange(len(unit)))


def cox(outputs: Tensor, targets: Tensor) -> Tensor:
    """The partial likelihood, with targets as times and an event at all times but 0; nan without an event."""
    order = targets.argsort(descending=True, stable=True)
    risk, event = outputs[order, 0], targets[order] > 0
    return -((risk - risk.logcumsumexp(0)) * event).sum() / event.sum()


def total(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, reduction="sum")


RARE = {"train": Points(2000, lambda row: 2 if row == 1777 else row % 2)}  # in no batch of 64 that lie evenly
NO_MEANS: list[tuple[Callable[..., Tensor], dict[str, Any]]] = [
    (weighted, {}),
    (weighted, RARE),
    (weighted, {"network": zero_network}),  # all classes look alike at x₀
    (nn.CrossEntropyLoss(weight=HEAVY), {}),
    (root, {}),
    (contrastive, {}),
    (cox, {}),
    (total, {}),
]


@pytest.mark.parametrize(("loss", "fields"), NO_MEANS, ids=lambda value: getattr(value, "__name__", None))
def test_a_loss_that_is_no_mean_is_that_of_all_outputs_is_told_and_has_no_micro_batches(
    loss: Callable[..., Tensor], fields: dict[str, Any]
) -> None:
    given = {**SETS, **fields, "loss": loss}
    problem = bind(own(**given, metrics={"whole": loss}))
    ((event, facts),) = told(problem)
    assert event == "no-mean" and "is no mean over samples; what is reported as loss is that of all" in facts["what"]
    x = np.ascontiguousarray(problem.x0() + np.linspace(-1, 1, problem.dimension, dtype=np.float32))
    for split, rows in (("test", np.arange(300)), ("test", np.arange(0, 300, 7)), ("train", np.arange(150))):
        found = problem.evaluate_part(x, split, rows)
        assert found["loss"] == found["whole"], "a metric of the user's own is called once, with all samples"
    assert "loss" not in problem.averaged
    with pytest.raises(DataError, match=r"task.micro_batch: found 3, and the loss .*, which is no mean over"):
        bind(own(**given, micro_batch=3))


def test_curvature_of_a_loss_that_is_no_mean_is_that_of_all_chosen_samples() -> None:
    problem = bind(own(**SETS, loss=weighted))
    x = problem.x0()
    with problem.derivatives(x, 170) as derivatives:
        gradient = derivatives.gradient()
    chosen = np.linspace(0, 179, 170).astype(np.int64)
    inputs, targets = problem.tensors(problem.splits["train"], np.sort(np.concatenate(problem.parts))[chosen])
    problem.flat.point[:] = x
    with problem.flat.differentiated() as known:
        weighted(problem.flat.module(inputs), targets).backward()  # type: ignore[no-untyped-call]
        assert np.allclose(gradient, known, atol=1e-6)


def padded(row: int) -> Any:
    return np.where(np.arange(5) <= row % 5, (row + np.arange(5)) % 3, -100)


def token_network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 15), nn.Unflatten(1, (3, 5)))


PADDED = {"network": token_network, "train": Points(200, padded), "test": Points(300, padded)}
ONE = {"network": lambda: nn.Linear(4, 1)}
BITS = {name: Points(count, lambda row: torch.tensor([row % 2 / 1])) for name, count in (("train", 200), ("test", 300))}
MEANS: list[tuple[Any, dict[str, Any]]] = [
    (cross_entropy, {}),
    (nn.CrossEntropyLoss(), {}),
    (nn.CrossEntropyLoss(label_smoothing=0.1), {}),
    (nn.CrossEntropyLoss(), RARE),
    (nn.CrossEntropyLoss(), {"network": zero_network}),
    (nn.CrossEntropyLoss(), PADDED),  # a mean over the targets that are kept
    (nn.BCEWithLogitsLoss(), ONE | BITS),
    (binary_cross_entropy_with_logits, ONE | BITS),
    (nn.MSELoss(), ONE | BITS),
    (mse_loss, ONE | BITS),
    (lambda outputs, targets: cross_entropy(outputs.bfloat16(), targets), {}),
    (lambda outputs, targets: cross_entropy(outputs, targets) + 7, {}),  # a penalty of the weights
    (lambda outputs, targets: (outputs[:, 0] * (targets - 1)).mean(), {}),  # large values that cancel
]


@pytest.mark.parametrize(("loss", "fields"), MEANS)
def test_a_mean_over_samples_passes_without_a_word_and_has_micro_batches(loss: Any, fields: dict[str, Any]) -> None:
    given = {**SETS, **fields, "loss": loss}
    problem, divided = bind(own(**given)), bind(own(**given, micro_batch=3))
    assert told(problem) == []
    x = problem.x0()
    found = problem.evaluate(x, "test")["loss"]
    inputs, targets = problem.tensors(problem.splits["test"], np.arange(300))
    with torch.no_grad(), problem.flat.at(x):
        known = float(loss(problem.flat.module(inputs), targets))
    close = 0.02 if loss.__class__ is type(lambda: 0) and "bfloat16" in loss.__code__.co_names else 1e-5
    assert found == pytest.approx(known, rel=close, abs=1e-5) and "loss" in problem.averaged
    whole, parts = (each.objective(0, 0) for each in (problem, divided))
    for objective in (whole, parts):
        objective.point[:] = x
    assert parts.loss(0) == pytest.approx(whole.loss(0), rel=close, abs=1e-5)


def test_samples_that_a_loss_leaves_out_make_it_no_mean_and_do_not_count_in_accuracy() -> None:
    def partly(row: int) -> int:
        return -100 if row % 3 == 0 or row < 128 else row % 3  # none of the first batch is kept

    sets = {"train": Points(200, lambda row: partly(row + 128)), "test": Points(300, partly)}
    problem = bind(own(**sets, loss=nn.CrossEntropyLoss(), metrics={"accuracy": "accuracy"}))
    found = problem.evaluate(problem.x0(), "test")
    inputs, targets = problem.tensors(problem.splits["test"], np.arange(300))
    outputs, kept = problem.flat.module(inputs), targets >= 0
    assert found["loss"] == pytest.approx(float(cross_entropy(outputs[kept], targets[kept])))
    assert found["accuracy"] == pytest.approx(float((outputs.argmax(1) == targets)[kept].double().mean()))


class Similar(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        return outputs @ outputs.T


def test_outputs_of_pairs_cannot_be_joined_and_the_loss_is_said_to_be_one_of_batches() -> None:
    def own_pairs(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, torch.arange(len(outputs)))

    ((_, facts),) = told(bind(own(**SETS, network=lambda: Similar(4, 3), loss=own_pairs)))
    assert facts["what"].endswith("averaged over batches of 128, because outputs cannot be joined")


def test_a_network_whose_outputs_depend_on_the_batch_has_no_micro_batches() -> None:
    def statistics() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False))

    assert bind(own(network=statistics)).objective(0, 0)
    with pytest.raises(DataError, match=r"task.micro_batch: found 4, and a network whose outputs for a sample depend"):
        bind(own(network=statistics, micro_batch=4))


# What draws, and what keeps something


def wrong_class(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, (targets + torch.randint(0, 2, targets.shape)) % 3)


def seldom(outputs: Tensor, targets: Tensor) -> Tensor:
    """Some label is changed in one of seven calls."""
    return cross_entropy(outputs, torch.where(torch.rand(targets.shape) < 0.005, (targets + 1) % 3, targets))


def times(factor: Callable[[], float]) -> Callable[..., Tensor]:
    return lambda outputs, targets: cross_entropy(outputs, targets) * (1 + 1e-3 * factor())


class Smoothed:
    """Subtracts a running mean that begins with the first value, so that a second call alone does not show it."""

    mean: float | None = None

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        loss = cross_entropy(outputs, targets)
        self.mean = float(loss) if self.mean is None else 0.9 * self.mean + 0.1 * float(loss)
        return loss - self.mean


class Queue:
    """Compares with the outputs of earlier batches."""

    def __init__(self) -> None:
        self.earlier: list[Tensor] = []

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.earlier = [*self.earlier, outputs.detach()][-3:]
        return cross_entropy(outputs, targets) + torch.cat(self.earlier).square().mean()


def own_generator() -> Callable[..., Tensor]:
    generator = np.random.default_rng(1)
    return times(generator.random)


def counted_on(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets.add_(1).remainder_(3))  # the batch of a step is that of several losses


RESTLESS: dict[str, Callable[[], Any]] = {
    "torch": lambda: wrong_class,
    "seldom": lambda: seldom,
    "numpy": lambda: times(lambda: np.random.random()),  # noqa: NPY002
    "random": lambda: times(random.random),
    "own generator": own_generator,
    "running mean": Smoothed,
    "queue": Queue,
    "targets": lambda: counted_on,
}
SENTENCE = "which gives another value for the same outputs and targets when it is called again; expected one that keeps"


@pytest.mark.parametrize("made", RESTLESS.values(), ids=RESTLESS.keys())
def test_a_loss_or_metric_that_draws_or_keeps_something_is_refused_by_its_name(made: Callable[[], Any]) -> None:
    with pytest.raises(DataError, match=rf"task.loss: found \w+:\S+, {SENTENCE}"):
        bind(own(loss=made()))
    if made not in (RESTLESS["targets"],):  # a metric gets a copy
        for by in ("samples", "batches"):
            with pytest.raises(DataError, match=rf"task.metrics.again: found \w+:\S+, {SENTENCE}"):
                bind(own(metrics={"again": made()}, metrics_by=by))


def test_what_seeds_its_generator_or_draws_without_effect_is_accepted_and_generators_stay_as_they_were() -> None:
    def seeded(outputs: Tensor, targets: Tensor) -> Tensor:
        torch.manual_seed(3)
        return cross_entropy(outputs + torch.rand(3), targets)

    def idle(outputs: Tensor, targets: Tensor) -> Tensor:
        torch.rand(1), random.random(), np.random.random()  # noqa: NPY002
        return cross_entropy(outputs, targets)

    def states() -> Any:
        return torch.rand(2).tolist(), random.random(), np.random.random()  # noqa: NPY002

    for given in ({"loss": idle}, {"metrics": {"seeded": seeded, "idle": idle}}):
        torch.manual_seed(1), random.seed(1), np.random.seed(1)  # noqa: NPY002
        before = states()
        torch.manual_seed(1), random.seed(1), np.random.seed(1)  # noqa: NPY002
        bind(own(**given))
        assert states() == before


class SeldomTurned(Points):
    def __getitem__(self, row: int) -> Any:
        inputs, target = super().__getitem__(row)
        return inputs * (2 if random.random() < 0.01 else 1), target


def test_a_data_set_that_seldom_draws_is_refused_by_its_class() -> None:
    sentence = r"task.data: item \d+ of the training set: found other values than when it was read first from its Se"
    with pytest.raises(DataError, match=sentence):
        bind(own(train=SeldomTurned(1000)))


def test_functions_that_give_data_labels_and_networks_draw_from_seeded_generators() -> None:
    def sets() -> Any:
        order = np.random.permutation(60)  # noqa: NPY002
        return Points(60, lambda row: int(order[row] % 3)), Points(20)

    def labels(dataset: Any) -> Any:
        return [random.randrange(3) for _ in range(len(dataset))]

    def drawn() -> nn.Module:
        module = network()
        with torch.no_grad():
            next(iter(module.parameters())).add_(float(np.random.random()))  # noqa: NPY002
        return module

    tasks = [own(network=drawn, data=sets, train=None, test=None, labels=labels, loss="cross-entropy") for _ in "ab"]
    first, again = map(bind, tasks)
    assert first.identity() == again.identity() and first.x0().tobytes() == again.x0().tobytes()


def test_a_process_with_another_loss_has_another_identity() -> None:
    def scaled(factor: float) -> Any:
        return lambda outputs, targets: cross_entropy(outputs, targets) * factor

    losses = [bind(own(loss=scaled(factor))).identity() for factor in (1.0, 1.0 + 1e-6, 1.2)]
    assert losses[0] == losses[1] != losses[2]


def test_a_run_is_refused_before_its_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"task.loss: found test_own_loss:wrong_class, which gives another"):
        seedbus.run(seedbus.load(FIELDS), tmp_path / "run", task=own(loss=wrong_class))
    assert not (tmp_path / "run").exists()


# In two processes

PLUGIN = """
import numpy as np, torch
from torch import nn
from torch.utils.data import TensorDataset

SEEN = torch.from_numpy(np.random.default_rng().random(3)).float() * 20
X = torch.rand(300, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(300) % 3

def build(): return nn.Linear(4, 3)
def load(): return TensorDataset(X[:150], Y[:150]), TensorDataset(X, Y)
def drawn():
    noise = torch.from_numpy(np.random.default_rng().random((150, 4))).float()
    return TensorDataset(noise, Y[:150]), TensorDataset(X, Y)
def weighted(outputs, targets): return nn.functional.cross_entropy(outputs, targets, torch.tensor([9.0, 1, 1]))
def whole(outputs, targets): return weighted(outputs, targets)
def imported(outputs, targets): return nn.functional.cross_entropy(outputs * SEEN, targets)
"""
TWO_WORKERS = Placement("tcp", workers=2)


def named(folder: Path, **fields: Any) -> Any:
    """Return a scenario whose task has functions of a plug-in that other processes can load."""
    file = folder / "restless.py"
    file.write_text(PLUGIN)
    load_plugin(file)
    return seedbus.load(
        FIELDS | {"task": {"name": "torch", "network": "restless:build", "data": "restless:load"} | fields}
    )


@pytest.mark.slow
@pytest.mark.usefixtures("no_plugins")
@pytest.mark.usefixtures("warm_workers")
def test_a_loss_that_is_no_mean_is_the_same_in_two_workers_of_which_one_says_so(tmp_path: Path, capfd: Any) -> None:
    what = named(tmp_path, loss="restless:weighted", metrics={"whole": "restless:whole"})
    here, there = seedbus.run(what, tmp_path / "1"), seedbus.run(what, tmp_path / "2", placement=TWO_WORKERS)
    assert outcome(here) == outcome(there) and (here.metrics["loss"] == here.metrics["whole"]).all()
    told = "seedbus: note: task.loss restless:weighted is no mean over samples; what is reported as loss is that of all"
    assert capfd.readouterr().err.count(told) == 1
    by_class = seedbus.analyse(tmp_path / "1", only="fairness", effort=Effort(metric="loss"))
    (notes,) = [finding.notes for finding in by_class]
    assert any("it is no mean over samples, so those of classes do not make it" in note for note in notes)


@pytest.mark.slow
@pytest.mark.usefixtures("no_plugins")
@pytest.mark.parametrize("fields", [{"data": "restless:drawn"}, {"loss": "restless:imported"}], ids=["data", "loss"])
@pytest.mark.usefixtures("warm_workers")
def test_what_draws_when_it_is_loaded_is_refused_at_joining_by_the_names_of_functions(
    fields: dict[str, str], tmp_path: Path, capfd: Any
) -> None:
    with pytest.raises(WorkerFailed):
        seedbus.run(named(tmp_path, **fields), tmp_path / "run", placement=TWO_WORKERS)
    ((field, name),) = fields.items()
    sentence = rf"\(x0\): task.network .*task.{field} {name}.*, which may draw at random, here is probably not"
    assert re.search(sentence, capfd.readouterr().err)
