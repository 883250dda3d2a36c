"""Data that stay with their owners: what fits, what is refused with its place, and that nothing of them is proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from owners import SIZES, TASK, own_scenario, own_table, own_tables

from seedbus.models.errors import DataError
from seedbus.models.partitions.own import Own, OwnData
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.schema.loading import load, validate


def bound(own: object, clients: list[int], **more: Any) -> Any:
    return bind(with_own(load(own_scenario(**more)), str(own), clients, evaluates=False))


def test_an_owner_with_one_row_trains_on_it_and_measures_on_none(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("sick,age,sex\nyes,61.5,male\n")
    problem = bound(tmp_path / "mine.csv", [1])
    assert [problem.samples(client) for client in range(3)] == [0, 1, 0]
    assert problem.owned("test")[1].size == 0
    inputs, labels = problem.objective(1, 0).batch(0)
    assert inputs.tolist() == [[np.float32(1.15), 0.0, 1.0]] and labels.tolist() == [1]
    with pytest.raises(DataError, match="partition own: found no samples of client 0"):
        problem.objective(0, 0).loss(0)


@pytest.mark.parametrize("task", [TASK, TASK | {"forward": "stacked"}], ids=["eager", "stacked"])
def test_a_client_has_the_same_bits_alone_and_with_others_and_proves_nothing_of_its_data(
    task: dict[str, Any], tmp_path: Path
) -> None:
    places = own_tables(tmp_path)
    scenario = load(own_scenario(task=task))
    together: Any = bind(with_own(scenario, str(tmp_path / "*" / "*.csv"), [0, 1, 2], evaluates=True))
    alone: list[Any] = [bound(place, [client], task=task) for client, place in enumerate(places)]
    nobody: Any = bind(with_own(scenario, "", [], evaluates=True))
    x, proofs = together.x0(), set()
    for problem in (nobody, together, *alone):
        problem.prepare(lambda *_, **__: None)
        proofs.add((problem.x0().tobytes(), problem.identity(), problem.probe()))
    assert len(proofs) == 1, "owners' data take no part in any proof"
    for client, problem in enumerate(alone):
        for of in (problem, together):
            of.objective(client, 3).point[:] = x
        assert problem.objective(client, 3).loss(1) == together.objective(client, 3).loss(1)
        ours, theirs = problem.owned("test")[client], together.owned("test")[client]
        assert ours.size == round(0.2 * SIZES[client])
        assert problem.evaluate_part(x, "test", ours) == together.evaluate_part(x, "test", theirs)


def test_rows_in_another_order_are_held_out_all_the_same(tmp_path: Path) -> None:
    place = own_table(tmp_path / "mine.csv", 40, 7)
    head, *rows = place.read_text().splitlines()
    (tmp_path / "turned.csv").write_text("\n".join([head, *reversed(rows)]) + "\n")

    def held(own: Path) -> list[list[float]]:
        test = bound(own, [0]).splits["test"]
        return sorted(test.pixels.tolist())

    assert held(place) == held(tmp_path / "turned.csv") and len(held(place)) == 8


def test_sizes_travel_only_where_the_method_weighs_by_them(tmp_path: Path) -> None:
    place = own_table(tmp_path / "mine.csv", 20, 7)
    average = {"name": "fedavg", "learning_rate": 0.1}
    told = {
        name: bound(place, [0], algorithm=algorithm).objective(0, 0).samples
        for name, algorithm in {
            "samples": average,
            "uniform": average | {"weighting": "uniform"},
            "scalars": {"name": "decomfl", "learning_rate": 0.1},
        }.items()
    }
    assert told == {"samples": 14, "uniform": 1, "scalars": 1}


def test_a_regression_standardises_its_target_as_the_scenario_states(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("age,dose\n60,3\n40,1\n")
    columns = {"age": {"mean": 50, "deviation": 10}, "dose": {"mean": 1, "deviation": 2}}
    task = {"name": "table", "target": "dose", "columns": columns, "hidden": [], "validation": 0}
    inputs, labels = bound(tmp_path / "mine.csv", [0], task=task, evaluation={}).objective(0, 0).batch(0)
    assert sorted(zip(inputs[:, 0].tolist(), labels.tolist(), strict=True)) == [(-1.0, 0.0), (1.0, 1.0)]


def test_owners_bring_folders_of_images_with_some_of_the_classes(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    task = {"name": "image-folder", "classes": ["day", "night"], "size": 4, "colours": "grey", "model": "softmax"}
    (tmp_path / "mine" / "night").mkdir(parents=True)
    for number in range(3):
        image.fromarray(np.full((4, 4), 60 * number, np.uint8)).save(tmp_path / "mine" / "night" / f"{number}.png")
    problem = bound(tmp_path / "mine", [2], task=task | {"validation": 0}, evaluation={})
    inputs, labels = problem.objective(2, 0).batch(0)
    expected = [(60 * number / 255 - 0.5) / 0.25 for number in range(3)]
    assert labels.tolist() == [1, 1, 1] and problem.number_of_classes == 2
    assert np.allclose(sorted(inputs[:, 0, 0, 0].tolist()), expected, rtol=1e-6)
    (tmp_path / "mine" / "dusk").mkdir()
    with pytest.raises(DataError, match="dusk: found a class that the scenario does not have; expected one of day"):
        bound(tmp_path / "mine", [2], task=task)
    with pytest.raises(DataError, match="found no folder"):
        bound(tmp_path / "mine" / "night" / "0.png", [2], task=task)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="found no folders of classes; expected a folder of"):
        bound(tmp_path / "empty", [2], task=task)


@pytest.mark.parametrize("kind", ["table", "image-folder"])
def test_a_client_takes_the_last_of_many_classes_for_another(kind: str, tmp_path: Path) -> None:
    names, mine = [f"class {number:02}" for number in range(70)], tmp_path / "mine"
    if kind == "table":
        mine.write_text("age,sick\n1,class 69\n")
        columns = {"age": {"mean": 0, "deviation": 1}, "sick": names}
        task: dict[str, Any] = {"name": kind, "target": "sick", "columns": columns, "hidden": []}
    else:
        (mine / names[-1]).mkdir(parents=True)
        image = pytest.importorskip("PIL.Image")
        image.fromarray(np.zeros((4, 4), np.uint8)).save(mine / names[-1] / "0.png")
        task = {"name": kind, "classes": names, "size": 4, "colours": "grey", "model": "softmax"}
    problem = bound(mine, [0], task=task | {"validation": 0}, evaluation={})
    problem.relabel(lambda client, round, classes: np.arange(classes)[::-1].copy())
    assert problem.objective(0, 0).batch(0)[1].tolist() == [0]


def test_a_server_cannot_have_an_owner_read_a_file_that_it_names(tmp_path: Path) -> None:
    from seedbus.models.data.roots import Roots

    secret = own_table(tmp_path / "secret.csv", 9, 1)
    fields = load(own_scenario(task=TASK | {"test_file": str(secret)}, evaluation={})).resolved()
    scenario = validate(fields, "the server's", roots=Roots([tmp_path / "allowed"]))
    assert scenario.task.test_file is None  # type: ignore[attr-defined]
    given = own_table(tmp_path / "mine.csv", 9, 2)
    problem: Any = bind(with_own(scenario, str(given), [0], evaluates=True))
    assert problem.splits["test"].labels.size == 0


def test_patterns_are_in_the_order_of_their_numbers_and_fit_the_clients(tmp_path: Path) -> None:
    for number in (10, 9, 2):
        own_table(tmp_path / f"{number}.csv", 5 + number, number)
    sizes = [bound(tmp_path / "*.csv", [0, 1, 2], evaluation={}).samples(client) for client in range(3)]
    assert sizes == [each - round(0.1 * each) for each in (7, 14, 15)]
    assert bound(tmp_path / "*.csv", [2], evaluation={}).samples(2) == sizes[2], "of a pattern of all"
    for own, clients, sentence in (
        (tmp_path / "*.csv", [0, 1, 2, 3], "found 3 files and folders for 4 clients"),
        (tmp_path / "nothing", [0], "found nothing of that name"),
        ("", [0], "partition own: found no samples of client 0; expected its file or folder, by --own"),
    ):
        with pytest.raises(DataError, match=sentence):
            with_own(load(own_scenario(participation={"clients": 5})), str(own), clients, evaluates=False)
    with pytest.raises(ScenarioError, match="partition is iid, which divides what all processes have"):
        with_own(load("quickstart", ["partition=iid"]), "mine.csv", [0], evaluates=False)
    assert Own().placed(OwnData({0: tmp_path})).model_dump() == Own().model_dump(), "a path is never part of a scenario"
