"""How well a model serves each client: its own samples, test samples by its classes, and whether it was heard."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from own_task import FIELDS, Points, own
from plugin_files import forget
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from small_data import femnist_samples, leaf_file, leaf_sets, people_table
from torch import Tensor
from worlds import go, scenario

import seedbus
from seedbus.models.tasks.table import Table
from seedbus.plugin import Method, ScalarOnly, register
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.findings import Finding
from seedbus.scenarios.reporting.meter import Meter
from seedbus.scenarios.reporting.round_table import Pairs, RoundTable
from seedbus.studies.analysis.analyse import analyse
from seedbus.studies.analysis.curvature import Effort
from seedbus.studies.analysis.fairness import Spread, by_reports, fairness, reports, weighed_by_class
from seedbus.studies.analysis.subject import NotHere, Subject


@pytest.mark.parametrize("mask", [{}, {"mask": {"rule": "random", "density": 0.2}}], ids=["whole", "masked"])
def test_what_clients_are_served_is_what_the_network_says_of_their_samples_and_of_their_classes(
    mask: dict[str, Any], tmp_path: Path
) -> None:
    digits = {"name": "digits", "model": "softmax", "validation": 0.5}
    there = {"task": digits, "partition": {"kind": "dirichlet", "alpha": 0.3}, "verify": False} | mask
    folder = go(tmp_path / "run", scenario(stop={"rounds": 5}, **there)).folder
    run = Subject.of(folder, [2, 5], Effort(client_samples=60), Meter(is_quiet=True))
    shown = fairness(run)
    problem: Any = run.problem
    inside = problem.inside if mask else problem
    train, test = (inside.splits[split] for split in ("train", "test"))
    for model, found in zip(run.models, shown.facts["rounds"], strict=True):
        point = problem.whole(model.point) if mask else model.point
        weights, bias = np.split(np.asarray(point, np.float64), [640])

        def is_right(split: Any, rows: Any, weights: Any = weights, bias: Any = bias) -> Any:
            pixels = inside.tensors(split, rows)[0].numpy().reshape(rows.size, -1).astype(np.float64)
            return (pixels @ weights.reshape(10, 64).T + bias).argmax(axis=1) == split.labels[rows]

        of_class = [is_right(test, np.flatnonzero(test.labels == each)).mean() for each in range(10)]
        for client, part in enumerate(inside.parts):
            own = part[[round(step * (part.size - 1) / 59 - 0.499) for step in range(60)]] if part.size > 60 else part
            assert found["own"]["values"][client] == pytest.approx(is_right(train, own).mean())
            shares = np.bincount(train.labels[part], minlength=10) / part.size
            assert found["test"]["values"][client] == pytest.approx(shares @ of_class)
        assert found["metric"] == "accuracy"
        counted = [each for round in run.stored[: found["round"]] for each in round.reported]
        assert found["reports"] == np.bincount(counted, minlength=8).tolist()
        for kind in ("own", "test"):
            assert found[kind]["mean"] == pytest.approx(np.mean(found[kind]["values"]))
            related = spearmanr(found[kind]["values"], found["reports"]).statistic
            assert found[kind]["correlation_with_reports"] == pytest.approx(related)
    _in_percent_and_the_worst_first(shown)


def _in_percent_and_the_worst_first(shown: Finding) -> None:
    """Check table and plots against the facts, of rounds 2 and 5."""
    kinds = [found[kind] for found in shown.facts["rounds"] for kind in ("own", "test")]
    for row, kind in zip(shown.rows, kinds, strict=True):
        figures = [kind[name] * 100 for name in ("mean", "deviation", "worst_tenth", "best_tenth", "worst")]
        assert [float(cell) for cell in row[2:]] == pytest.approx(
            [*figures, kind["correlation_with_reports"]], rel=1e-3
        )
    lines, bars = shown.plots
    for (_, x, y), kind in zip(lines.lines, kinds, strict=True):
        assert x == list(range(1, 9)) and y == pytest.approx(sorted(100 * each for each in kind["values"]))
    last, counted = 100 * np.array(kinds[-1]["values"]), np.array(shown.facts["rounds"][-1]["reports"])
    assert bars.bars == pytest.approx(by_reports(last, counted)) and len(bars.bars) > 1


class Biased(ScalarOnly):
    """Each client has a bias of its own, which it learns by a gradient."""

    name: Literal["biased"] = "biased"

    def personal(self, replica: Any, memory: Any, plan: Any, objective: Any) -> Any:
        own: Any = replica.x.copy()
        own[640:] += np.zeros(10, np.float32) if memory is None else np.frombuffer(memory, "<f4")
        return own

    def local(self, replica: Any, memory: Any, plan: Any, objective: Any) -> Any:
        own = self.personal(replica, memory, plan, objective)
        objective.point[:] = own
        own -= np.asarray(objective.gradient(0))
        scalars, _ = super().local(replica, memory, plan, objective)
        return scalars, (own - replica.x)[640:].tobytes()


class Tuned(Method):
    """FedAvg, and one step of each client's own from the model that all share."""

    name: Literal["tuned"] = "tuned"

    def personal(self, local: Any) -> Any:
        local.objective.point[:] = local.x
        return local.x - np.asarray(local.objective.gradient(0))


