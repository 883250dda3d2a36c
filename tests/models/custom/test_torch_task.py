"""The task of the user's own network and data: given in Python, or named in a plug-in."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_task import FIELDS, Points, bind, network, own
from plugin_files import forget
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import ConcatDataset, Dataset, Subset
from worlds import outcome

import seedbus
from seedbus import TorchTask
from seedbus.agents.errors import RunFolderError
from seedbus.discovery import PLUGINS
from seedbus.models import DataError, Dirichlet, Iid, Pathological
from seedbus.models.own_code.network import called
from seedbus.models.parameters.compiled import COMPILERS
from seedbus.plugin import load_plugin
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.progress import Quiet
from seedbus.scenarios.transports.placement import Placement

MINE = Path(__file__).resolve().parents[2] / "support" / "plugins" / "mine.py"
NAMED = {"name": "torch", "network": "mine:build", "data": "mine:load"}
OWN_CODE = {"loss": "mine:smoothed", "metrics": {"accuracy": "accuracy", "top2": "mine:top2"}}
TWO_WORKERS = Placement("tcp", workers=2)

pytestmark = pytest.mark.usefixtures("no_plugins")


# Given in Python


def test_a_scenario_of_a_file_of_fields_or_of_keywords_needs_no_task_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(json.dumps(FIELDS))
    scenarios = [
        seedbus.load(FIELDS),
        seedbus.load(file),
        seedbus.Scenario(**FIELDS),
        seedbus.load(FIELDS | {"task": own()}),
        seedbus.Scenario(**FIELDS, task=own()),
    ]
    runs = [seedbus.run(each, tmp_path / str(n), task=own()) for n, each in enumerate(scenarios)]
    assert len({each.digest for each in runs}) == 1 and runs[0].summary["refusals"] == {}
    assert runs[0].summary["dimension"] == 4 * 5 + 5 + 1 + 5 * 3 + 3
    with pytest.raises(ScenarioError, match="own: task: this field is required"):
        seedbus.run(seedbus.load(FIELDS))


def test_a_mistake_that_only_the_task_shows_is_one_sentence() -> None:
    what = seedbus.load(FIELDS | {"expect": {"precision": {"at_least": 0.5}}})
    with pytest.raises(ScenarioError, match=r"own: expect.precision: nothing of that name is measured"):
        seedbus.run(what, task=own())
    assert seedbus.load(FIELDS | {"algorithm": "moon"}).with_task(own()).algorithm.facts.label == "moon"


def test_a_run_is_read_replayed_and_resumed_with_the_same_task_given_again(tmp_path: Path) -> None:
    what, folder = seedbus.load(FIELDS), tmp_path / "run"
    results = seedbus.run(what, folder, task=own())
    assert seedbus.Results.read(folder).metrics.equals(results.metrics)
    assert seedbus.replay(folder, task=own()).digest == results.digest
    assert seedbus.run(what, folder, task=own(), resume=True).digest == results.digest
    with pytest.raises(DataError, match=r"task.network: found 'own_task:network'; expected plugin:function"):
        seedbus.replay(folder)
    with pytest.raises(RunFolderError, match=r"task.batch_size is 8 there and 4 here"):
        seedbus.replay(folder, task=own(batch_size=4))
    with pytest.raises(RunFolderError, match="x0"):
        seedbus.replay(folder, task=own(train=Points(60, lambda row: (row + 1) % 3)))


def test_weights_come_from_the_runs_seed_and_leave_torchs_generator_as_it_was() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = bind(own()), bind(own()), bind(own(), seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.x0().tobytes() == again.x0().tobytes() != other.x0().tobytes()
    module = network()
    loaded = bind(own(network=module), seed=2)
    assert np.array_equal(loaded.x0(), np.concatenate([p.detach().numpy().ravel() for p in module.parameters()]))
    assert loaded.flat.module is not module


def test_the_loss_is_found_from_the_targets_and_metrics_are_means_over_all_samples() -> None:
    problem = bind(own(test=Points(200)))
    x = problem.x0()
    inputs, targets = torch.tensor(Points(200).inputs).float(), torch.arange(200) % 3
    outputs = problem.flat.module(inputs)
    metrics = problem.evaluate(x, "test")
    assert metrics["loss"] == pytest.approx(float(cross_entropy(outputs, targets)), rel=1e-6)
    assert metrics["accuracy"] == pytest.approx(float((outputs.argmax(1) == targets).double().mean()))
    fractions = own(
        network=lambda: nn.Linear(4, 1),
        train=Points(60, lambda row: np.array([row / 60])),
        test=Points(20, lambda row: np.array([row / 60])),
        metrics={"mae": lambda outputs, targets: (outputs - targets).abs().mean()},
    )
    assert fractions.loss == "mse" and fractions.metrics == ("loss", "mae") and own().loss == "cross-entropy"
    assert bind(fractions).evaluate(bind(fractions).x0(), "test").keys() == {"loss", "mae"}


def test_classes_may_be_floats_where_the_loss_is_ones_own() -> None:
    def as_float(row: int) -> float:
        return float(row % 3)

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(outputs, targets.long())

    fields = {"train": Points(60, as_float), "test": Points(20, as_float), "loss": loss}
    whole, floats = bind(own()), bind(own(**fields, metrics={"accuracy": "accuracy"}))
    assert floats.evaluate(whole.x0(), "test") == whole.evaluate(whole.x0(), "test")


def test_probabilities_as_targets_have_the_accuracy_of_their_likeliest_classes() -> None:
    def one_hot(row: int) -> Any:
        return np.eye(3)[row % 3]

    fields = {"train": Points(60, one_hot), "test": Points(200, one_hot), "loss": "cross-entropy"}
    by_class, probable = bind(own(test=Points(200))), bind(own(**fields, batch_size=3))  # as many samples as classes
    x = by_class.x0()
    assert probable.evaluate(x, "test") == pytest.approx(by_class.evaluate(x, "test"), rel=1e-6)


def token_network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 15), nn.Unflatten(1, (3, 5)))


def test_targets_that_cross_entropy_leaves_out_do_not_count_in_any_mean() -> None:
    def padded(row: int) -> Any:
        return np.where(np.arange(5) <= row % 5, (row + np.arange(5)) % 3, -100)

    fields = {"network": token_network, "train": Points(60, padded), "test": Points(200, padded)}
    problem, divided = bind(own(**fields)), bind(own(**fields, micro_batch=3))
    outputs = problem.flat.module(torch.tensor(Points(200).inputs).float())
    targets = torch.tensor(np.stack([padded(row) for row in range(200)]))
    metrics = problem.evaluate(problem.x0(), "test")
    assert metrics["loss"] == pytest.approx(float(cross_entropy(outputs, targets)), rel=1e-6)
    is_right = (outputs.argmax(1) == targets)[targets >= 0]
    assert metrics["accuracy"] == pytest.approx(float(is_right.double().mean()))
    whole, parts = (each.objective(0, 0) for each in (problem, divided))
    for objective in (whole, parts):
        objective.point[:] = problem.x0()
    assert parts.loss(0) == pytest.approx(whole.loss(0), rel=1e-6)
    assert np.allclose(parts.gradient(0), whole.gradient(0), atol=1e-7)


def test_a_clients_samples_of_each_class_are_counted_by_targets_and_not_by_the_labels_of_partitions() -> None:
    sites = bind(own(labels=np.arange(60) // 15 - 1))
    targets = np.arange(60) % 3
    rows = sites.splits["train"].rows
    for client in range(4):
        counts = sites.objective(client, 0).counts()
        assert counts.tolist() == np.bincount(targets[rows[sites.parts[client]]], minlength=3).tolist()
    marks = Points(60, lambda row: np.arange(row, row + 5) % 3)
    tokens = bind(own(network=token_network, train=marks, test=marks))
    with pytest.raises(DataError, match="training set: found targets that are no classes; expected a class for each"):
        tokens.objective(0, 0).counts()


def test_inputs_may_be_several_or_named() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> Any:
            return self.head(first + second)

    class Pairs(Points):
        names: Any = None

        def __getitem__(self, row: int) -> Any:
            pair = (torch.ones(3) * row, torch.ones(3))
            return (dict(zip(self.names, pair, strict=True)) if self.names else pair), row % 2

    class Named(Pairs):
        names = ("second", "first")

    losses = [bind(own(network=Two, train=kind(), test=kind())).objective(0, 0).loss(0) for kind in (Pairs, Named)]
    assert losses[0] == losses[1] and np.isfinite(losses[0])


class Attributed(Points):
    targets: Any = [row % 5 for row in range(60)]  # noqa: RUF012


def test_samples_are_divided_by_given_labels_by_targets_or_by_an_attribute() -> None:
    labels = [row % 2 for row in range(60)]
    numbers = {"network": lambda: nn.Linear(4, 1), "loss": "mse", "test": Points(20, lambda row: np.array([0.5]))}
    by_attribute = own(train=Attributed(60, lambda row: np.array([row / 60])), **numbers)
    found = {
        3: bind(own(), Dirichlet(alpha=0.5)),
        5: bind(by_attribute, Dirichlet(alpha=0.5)),
        2: bind(own(labels=labels), Dirichlet(alpha=0.5)),
        1: bind(own(labels=lambda dataset: np.zeros(len(dataset), int)), Dirichlet(alpha=0.5)),
    }
    for classes, problem in found.items():
        assert problem.splits["train"].labels.max() + 1 == classes
        assert sum(problem.samples(client) for client in range(4)) == 54
    assert len({each.identity() for each in found.values()}) == 4
    division = own(labels=labels).division(seed=1, clients=4, partition=Dirichlet(alpha=0.5))
    assert all(np.array_equal(a, b) for a, b in zip(division.parts, found[2].parts, strict=True))
    assert own(labels=np.array(labels, float)).division(seed=1, clients=4, partition=Iid()).labels.max() == 1


class Reordered(Dataset[Any]):
    """Hands on the attributes of the data set whose items it reorders."""

    def __init__(self, base: Any, order: Any) -> None:
        self.base, self.order = base, order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, row: int) -> Any:
        return self.base[self.order[row]]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.base, name)


class Plain(Points):
    """Its attribute is its items' targets, in whatever form these are."""

    def __init__(self, count: int = 60, target: Any = lambda row: row % 3) -> None:
        super().__init__(count, target)
        self.targets = [row % 3 for row in range(count)]


