"""An exported model is applied to new samples, with Seedbus and without, as the evaluator applies it in the run."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from document_blocks import ROOT, blocks
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from small_data import people_table, picture_folder
from worlds import go, scenario

import seedbus
from seedbus.models.errors import DataError
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.running.replay import Replayed

TRAIN = {"algorithm": {"name": "fedavg", "local_steps": 5, "learning_rate": 0.1}, "stop": {"rounds": 3}}


def trained(folder: Path, task: dict[str, Any], clients: int = 3) -> Replayed:
    """Return the model of a short run."""
    what = scenario(task=task, participation={"clients": clients}, verify=False, **TRAIN)
    return seedbus.replay(go(folder / "run", what).folder)


def table(folder: Path, **fields: Any) -> dict[str, Any]:
    """Write a table of people, and another one of those who are tested, with texts that the first does not have."""
    people_table(folder / "people.csv")
    people_table(folder / "new.csv", rows=200)
    rows = (folder / "new.csv").read_text().replace(",dog,", ",parrot,")
    (folder / "new.csv").write_text(rows)
    files = {"file": str(folder / "people.csv"), "test_file": str(folder / "new.csv")}
    return {"name": "table", "target": "city", "owner": "person", "hidden": [4, 3], **files, **fields}


def evaluated(model: Replayed) -> NDArray[np.float64]:
    """Return the outputs for the test samples as an evaluation computes them, in batches of 128, [n, outputs]."""
    problem: Any = model.problem
    rows = np.arange(problem.splits["test"].labels.size)
    with torch.inference_mode(), problem.flat.at(model.point):
        batches = [problem.tensors(problem.splits["test"], part)[0] for part in np.split(rows, [128])]
        return np.concatenate([problem.forward(batch).double().numpy() for batch in batches])


def softmax(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    return torch.from_numpy(outputs).softmax(dim=1).numpy()


def test_new_rows_may_spell_numbers_and_truth_values_in_other_ways_and_what_looks_alike_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        f"{row * row},{('1.0', '2', 'cat')[row % 3]},{('True', 'False')[row // 3 % 2]},{'pq'[row % 2]}"
        for row in range(90)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["a,g,b,y", *rows]) + "\n")
    task = {"name": "table", "file": str(tmp_path / "t.csv"), "target": "y", "hidden": [], "categorical": ["g"]}
    trained(tmp_path, task).save(tmp_path / "model.safetensors")
    capsys.readouterr()

    def found(cells: list[dict[str, Any]]) -> list[Any]:
        values: list[Any] = (
            seedbus.predict(tmp_path / "model.safetensors", [{"a": 9} | each for each in cells]).to_numpy().tolist()
        )
        return values

    as_trained = found([{"g": "1.0", "b": "True"}, {"g": "2", "b": "False"}, {"g": "cat", "b": "True"}])
    assert found([{"g": 1, "b": True}, {"g": "2.00", "b": np.False_}, {"g": " cat", "b": "TRUE"}]) == as_trained
    assert capsys.readouterr().err == ""
    unknown, dog = found([{"g": "Cat", "b": True}, {"g": "dog", "b": True}])
    assert unknown == dog != as_trained[2]
    told = "g has 'Cat', which the training part did not have; it had 'cat': spell them alike if they are one"
    assert capsys.readouterr().err == f"seedbus: note: {told}\n"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the page that applies a model without Seedbus."""
    (program,) = (block.text for block in blocks(ROOT / "docs/how-to/model.md") if block.title == "apply.py")
    path = tmp_path_factory.mktemp("recipe") / "apply.py"
    path.write_text(program)
    assert "seedbus" not in program
    return path


