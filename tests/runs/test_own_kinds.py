"""Owners' data of other kinds than tables, each owner a process: the run ends with the digest of its rehearsal."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from owner_processes import federation
from plugin_files import SIGNS
from processes import wait_for
from small_hub import CLASSES, write_hub_model, write_images

pytestmark = pytest.mark.slow
SENTENCES = "review,stars\na charming and affecting journey,5\nunflinchingly bleak,1\nthe best film,5\nno wit,1\n"
WARDS = SIGNS.with_name("wards.py")
CROWD = {"clients": 2, "cohort": 2}


def test_owners_of_what_a_plug_in_reads(tmp_path: Path) -> None:
    places = [tmp_path / "owners" / f"{number}.txt" for number in range(2)]
    places[0].parent.mkdir()
    for number, place in enumerate(places):
        values = np.random.default_rng(number).normal(size=(14 - 5 * number, 3)).round(3)
        place.write_text("".join(" ".join(map(str, [*row, int(row[0] > number)])) + "\n" for row in values))
    task = {"name": "torch", "network": "wards:network", "own": "wards:read", "batch_size": 4}
    with federation(tmp_path, places, task=task, participation=CROWD) as here:
        plugin = ("--plugin", WARDS)
        server, *owners = here.server(*plugin), *(here.owner(number, *plugin) for number in range(2))
        assert here.ends(server, *owners) == [0] * 3, here.said("owner0") + here.said("server-run")
        assert here.digest() == here.rehearsed("owners/*", *plugin)


def test_owners_of_folders_of_images(tmp_path: Path) -> None:
    places = [write_images(tmp_path / "owners" / str(number), 6 - number) / "train" for number in range(2)]
    task = {"name": "image-folder", "classes": list(CLASSES), "size": 8}
    with federation(tmp_path, places, task=task, participation=CROWD) as here:
        server, *owners = here.server(), *(here.owner(number) for number in range(2))
        assert here.ends(server, *owners) == [0] * 3, here.said("owner0") + here.said("server-run")
        assert here.digest() == here.rehearsed("owners/*/train")


def test_owners_of_texts_for_a_language_model(opt: Path, tmp_path: Path) -> None:
    places = [tmp_path / "owners" / f"{number}.csv" for number in range(2)]
    places[0].parent.mkdir()
    for number, place in enumerate(places):
        place.write_text(SENTENCES + "a tedious film,1\n" * number)
    asked = {"prompt": "{review} It was", "target": "stars", "answers": {"1": "terrible", "5": "great"}}
    task = {"name": "language-model", "model": str(opt), "dataset": "own", "texts": asked, "batch_size": 2}
    more = {"participation": CROWD, "algorithm": {"name": "decomfl", "learning_rate": 1e-3, "perturbations": 2}}
    with federation(tmp_path, places, task=task, **more) as here:
        data = ("--data", opt)
        server, *owners = here.server(), *(here.owner(number, *data) for number in range(2))
        assert here.ends(server, *owners) == [0] * 3, here.said("owner0") + here.said("server-run")
        assert here.digest() == here.rehearsed("owners/*.csv")


@pytest.mark.parametrize("kind", ["saved", "images"])
def test_owners_of_folders_for_datasets_which_may_be_gone_when_they_have_joined(kind: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pytest.importorskip("transformers")
    names = dict(enumerate(CLASSES))
    model = write_hub_model(
        tmp_path / "model", "vit", id2label=names, label2id={name: number for number, name in names.items()}
    )
    places = [tmp_path / "owners" / str(number) for number in range(2)]
    for number, place in enumerate(places):
        write_images(place if kind == "images" else tmp_path / f"images{number}", 6 - number)
        if kind == "saved":
            read = datasets.load_dataset("imagefolder", data_dir=str(tmp_path / f"images{number}"))
            read["train"].save_to_disk(place)
    shutil.copytree(tmp_path / "owners", tmp_path / "before")
    columns = {"image": "image", "label": "label"}
    head = "image-classification"
    task = {"name": "hugging-face", "model": str(model), "head": head, "dataset": "own", "columns": columns}
    more = {"participation": CROWD, "algorithm": {"name": "decomfl", "learning_rate": 1e-3, "perturbations": 2}}
    with federation(tmp_path, places, task=task | {"batch_size": 4}, **more) as here:
        data = ("--data", tmp_path)
        server, first = here.server(), here.owner(0, *data)
        wait_for(lambda: "hosting" in here.said("owner0"))
        shutil.rmtree(places[0])
        assert here.ends(server, first, here.owner(1, *data)) == [0] * 3, here.said("owner0") + here.said("server-run")
        assert here.digest() == here.rehearsed("before/*")