MIXED = np.random.Generator(np.random.Philox(1)).permutation(60)
TARGETS: dict[str, Callable[[int], Any]] = {
    "whole": lambda row: row % 3,
    "tensor": lambda row: torch.tensor(row % 3),
    "float": lambda row: float(row % 3),
    "column": lambda row: np.array([row % 3], np.float32),
    "one hot": lambda row: np.eye(3, dtype=np.float32)[row % 3],
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_targets_of_items_divide_a_view_and_not_the_attribute_of_what_it_views(target: Any) -> None:
    base = Plain(60, target)
    views: dict[str, tuple[Any, Any]] = {
        "itself": (base, np.arange(60)),
        "reordered": (Reordered(base, MIXED), MIXED),
        "selected": (Reordered(base, MIXED[:40]), MIXED[:40]),
        "subset": (Subset(base, MIXED.tolist()), MIXED),
        "joined": (ConcatDataset([Subset(base, MIXED[:10].tolist()), base]), [*MIXED[:10], *range(60)]),
        "listed": ([base[row] for row in MIXED], MIXED),
    }
    for name, (view, rows) in views.items():
        found = own(train=view, loss=lambda outputs, targets: outputs.sum(), validation=0)
        division = found.division(seed=1, clients=3, partition=Pathological(classes=1))
        held = [{int(rows[sample]) % 3 for sample in part} for part in division.parts]
        assert sorted(map(list, held)) == [[0], [1], [2]], name
        row = next(row for row in range(60) if MIXED[row] % 3 != row % 3)
        there = f"the class {MIXED[row] % 3}, and {row % 3} in the attribute targets of the data set"
        note = f"task.data: item {row} of the training set has {there}; partitions go by the items, or by task.labels"
        assert division.notes == ([note] if name == "reordered" else [])


def test_a_transform_that_changes_targets_decides_and_a_run_tells_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped = Plain(60, lambda row: 2 - row % 3)
    task = own(train=flipped)
    results = seedbus.run(seedbus.load(FIELDS), tmp_path / "run", task=task, observer=Quiet())
    note = (
        "seedbus: note: task.data: item 0 of the training set has the class 2, and 0 in the attribute targets of the "
    )
    assert capsys.readouterr().err == f"{note}data set; partitions go by the items, or by task.labels\n"
    del flipped.targets
    assert seedbus.run(seedbus.load(FIELDS), tmp_path / "other", task=task, observer=Quiet()).digest == results.digest
    assert capsys.readouterr().err == ""


def test_many_whole_numbers_in_floating_point_are_no_classes() -> None:
    task = own(train=Points(60, lambda row: float(row % 21)), loss=lambda outputs, targets: outputs.sum())
    with pytest.raises(DataError, match="partition dirichlet: found targets that are no classes; expected task"):
        task.division(seed=1, clients=3, partition=Dirichlet(alpha=1))


def test_samples_that_are_read_again_for_each_batch_give_the_same_bits() -> None:
    kept, reread = bind(own()), bind(own(in_memory=False))
    assert kept.identity() == reread.identity()
    for step in range(3):
        assert kept.objective(1, 0).loss(step) == reread.objective(1, 0).loss(step)
    assert kept.evaluate(kept.x0(), "test") == reread.evaluate(kept.x0(), "test")


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler here")
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_a_compiled_loss_is_near_the_eager_one() -> None:
    eager, compiled = bind(own()), bind(own(forward="compiled"))
    compiled.prepare(lambda event, **facts: None)
    for problem in (eager, compiled):
        problem.flat.point[:] = problem.x0()
    assert compiled.objective(0, 0).loss(0) == pytest.approx(eager.objective(0, 0).loss(0), rel=1e-5)
    assert compiled.probe() and not eager.probe()


# Named in a plug-in


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_functions_of_a_plug_in_give_the_same_bits_in_one_process_and_in_two_workers(tmp_path: Path) -> None:
    load_plugin(MINE)
    what = seedbus.load(FIELDS | {"task": NAMED | OWN_CODE})
    assert what.plugins == {"mine": PLUGINS["mine"].digest} and what.task.metrics == ("loss", "accuracy", "top2")
    here = seedbus.run(what, tmp_path / "here")
    there = seedbus.run(what, tmp_path / "there", placement=TWO_WORKERS)
    assert outcome(here) == outcome(there) and here.summary["version"] == 6
    mine = PLUGINS["mine"].functions
    given = TorchTask(network=mine["build"], data=mine["load"], loss=mine["smoothed"], metrics=OWN_CODE["metrics"])
    again = seedbus.run(seedbus.load(FIELDS), tmp_path / "again", task=given, placement=TWO_WORKERS)
    assert again.digest == here.digest


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["moon", "hiso", pytest.param("fedavg", marks=pytest.mark.soak)])
@pytest.mark.usefixtures("warm_workers")
def test_every_family_of_algorithms_has_the_same_bits_in_two_workers(algorithm: str, tmp_path: Path) -> None:
    load_plugin(MINE)
    what = seedbus.load(FIELDS | {"task": NAMED, "algorithm": algorithm, "stop": {"rounds": 2}})
    here, there = seedbus.run(what, tmp_path / "1"), seedbus.run(what, tmp_path / "2", placement=TWO_WORKERS)
    assert outcome(here) == outcome(there) and here.summary["version"] == 2


