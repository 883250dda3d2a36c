"""Mistakes in a model's folder, a data set or the fields of the task hugging-face: one sentence each."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from small_hub import write_hub_model, write_images, write_texts
from task_contract import bind

from seedbus.models import DataError, Dirichlet, Natural
from seedbus.models.data.roots import Roots
from seedbus.models.errors import NotAllowed
from seedbus.models.hub.networks import image_bytes
from seedbus.models.tasks.hugging_face import HuggingFace

pytestmark = pytest.mark.slow


def sentence_of(task: Any) -> str:
    """Return the sentence with which a task is refused."""
    with pytest.raises(DataError) as raised:
        bind(task, clients=2)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"columns": {"text": "sentenc", "label": "label"}},
            "no column sentenc; expected task.columns.text: sentence or",
        ),
        (
            {"columns": {"text": "sentence", "label": "class"}},
            "split train: found no column class; expected task.columns",
        ),
        ({"columns": {"text": "label", "label": "label"}}, "column label of type int64; expected a column of text"),
        ({"splits": {"test": "dev"}}, "found no split dev; expected task.splits.test: test or train"),
        ({"configuration": "de"}, "de: found no such folder; expected task.configuration"),
        ({"max_length": 65}, "task.max_length: found 65 tokens; expected at most 64"),
        ({"train": {"kind": "last-blocks", "blocks": 3}}, "task.train.blocks: found 3; expected at most 2"),
        (
            {"train": {"kind": "lora", "targets": ["key", "q_proj"]}},
            "found q_proj; expected names of layers: dense, key",
        ),
        ({"model": "no-such-folder"}, "no folder no-such-folder and no model of that name in this machine's"),
        ({"dataset": "nobody/has-this"}, "nothing that `datasets` can load, and HF_HUB_OFFLINE is set"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_what_is_missing_is_one_sentence(make_hub: Any, fields: dict[str, Any], expected: str) -> None:
    assert expected in sentence_of(make_hub("bert", **fields))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("a,0\nb,1\nc,2", "split train: found label 2 in row 2; expected a class from 0 to 1, as task.model has 2"),
        ("a,0\nb,1\nc,-1", "found label -1 in row 2"),
        ("a,0.5\nb,1", "found label 0.5 in row 0"),
        ("a,x\nb,y\nc,z", "found label 'z', class 2, in row 2; expected a class from 0 to 1"),
        ("a,0\nb,0", "found no training sample of class 1 of the model's 2; expected at least one of each class"),
        ("a,0\n,1", "found nothing in column sentence of row 1; expected a value in every row"),
    ],
)
def test_labels_that_do_not_fit_the_model_are_one_sentence(
    make_hub: Any, tmp_path: Path, rows: str, expected: str
) -> None:
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text(f"sentence,label\n{rows}\n")
    assert expected in sentence_of(make_hub("bert", dataset=str(tmp_path), validation=0))


def test_a_class_of_the_model_that_the_data_set_has_not_is_one_sentence(make_hub: Any, tmp_path: Path) -> None:
    data = write_images(tmp_path, classes=("cat", "dog"))
    assert "found no training sample of class 2 of the model's 3" in sentence_of(make_hub("vit", dataset=str(data)))


def test_a_client_without_samples_is_one_sentence(make_hub: Any) -> None:
    with pytest.raises(DataError, match="no samples for clients"):
        make_hub("bert").bind(seed=1, clients=12, partition=Dirichlet(alpha=0.01, balanced=False))
    with pytest.raises(DataError, match="samples that are nobody's"):
        make_hub("bert").bind(seed=1, clients=2, partition=Natural())


def test_a_folder_without_a_tokenizer_or_an_image_processor_is_one_sentence(make_hub: Any, tmp_path: Path) -> None:
    words = shutil.copytree(make_hub("bert").model, tmp_path / "bert")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (words / name).unlink()
    assert "no tokenizer" in sentence_of(make_hub("bert", model=str(words)))
    pictures = shutil.copytree(make_hub("vit").model, tmp_path / "vit")
    (pictures / "preprocessor_config.json").unlink()
    assert "no image processor" in sentence_of(make_hub("vit", model=str(pictures)))


def test_a_model_without_a_head_is_told_how_to_get_one(make_hub: Any, tmp_path: Path) -> None:
    from transformers import AutoModel

    task = make_hub("bert")
    base = shutil.copytree(task.model, tmp_path / "base")
    AutoModel.from_pretrained(task.model, local_files_only=True).save_pretrained(base)
    sentence = sentence_of(make_hub("bert", model=str(base)))
    assert "AutoModelForSequenceClassification.from_pretrained(…, num_labels=CLASSES)" in sentence


def test_a_model_of_another_kind_is_one_sentence(make_hub: Any, hub_model: Any) -> None:
    assert "no weights for 1 of its parts (score.weight)" in sentence_of(make_hub("bert", model=str(hub_model("gpt2"))))


def test_a_model_with_one_output_is_no_classifier(make_hub: Any, tmp_path: Path) -> None:
    folder = write_hub_model(tmp_path, "bert", num_labels=1)
    assert "found 1 class, as config.json says" in sentence_of(make_hub("bert", model=str(folder)))


def test_a_damaged_image_and_a_damaged_table_are_one_sentence(make_hub: Any, tmp_path: Path) -> None:
    data = write_images(tmp_path / "images")
    for image in (data / "train" / "dog").iterdir():
        image.write_bytes(image.read_bytes()[:60])
    problem = bind(make_hub("vit", dataset=str(data), validation=0, evaluated=100), clients=2)
    with pytest.raises(DataError, match=r"an image in row \d+ that cannot be read"):
        problem.evaluate(problem.x0(), "train")
    table = write_texts(tmp_path / "table", "jsonl")
    (table / "train.jsonl").write_text('{"sentence": ')
    assert "files that `datasets` cannot read" in sentence_of(make_hub("bert", dataset=str(table)))
    (tmp_path / "empty").mkdir()
    assert "none of the files that are read" in sentence_of(make_hub("bert", dataset=str(tmp_path / "empty")))


def test_a_server_names_folders_inside_a_clients_roots_only(described: Any, hub_data: Any, tmp_path: Path) -> None:
    fields = described("bert")
    model_root, data_root = Path(fields["model"]), hub_data["texts"].parent
    inside = HuggingFace.model_validate(
        fields | {"dataset": "texts"}, context={"roots": Roots([model_root, data_root])}
    )
    assert inside.dataset == str(hub_data["texts"].resolve())
    for changed in ({"dataset": str(tmp_path)}, {"dataset": "../x"}, {"model": "some/model"}):
        with pytest.raises(NotAllowed):
            HuggingFace.model_validate(fields | changed, context={"roots": Roots([model_root, data_root])})
    with pytest.raises(ValidationError, match="no such folder in"):
        HuggingFace.model_validate(fields | {"dataset": "some/set"}, context={"roots": Roots([model_root, data_root])})


def test_an_image_at_a_path_that_is_no_file_is_one_sentence(make_hub: Any) -> None:
    task = make_hub("vit")
    for path in (None, "/dev/zero", "/nowhere", "a\0b"):
        with pytest.raises(DataError, match=r"found an image in row 3 that cannot be read \(.*\); expected an image$"):
            image_bytes(task, 3, {str(task.columns.image): {"bytes": None, "path": path}})


def test_an_image_that_is_a_long_strip_is_refused(make_hub: Any, tmp_path: Path) -> None:
    """Of eighty million pixels, a strip would take gigabytes while it is resized."""
    import PIL.Image

    data = write_images(tmp_path / "images")
    for image in (data / "train" / "dog").iterdir():
        PIL.Image.new("L", (1, 65_536)).save(image)
    problem = bind(make_hub("vit", dataset=str(data), validation=0, evaluated=100), clients=2)
    with pytest.raises(DataError, match=r"cannot be read \(1 × 65,536 pixels, and at most 65,535 of a side are"):
        problem.evaluate(problem.x0(), "train")


def test_an_image_that_pillow_fails_on_is_one_sentence(make_hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import PIL.Image

    def fail(*_: Any, **__: Any) -> Any:
        raise PIL.Image.DecompressionBombError("2**40 pixels")

    task = make_hub("vit", validation=0)
    problem = bind(task, clients=2)
    monkeypatch.setattr(PIL.Image, "open", fail)
    with pytest.raises(
        DataError, match=r"an image in row \d+ that cannot be read \(2\*\*40 pixels\); expected an image$"
    ):
        problem.evaluate(problem.x0(), "train")


@pytest.mark.parametrize("name", ["train.jsonl", "test.other"])
def test_a_packed_file_is_known_by_its_first_bytes(make_hub: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "good", "label": 1}\n')
    (tmp_path / name).write_bytes(gzip.compress(b'{"text": "good", "label": 1}\n'))
    sentence = sentence_of(make_hub("bert", dataset=str(tmp_path)))
    assert sentence.endswith(f"{name}: found a packed file; expected its contents; unpack it first")


def test_parquet_of_more_rows_than_its_size_can_hold_is_not_unpacked(make_hub: Any, tmp_path: Path) -> None:
    import numpy
    import pyarrow
    import pyarrow.parquet

    column = pyarrow.array(numpy.zeros(80_000_000, dtype=numpy.int8))
    pyarrow.parquet.write_table(pyarrow.table({"label": column}), tmp_path / "train.parquet")
    sentence = sentence_of(make_hub("bert", dataset=str(tmp_path)))
    assert (
        "train.parquet: found a file that cannot be read (it unpacks to more than 268,435,456 bytes, the most"
        in sentence
    )
