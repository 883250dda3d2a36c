"""What an exported model is told of its inputs and outputs gives the inputs that it had in the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_data import SMALLER, picture_folder
from task_contract import bind, skip_without_packages

from seedbus.models.preprocessing import Preprocessing
from seedbus.models.task import TASKS
from seedbus.models.tasks.image_folder import ImageFolder
from seedbus.models.tasks.shakespeare import Shakespeare

pytestmark = pytest.mark.usefixtures("small_sets")


@pytest.mark.parametrize(
    "name", ["cifar-10", "cifar-100", "digits", "fashion-mnist", "femnist", "image-folder", "mnist"]
)
def test_pixels_become_inputs_as_the_metadata_says(name: str) -> None:
    skip_without_packages(name)
    task: Any = TASKS.all()[name](**SMALLER.get(name, {}))
    problem: Any = bind(task)
    about = json.loads(task.preprocessing().text())
    image = about["image"]
    pixels = problem.splits["train"].pick(np.arange(4)).astype(np.float64)
    assert pixels.shape == (4, image["height"], image["width"], image["channels"])
    inputs = (pixels / image["white"] - image["mean"]) / image["deviation"]
    np.testing.assert_array_equal(
        problem.tensors(problem.splits["train"], np.arange(4))[0].permute(0, 2, 3, 1), inputs.astype(np.float32)
    )
    outputs = problem.forward(problem.tensors(problem.splits["test"], np.arange(2))[0]).shape[1]
    assert len(set(about["classes"])) == len(about["classes"]) == (10 if name == "fashion-mnist" else outputs)
    assert Preprocessing.of(json.dumps(about)) == task.preprocessing()


def test_symbols_become_inputs_as_the_metadata_says() -> None:
    problem: Any = bind(Shakespeare())
    about = json.loads(Shakespeare().preprocessing().text())
    inputs = problem.tensors(problem.splits["train"], np.arange(1))[0][0].tolist()
    text = "".join(about["symbols"][each] for each in inputs)
    assert (
        len(text) == about["length"]
        and text in "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer"
    )
    assert about["classes"] == list(about["symbols"])


def test_a_task_whose_model_has_files_of_its_own_tells_nothing() -> None:
    assert TASKS.all()["blackbox-attack"]().preprocessing() is None


def test_a_class_whose_name_is_no_text_is_told_in_one(tmp_path: Path) -> None:
    skip_without_packages("image-folder")
    picture_folder(tmp_path)
    (tmp_path / "night").rename(str(tmp_path / "night") + "\udcff")  # a byte that is not UTF-8
    assert ImageFolder(folder=str(tmp_path), size=8).preprocessing().classes == ("day", "night?")