def test_what_only_this_process_has_is_refused_with_workers(tmp_path: Path) -> None:
    load_plugin(MINE)
    local = {
        "task.network": own(data="mine:load", train=None, test=None, loss="mse"),
        "task.train": own(network="mine:build"),
    }
    for field, task in local.items():
        with pytest.raises(
            DataError, match=f"{field}: found .*, which only this process has; expected plugin:function"
        ):
            seedbus.run(seedbus.load(FIELDS), tmp_path / "run", task=task, placement=TWO_WORKERS)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_name_is_looked_up_in_loaded_plug_ins_alone_and_only_their_own_public_functions_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.import_module", lambda *_: pytest.fail("a module was imported"))
    for text in ("mine:build", "os:getcwd", "own_task:network"):
        with pytest.raises(
            DataError, match=re.escape(f"task.network: found '{text}'; expected plugin:function of a plug-in")
        ):
            bind(own(network=text))
    monkeypatch.undo()
    load_plugin(MINE)
    for text in (
        "mine:torch",
        "mine:TensorDataset",
        "mine:nn.Linear",
        "mine:blobs.__call__",
        "mine:__name__",
        "mine:absent",
    ):
        with pytest.raises(
            DataError, match=r"a public function that the plug-in mine defines; there are mine:blobs, mine:build"
        ):
            bind(own(network=text))
    forget()
    with pytest.raises(ScenarioError, match=r"plugins.mine: this process has not loaded that plug-in"):
        seedbus.load(FIELDS | {"task": NAMED, "plugins": {"mine": "0" * 32}})


def test_functions_of_runs_in_several_threads_draw_what_each_draws_alone() -> None:
    """Torch's generator, which is seeded for a call, belongs to the whole process."""

    def draws() -> list[float]:
        found = []
        for _ in range(20):
            found.append(float(torch.randn(())))
            time.sleep(0.001)
        return found

    def one(key: int) -> Any:
        return called(draws, "task.data", "draws", key)

    alone = [one(key) for key in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(one, range(4))) == alone