def by_recipe(recipe: Path, *arguments: Path) -> list[Any]:
    command = [sys.executable, "-W", "error", str(recipe), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_model_of_a_table_gives_the_test_rows_what_it_gives_them_in_the_run(tmp_path: Path, recipe: Path) -> None:
    task, file = table(tmp_path), tmp_path / "model.safetensors"
    model = trained(tmp_path, task)
    model.save(file)
    found = seedbus.predict(file, tmp_path / "new.csv")
    assert list(found) == ["Aarhus", "Bergen", "Cork"]
    np.testing.assert_array_equal(found.to_numpy(), softmax(evaluated(model)))
    likeliest = found.idxmax(axis=1)
    with (tmp_path / "new.csv").open() as opened:
        rows = list(csv.DictReader(opened))
    right = np.mean([city == row["city"] for city, row in zip(likeliest, rows, strict=True)])
    assert right == model.problem.evaluate(model.point, "test")["accuracy"]
    np.testing.assert_array_equal(seedbus.predict(str(file), rows), found)
    for row in rows:  # as a program has them
        row.update(height=float(row["height"]), age=int(row["age"]), pet=row["pet"] or None)
    np.testing.assert_array_equal(seedbus.predict(file, rows), found)
    assert seedbus.predict(file, []).shape == (0, 3)
    without = by_recipe(recipe, file, tmp_path / "new.csv")
    np.testing.assert_allclose([[row[city] for city in found] for row in without], found, atol=1e-6)
    said = json.loads(model.preprocessing.text())  # type: ignore[union-attr]
    assert said["columns"][2] == {"name": "pet", "texts": ["", "cat", "dog"]}
    assert "person" not in json.dumps(said), "owners are not told"


@pytest.mark.slow
def test_the_number_of_a_regression_is_in_its_own_unit(tmp_path: Path, recipe: Path) -> None:
    task, file = table(tmp_path, target="height", hidden=[], separator=";"), tmp_path / "model.safetensors"
    for name in ("people.csv", "new.csv"):
        (tmp_path / name).write_text((tmp_path / name).read_text().replace(",", ";"))
    model = trained(tmp_path, task)
    model.save(file)
    found = seedbus.predict(file, tmp_path / "new.csv")
    with (tmp_path / "new.csv").open() as opened:
        heights = [float(row["height"]) for row in csv.DictReader(opened, delimiter=";")]
    error = np.abs(found["height"] - heights).mean()
    assert error == pytest.approx(model.problem.evaluate(model.point, "test")["mae"], rel=1e-6)
    np.testing.assert_allclose(by_recipe(recipe, file, tmp_path / "new.csv"), found["height"], rtol=1e-6)


@pytest.mark.slow
def test_the_model_of_a_folder_of_images_takes_files(tmp_path: Path) -> None:
    picture_folder(tmp_path / "pictures" / "train")
    picture_folder(tmp_path / "pictures" / "test", images=5)
    task = {"name": "image-folder", "folder": str(tmp_path / "pictures"), "size": 8, "model": "mnist-cnn"}
    model, file = trained(tmp_path, task), tmp_path / "model.safetensors"
    model.save(file)
    files = sorted((tmp_path / "pictures" / "test").rglob("*.png"))
    found = seedbus.predict(file, files)
    assert list(found) == ["day", "night"]
    np.testing.assert_allclose(found, softmax(evaluated(model)), atol=1e-6)
    (tmp_path / "none.png").write_bytes(b"none")
    with pytest.raises(DataError, match=r"none\.png: found an image that cannot be read .*; expected an image as PNG"):
        seedbus.predict(file, [tmp_path / "none.png"])
    with pytest.raises(ScenarioError, match=r"samples: 3 is not accepted; expected a list of names of PNG or JPEG"):
        seedbus.predict(file, 3)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a model of people: from height, age and pet to the city."""
    folder = tmp_path_factory.mktemp("exported")
    trained(folder, table(folder)).save(folder / "model.safetensors")
    return folder / "model.safetensors"


GOOD = {"height": 170, "age": 30, "pet": "cat"}
PICTURE = {"height": 8, "width": 8, "channels": 1, "mean": [0.5], "deviation": [0.5]}


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"height": "tall"}, r"row 2, column height: found 'tall' in a column of numbers; expected a number from .*"),
        ({"height": None}, r"row 2, column height: found an empty cell in a column of numbers; expected a number .*"),
        ({"age": float("inf")}, r"row 2, column age: found 'inf' in a column of numbers; expected a number from .*"),
        ({"height": 1e60}, r"row 2, column height: found a number .*; expected one that float32 can hold"),
        ({"pet": ["cat"]}, r"row 2, column pet: found a cell of the type list; expected a text, a number, or None .*"),
        ({"pet": 0}, ""),
        ({"pet": "\ud800"}, ""),
    ],
)
def test_a_bad_cell_is_one_sentence_and_a_new_text_is_none_of_those_known(
    exported: Path, row: dict[str, Any], sentence: str
) -> None:
    rows = [GOOD, GOOD | row]
    if sentence:
        with pytest.raises(DataError, match=rf"\A{sentence}\Z"):
            seedbus.predict(exported, rows)
    else:
        found = seedbus.predict(exported, [*rows, GOOD | {"pet": "parrot"}, GOOD | {"pet": float("nan")}]).to_numpy()
        assert np.array_equal(found[1], found[2]) and not np.array_equal(found[1], found[3]), "nan: an empty cell"


def test_a_bad_file_of_rows_is_told_with_line_and_column(exported: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("pet,age,height\ncat,3,170\n\ndog,,171\n")
    with pytest.raises(DataError, match=r"\A\S+rows\.csv, line 4, column age: found an empty cell in a column of numb"):
        seedbus.predict(exported, rows)
    rows.write_text("pet,age\ncat,3\n")
    with pytest.raises(DataError, match=r"\A\S+rows\.csv: found no column height for the model; expected one of pet, "):
        seedbus.predict(exported, rows)
    with pytest.raises(DataError, match=r"\Arow 1, column age: found no such cell; expected one, which may be None or"):
        seedbus.predict(exported, [{"height": 1, "pet": ""}])
    with pytest.raises(ScenarioError, match=r"samples: \[3\] is not accepted; expected the name of a CSV or Parquet f"):
        seedbus.predict(exported, [3])


def test_rows_become_numbers_in_batches_after_the_network_is_known_to_be_the_files_own(tmp_path: Path) -> None:
    """2,500 rows with a thousand texts would be 10 MB as inputs."""
    texts = [f"text {number}" for number in range(1000)]
    about = {
        "task": "table",
        "model": "perceptron",
        "layers": ["head"],
        "classes": ["a", "b"],
        "columns": [{"name": "c", "texts": texts}, {"name": "n", "mean": 0, "deviation": 1}],
    }
    weights, biases = torch.arange(2002.0).view(2, 1001).sin(), torch.ones(2)
    file, rows, wrong = (tmp_path / name for name in ("model.safetensors", "rows.csv", "wrong.safetensors"))
    save_file({"head.weight": weights, "head.bias": biases}, file, {"preprocessing": json.dumps(about)})
    held = [row % 1000 for row in range(2500)]
    rows.write_text("n,c\n" + "".join(f"{row % 3},{texts[row]}\n" for row in held))
    tracemalloc.start()
    found = seedbus.predict(file, rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8e6
    outputs = [(weights[:, row] + weights[:, 1000] * (row % 3) + 1).tolist() for row in held]
    np.testing.assert_allclose(found, softmax(np.array(outputs)), atol=1e-6)
    rows.write_text(rows.read_text() + ",text 1\n")
    with pytest.raises(DataError, match=r"rows\.csv, line 2502, column n: found an empty cell in a column of numbers"):
        seedbus.predict(file, rows)
    save_file({"head.weight": weights[:, :9].contiguous(), "head.bias": biases}, wrong, metadata_of(file))
    with pytest.raises(DataError, match=r"wrong\.safetensors: found tensors of another network"):
        seedbus.predict(wrong, rows)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {},
            r"found a model without preprocessing; expected a model that `seedbus export .* of a network of your own.*",
        ),
        ({"version": 2}, r"found a file that cannot be read \(version: Input should be 1\); expected a model that .*"),
        ({"columns": []}, r"found a file that cannot be read \(columns: .*\); expected a model that .*"),
        ({"separator": ", "}, r"found a file that cannot be read \(separator: String should have at most 1 .*"),
        ({"image": {**PICTURE, "white": 10**400}}, r"found a file that cannot be read \(image\.white: .*"),
        ({"classes": ["a", "b"]}, r"found tensors of another network than the perceptron of its preprocessing; .*"),
        ({"model": "mine:build", "layers": None}, r"found the network mine:build; expected a network of Seedbus; .*"),
        ({"task": "shakespeare", "columns": None}, r"found a model of task shakespeare; expected one of task .*"),
        ({"task": "\x1b[2J", "columns": None}, r"found a model of task  \[2J; expected one of task .*"),
        (
            {"task": "image-folder", "columns": None, "image": {**PICTURE, "height": 1, "width": 1, "white": 255}},
            r"found images of 1 × 1 pixels; expected 4 × 4 at least",
        ),
        ({"classes": None}, r"found a file that cannot be read \(.* neither classes nor a number .*\); expected .*"),
    ],
)
def test_a_file_that_is_no_such_model_is_one_sentence(
    exported: Path, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    from safetensors import safe_open

    with safe_open(exported, "pt") as opened:
        about = json.loads(opened.metadata()["preprocessing"])
    changed = {name: value for name, value in (about | change).items() if value is not None}
    file = tmp_path / "model.safetensors"
    save_file(load_file(exported), file, {"preprocessing": json.dumps(changed)} if change else None)
    with pytest.raises(DataError, match=rf"\A\S+model\.safetensors: {sentence}\Z"):
        seedbus.predict(file, [GOOD])


def test_a_file_that_cannot_be_read_is_one_sentence(exported: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    for content in (None, b"", b"none", exported.read_bytes()[:-4]):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(DataError, match=r"\A\S+model\.safetensors: found a file that cannot be read \(.+\); exp"):
            seedbus.predict(file, [GOOD])
    save_file({name: each.half() for name, each in load_file(exported).items()}, file, metadata_of(exported))
    with pytest.raises(DataError, match=r"found tensors that are not float32; expected a model that"):
        seedbus.predict(file, [GOOD])


def metadata_of(file: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        return dict(opened.metadata())