class Kept(Method):
    """FedAvg, and the shared model as each client's own."""

    name: Literal["kept"] = "kept"

    def personal(self, local: Any) -> Any:
        return local.x


@pytest.fixture
def own_models() -> Iterator[None]:
    for kind in (Biased, Tuned, Kept):
        register(kind)
    yield
    forget()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "mask"), [("biased", {}), ("tuned", {"mask": {"rule": "random", "density": 0.9}})]
)
def test_clients_with_models_of_their_own_are_measured_at_these(
    algorithm: str, mask: dict[str, Any], own_models: None, tmp_path: Path
) -> None:
    digits = {"name": "digits", "model": "softmax"}
    there = {"task": digits, "partition": {"kind": "dirichlet", "alpha": 0.3}, "algorithm": {"name": algorithm}} | mask
    results = go(tmp_path / "run", scenario(stop={"rounds": 5}, **there))
    run = Subject.of(results.folder, [0, 5], Effort(client_samples=10**6), Meter(is_quiet=True))
    shown = fairness(run)
    before, found = shown.facts["rounds"]
    assert found["round"] == 5 and not {"own", "test"} & before.keys()
    assert "Each client has a model of its own here, and is measured at it." in shown.notes
    assert any("Not measured: the accuracy of round 0, own, training: what clients remember" in n for n in shown.notes)
    problem: Any = run.problem
    inside, point = problem.inside if mask else problem, run.models[-1].point
    test = inside.evaluated("test")
    for client, part in enumerate(inside.parts):
        own = np.array(point)
        if algorithm == "tuned":
            objective = problem.objective(client, 5)
            objective.point[:] = own
            own -= np.asarray(objective.gradient(0))
        elif (memory := results.memory(client)) is not None:
            own[640:] += np.frombuffer(memory, "<f4")
        own = problem.whole(own) if mask else own
        assert found["own"]["values"][client] == inside.evaluate_part(own, "train", part)["accuracy"]
        labels, tested = inside.classes("train")[part], inside.classes("test")[test]
        served = 0.0
        for each in np.unique(labels):
            right = inside.evaluate_part(own, "test", test[tested == each])["accuracy"]
            served += (labels == each).mean() * right
        assert found["test"]["values"][client] == pytest.approx(served)
    assert len(set(found["own"]["values"])) > 4
    shutil.rmtree(results.folder / "clients", ignore_errors=True)  # as where processes on other machines kept them
    heard = np.count_nonzero(reports(results.history, 5))
    told = f"Clients with counted reports and without a memory in the run's folder: {heard} of {heard}; one"
    elsewhere = fairness(Subject.of(results.folder, [5], Effort(client_samples=10), Meter(is_quiet=True)))
    assert [any(told in note for note in each.notes) for each in (shown, elsewhere)] == [algorithm == "tuned", True]


