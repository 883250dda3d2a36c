"""Owners' folders of data sets: the same bits alone and together, and classes that all owners number alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from owners import own_scenario
from small_hub import CLASSES, texts, write_hub_model, write_images

from seedbus.models.errors import DataError
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.own_data import with_own
from seedbus.scenarios.running.prepare import bind
from seedbus.scenarios.schema.loading import load

pytestmark = pytest.mark.slow


def fields(model: Path | str, head: str, columns: dict[str, str], **more: Any) -> dict[str, Any]:
    task = {
        "name": "hugging-face",
        "model": str(model),
        "head": head,
        "dataset": "own",
        "columns": columns,
        "batch_size": 4,
    }
    return own_scenario(task=task | more, participation={"clients": 2, "cohort": 2})


def bound(own: object, clients: list[int], scenario: dict[str, Any]) -> Any:
    return bind(with_own(load(scenario), str(own), clients, evaluates=False))


def same_alone_and_together(folder: Path, scenario: dict[str, Any]) -> list[Any]:
    """Check that owners 0 and 1 compute alone what they compute together, and prove nothing; return them alone."""
    together, nobody = bound(folder / "*", [0, 1], scenario), bound("", [], scenario)
    alone = [bound(folder / str(client), [client], scenario) for client in range(2)]
    assert len({(each.x0().tobytes(), each.identity()) for each in (together, nobody, *alone)}) == 1
    for client, problem in enumerate(alone):
        for of in (problem, together):
            of.objective(client, 3).point[:] = of.x0()
        assert problem.objective(client, 3).loss(1) == together.objective(client, 3).loss(1)
        ours, theirs = problem.owned("test")[client], together.owned("test")[client]
        assert ours.size and problem.measured("test", ours) == together.measured("test", theirs)
    return alone


@pytest.mark.parametrize(("name", "head"), [("bert", "sequence-classification"), ("gpt2", "causal-lm")])
def test_saved_data_sets_of_owners_are_read(name: str, head: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    model = write_hub_model(tmp_path / "model", name)
    for owner in range(2):
        datasets.Dataset.from_list(texts(30)[owner::2]).save_to_disk(tmp_path / "owners" / str(owner))
    columns = {"text": "sentence"} | ({"label": "label"} if head != "causal-lm" else {})
    same_alone_and_together(tmp_path / "owners", fields(model, head, columns))


def test_an_owner_of_some_classes_numbers_them_as_the_model_does(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    known = {name: number for number, name in enumerate(CLASSES)}
    names = {number: name for name, number in known.items()}
    model = write_hub_model(tmp_path / "model", "vit", id2label=names, label2id=known)
    write_images(tmp_path / "owners" / "0", classes=CLASSES[2:])
    write_images(tmp_path / "owners" / "1", classes=CLASSES[:2])
    scenario = fields(model, "image-classification", {"image": "image", "label": "label"})
    first, second = same_alone_and_together(tmp_path / "owners", scenario)
    assert {*first.classes()} == {2} and {*second.classes()} == {0, 1}
    write_images(tmp_path / "other", classes=["owl"])
    with pytest.raises(DataError, match=r"other, split train: found label owl in row 0; expected a class from 0 to 2"):
        bound(tmp_path / "other", [0], scenario)


def test_what_is_of_one_data_set_is_refused_of_owners() -> None:
    columns = {"text": "sentence", "label": "label"}
    for change, sentence in (({"shots": 4}, "shots is of one data set"), ({"revision": "a"}, "revision is of one")):
        with pytest.raises(ScenarioError, match=sentence):
            load(fields("bert", "sequence-classification", columns, **change))
    with pytest.raises(ScenarioError, match=r"task\.dataset: own leaves the rows with their owners"):
        load(fields("bert", "sequence-classification", columns) | {"partition": "iid"})