@pytest.mark.slow
def test_of_models_whose_numbers_are_not_finite_no_accuracy_is_told(
    own_models: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs that are all nan have a largest one, too, and so an accuracy."""
    monkeypatch.setattr(Kept, "personal", lambda self, local: local.x * np.float32("nan"))
    digits = {"name": "digits", "model": "softmax"}
    results = go(tmp_path / "run", scenario(stop={"rounds": 1}, task=digits, algorithm={"name": "kept"}))
    with pytest.raises(NotHere, match="client 0 has no model of its own: its numbers are not finite"):
        fairness(Subject.of(results.folder, [1], Effort(), Meter(is_quiet=True)))


@pytest.mark.slow
def test_one_method_alone_may_give_clients_models_of_their_own(own_models: None) -> None:
    both = "each of tuned and kept gives clients models of their own; only one method may"
    with pytest.raises(ScenarioError, match=both):
        scenario(algorithm={"name": "tuned", "also": [{"name": "kept"}]})


def test_each_group_is_beside_the_others_in_table_plot_and_facts_on_the_same_samples(tmp_path: Path) -> None:
    slow = {"fault": "straggler", "pause_s": 1, "clients": [6]}
    there = {"task": {"name": "digits", "model": "softmax"}, "partition": {"kind": "dirichlet", "alpha": 0.3}}
    what = scenario(**there, faults=[slow], client_groups={"phones": [0, 1, 2]}, stop={"rounds": 6}, verify=False)
    (found,) = analyse(go(tmp_path / "run", what).folder, [0, 6], only=["fairness"], effort=Effort(client_samples=60))
    assert found.facts["groups"] == {"phones": [0, 1, 2], "fault 0: straggler": [6]}
    words = ["8 all", "3 of phones", "5 not of phones", "1 of fault 0: straggler", "7 not of fault 0: straggler"]
    assert found.heads[:3] == ["round", "samples", "clients"] and [row[2] for row in found.rows] == words * 4
    rows = iter(found.rows)
    for fact in found.facts["rounds"]:
        for kind in ("own", "test"):
            values = np.array(fact[kind]["values"])
            parts = [(fact[kind], list(range(8)))]
            for group, clients in found.facts["groups"].items():
                served = fact[kind]["groups"][group]
                parts += [(served, clients), (served["others"], [each for each in range(8) if each not in clients])]
            for served, clients in parts:
                spread = Spread.of(values[clients], is_rising=True)
                assert {name: served[name] for name in Spread._fields} == spread._asdict()
                assert served["clients"] == len(clients)
                assert [float(cell) for cell in next(rows)[3:8]] == pytest.approx([100 * x for x in spread], rel=1e-3)
        slow_clients = {kind: fact[kind]["groups"]["fault 0: straggler"] for kind in ("own", "test")}
        right = slow_clients["own"]["mean"] * slow_clients["own"]["samples"]
        assert right == pytest.approx(round(right)), "of one client it is a share of so many samples"
        assert slow_clients["own"]["samples"] <= 60 < slow_clients["own"]["others"]["samples"] <= 7 * 60
        assert slow_clients["test"]["samples"] <= slow_clients["test"]["others"]["samples"] == 297
    assert found.plots[-1].title == "By group, round 6, test, by its classes"
    assert found.plots[-1].bars == pytest.approx(
        {who.partition(" ")[2]: 100 * served["mean"] for who, (served, _) in zip(words, parts, strict=True)}
    )


def test_of_a_task_without_classes_the_highest_loss_is_the_worst(tmp_path: Path) -> None:
    people_table(tmp_path / "people.csv")
    table = {"name": "table", "file": str(tmp_path / "people.csv"), "target": "height", "hidden": []}
    all_of_them = {"clients": 4, "cohort": 4}
    what = scenario(task=table, participation=all_of_them, stop={"rounds": 2}, verify=False)
    folder = go(tmp_path / "run", what).folder
    (first,) = analyse(folder, only=["fairness"])
    assert first.facts["rounds"][0]["metric"] == "mae" and "mean mae" in first.heads
    (shown,) = analyse(folder, only=["fairness"], effort=Effort(metric="loss"))
    (found,) = shown.facts["rounds"]
    assert found["metric"] == "loss" and "test" not in found
    values = found["own"]["values"]
    assert (found["own"]["worst"], found["own"]["best_tenth"]) == (max(values), min(values))
    assert shown.plots[0].lines[0][2] == sorted(values, reverse=True)
    assert found["reports"] == [2] * 4 and found["own"]["correlation_with_reports"] is None
    assert shown.rows[0][-1] == "–" and len(shown.plots) == 1, "all were heard as often"

    for metric in ("loss", "mae"):  # nothing is left out of a model that has diverged
        run = Subject.of(folder, [], Effort(metric=metric), Meter(is_quiet=True))
        run.models[0].replayed.replica.x[:] = np.nan
        with pytest.raises(NotHere, match=f"the {metric} of round 2, own, training: it is nan for client 0"):
            fairness(run)


@pytest.mark.parametrize("is_rising", [True, False])
def test_a_tenth_of_the_clients_is_rounded_up_and_the_worst_are_those_with_the_highest_loss(is_rising: bool) -> None:
    values = np.arange(11.0)
    found = Spread.of(values, is_rising=is_rising)
    ends = (0.5, 9.5, 0.0) if is_rising else (9.5, 0.5, 10.0)
    assert (found.worst_tenth, found.best_tenth, found.worst) == ends
    assert (found.mean, found.deviation) == pytest.approx((5, np.sqrt(10)))


def test_clients_with_as_many_reports_are_in_one_group_and_late_reports_count(tmp_path: Path) -> None:
    counted = np.array([5, 0, 0, 0, 1, 9, 2, 2])
    found = by_reports(np.array([8.0, 1, 2, 3, 4, 7, 5, 6]), counted)
    assert found == {"0": 2, "1": 4, "2": 5.5, "5–9": 7.5}
    one, late = Pairs(np.array([0, 1, 2]), np.array([0, 1, 1])), Pairs(np.array([2, 3]), np.array([2, 0]))
    times, nothing = np.zeros(4, np.int64), np.zeros(0, np.int64)
    has_commit = np.array([True, False, True, True])
    table = RoundTable(4, times, times, times > 0, has_commit, one, nothing, one, late, nothing, nothing)
    assert [reports(table, rounds).tolist() for rounds in (0, 1, 2, 3, 4)] == [
        [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [2, 1, 1, 0],
    ]  # fmt: skip


def test_classes_without_test_samples_do_not_count() -> None:
    assert weighed_by_class(np.array([0, 0, 3, 7]), {0: 0.5, 3: 0.8}) == pytest.approx(0.6)
    assert weighed_by_class(np.array([7]), {0: 0.5}) is None


@pytest.mark.parametrize("samples", [1, 3, 6, 7, 100])
def test_clients_with_the_same_shares_of_classes_are_tied(samples: int) -> None:
    assert weighed_by_class(np.full(samples, 3), {3: 0.1}) == 0.1
    assert weighed_by_class(np.repeat([0, 3], samples), {0: 0.7, 3: 0.1}) == 0.5 * 0.7 + 0.5 * 0.1


def test_a_quadratic_has_no_samples_of_clients(tmp_path: Path) -> None:
    (found,) = analyse(go(tmp_path / "run", scenario(stop={"rounds": 2})).folder, only=["fairness"])
    assert not found.rows and "task quadratic has no samples" in found.facts["nothing"]


def of_own(folder: Path, partition: Any, **fields: Any) -> Finding:
    """Return what is found after 0 rounds and after 1 of a run of one's own network and data."""
    task = own(**fields)
    what = seedbus.Scenario(**FIELDS | {"partition": partition, "stop": {"rounds": 1}})
    (found,) = analyse(seedbus.run(what, folder, task=task).folder, [0, 1], only=["fairness"], task=task)
    return found


@pytest.mark.parametrize("of_one_class", [None, math.nan])
def test_a_metric_that_needs_several_classes_is_measured_on_samples_that_have_them(
    tmp_path: Path, of_one_class: float | None
) -> None:
    def share(outputs: Tensor, targets: Tensor) -> float:
        if targets.min() < targets.max():
            return float(targets.double().mean())
        if of_one_class is None:
            raise ValueError("one class")
        return of_one_class

    metrics: Any = {"metrics": {"share": share}, "metrics_by": "batches"}
    found = of_own(tmp_path / "run", "iid", **metrics, larger_is_better=["share"])
    assert [row[:2] for row in found.rows] == [["0", "own, training"], ["1", "own, training"]]
    why = "it is nan for client 0" if of_one_class else "task.metrics.share: found an error with outputs"
    for round, missing in enumerate(found.facts["missing"]):
        assert missing.startswith(f"the share of round {round}, test, by its classes: {why}")
        assert f"Not measured: {missing}." in found.notes


@pytest.mark.filterwarnings("ignore:Only one class is present")
def test_a_client_for_whom_the_asked_metric_is_not_defined_is_named_and_does_not_count(tmp_path: Path) -> None:
    """Owners 0 to 5 of a table, of whom 2 and 4 have one class alone."""

    def area(outputs: Tensor, targets: Tensor) -> float:
        return float(roc_auc_score(targets, outputs[:, 1]))

    rows = [(row % 6, row * 7 % 13, int(row * 5 % 11 > 5 and row % 6 not in (2, 4))) for row in range(240)]
    cells = [f"{owner},{number},{'yes' if is_ill else 'no'}" for owner, number, is_ill in rows]
    (tmp_path / "ill.csv").write_text("\n".join(["hospital,number,ill", *cells]) + "\n", encoding="utf-8")
    table = {"file": str(tmp_path / "ill.csv"), "target": "ill", "owner": "hospital", "hidden": ()}
    metrics: Any = {"accuracy": "accuracy", "auroc": area}
    task = Table(**table, metrics=metrics, larger_is_better=["auroc"])
    what = seedbus.Scenario(**FIELDS | {"partition": "natural", "stop": {"rounds": 2}})
    folder = seedbus.run(what, tmp_path / "run", task=task).folder
    for asked, metric in ((None, "accuracy"), ("auroc", "auroc")):
        subject = Subject.of(folder, [], Effort(metric=asked), Meter(is_quiet=True), task)
        found = fairness(subject)
        (fact,) = found.facts["rounds"]
        assert fact["metric"] == metric and found.heads[2].startswith(f"mean {metric}")
        assert [row[1] for row in found.rows] == ["own, training", "own, test"] and not found.facts["missing"]
    problem: Any = subject.problem
    for kind, split, parts in (("own", "train", problem.parts), ("test", "test", problem.owned("test"))):
        for client, part in enumerate(parts):
            inputs, targets = problem.tensors(problem.splits[split], part)
            with torch.no_grad(), problem.flat.at(subject.models[0].point):
                known = area(problem.flat.module(inputs), targets)
            value = fact[kind]["values"][client]
            assert value is None if client in (2, 4) else value == pytest.approx(known)
        samples = fact[kind]["samples"]
        why = "have samples for which the metric is not defined, and do not count"
        assert f"2 of 6 clients, 2 for one, {why}: {samples}." in found.notes
    with pytest.raises(ScenarioError, match=r'metric: "auc" is not measured; did you mean auroc'):
        analyse(folder, only="fairness", effort=Effort(metric="auc"), task=task)


def test_a_metric_that_is_no_mean_over_samples_is_not_made_of_those_of_classes(tmp_path: Path) -> None:
    found = of_own(tmp_path / "run", "iid", metrics={"share": lambda outputs, targets: 0.5})
    assert [row[1] for row in found.rows] == ["own, training"] * 2
    why = "it is no mean over samples, so those of classes do not make it"
    assert f"Not measured: the share of round 1, test, by its classes: {why}." in found.notes


def test_clients_without_test_samples_of_their_classes_are_named_and_do_not_count(tmp_path: Path) -> None:
    def tested(label: int) -> Finding:
        there = {"train": Points(60, lambda row: int(row >= 30)), "test": Points(20, lambda row: label)}
        return of_own(tmp_path / f"run{label}", {"kind": "shards", "shards_per_client": 1}, **there)

    found = tested(1)
    assert [row[1] for row in found.rows] == ["own, training", "test, by its classes"] * 2
    for fact in found.facts["rounds"]:
        values = fact["test"]["values"]
        measured = [each for each in values if each is not None]
        assert 0 < len(measured) < 6 and fact["test"]["mean"] == pytest.approx(np.mean(measured))
    assert found.plots[0].lines[-1][1] == list(range(1, len(measured) + 1))
    first, count = values.index(None), 6 - len(measured)
    assert f"{count} of 6 clients, {first} for one, have no such samples and do not count: test, by its classes." in (
        found.notes
    )

    found = tested(2)
    assert [row[1] for row in found.rows] == ["own, training"] * 2
    why = "test, by its classes: no client has such samples"
    assert found.facts["missing"] == [f"the accuracy of round {round}, {why}" for round in (0, 1)]


def test_where_clients_are_people_they_are_served_what_their_own_test_samples_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path / "data"))
    leaf_sets(tmp_path / "data", people=7)
    folder = tmp_path / "data" / "leaf-femnist"
    for path in (folder / "test").iterdir():
        path.unlink()
    tested = {f"f{writer:04}_00": femnist_samples(writer, 3 * writer + 1) for writer in (5, 2, 1, 0, 6)}
    leaf_file(folder, "test", "all_data.json", {"stranger": femnist_samples(9, 4)} | tested)
    there = {"task": {"name": "femnist", "model": "softmax", "validation": 0.0}, "partition": {"kind": "natural"}}
    there |= {"participation": {"clients": 7, "cohort": 2}, "algorithm": {"name": "fedavg", "local_steps": 3}}
    there |= {"client_groups": {"untested": [3, 4]}}
    run = go(tmp_path / "run", scenario(stop={"rounds": 8}, **there))
    subject = Subject.of(run.folder, [], Effort(client_samples=5), Meter(is_quiet=True))
    found = fairness(subject)
    (fact,) = found.facts["rounds"]
    assert [row[1] for row in found.rows] == ["own, training"] * 3 + ["own, test"] * 2
    assert fact["test"]["samples"] == "own, test"
    weights, bias = np.split(np.asarray(subject.models[0].point, np.float64), [62 * 784])
    for writer, value in enumerate(fact["test"]["values"]):
        if writer in (3, 4):
            assert value is None
            continue
        pixels, labels = map(np.array, femnist_samples(writer, 3 * writer + 1))
        chosen = np.linspace(0, labels.size - 1, min(5, labels.size)).astype(int)
        outputs = (pixels[chosen] - 0.9615) / 0.1643 @ weights.reshape(62, 784).T + bias
        assert value == pytest.approx((outputs.argmax(axis=1) == labels[chosen]).mean())
    assert "2 of 7 clients, 3 (f0003_00) for one, have no such samples and do not count: own, test." in found.notes
    untested = fact["test"]["groups"]["untested"]
    assert untested["clients"] == 0 and untested["others"]["mean"] == fact["test"]["mean"]
    assert [row[1:3] for row in found.rows[3:]] == [["own, test", "5 all"], ["own, test", "5 not of untested"]]
    served = [writer for writer, value in enumerate(fact["test"]["values"]) if value is not None]
    values, counted = (np.take(each, served) for each in (fact["test"]["values"], fact["reports"]))
    related = spearmanr(values.astype(float), counted).statistic
    assert fact["test"]["correlation_with_reports"] == pytest.approx(related)


def test_a_metric_that_is_finite_nowhere_is_named_with_its_client(tmp_path: Path) -> None:
    def share(outputs: Tensor, targets: Tensor) -> float:
        return math.inf

    found = of_own(tmp_path / "run", "iid", metrics={"share": share}, larger_is_better=["share"])
    assert not found.rows and found.facts == {"nothing": "the share of round 0, own, training: it is inf for client 0"}


def test_of_a_model_that_serves_all_clients_alike_no_correlation_is_told(tmp_path: Path) -> None:
    """A correlation with a constant is not defined, and 0 would be a finding."""
    metrics: Any = {"metrics": {"share": lambda outputs, targets: 0.5}, "metrics_by": "batches"}
    found = of_own(tmp_path / "run", "iid", **metrics, larger_is_better=["share"])
    for fact in found.facts["rounds"]:
        assert fact["own"]["deviation"] == 0 and fact["own"]["correlation_with_reports"] is None
    assert [row[-1] for row in found.rows] == ["–"] * 4
