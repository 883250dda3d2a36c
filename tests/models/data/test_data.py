"""Damaged or missing data is reported in one sentence that names the file; intact data is read exactly."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest

from seedbus.models import DataError, Iid
from seedbus.models.data import idx, image_files
from seedbus.models.task import TASKS

STEMS = [stem for stems in image_files.STEMS.values() for stem in stems]

KINDS: dict[str, Any] = dict(TASKS.all())


def small_set(folder: Path, train: int = 20, test: int = 10, packed: bool = False) -> Path:
    """Write MNIST's four files with random images; return the folder."""
    rng = np.random.Generator(np.random.Philox(0))
    for split, count in (("train", train), ("test", test)):
        images, labels = image_files.STEMS[split]
        idx.write(folder / images, rng.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        idx.write(folder / labels, (np.arange(count) % 10).astype(np.uint8))
    for stem in STEMS if packed else ():
        (folder / f"{stem}.gz").write_bytes(gzip.compress((folder / stem).read_bytes()))
        (folder / stem).unlink()
    return folder


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A small MNIST in the folder that SEEDBUS_DATA names, and an empty cache."""
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path / "cache"))
    return small_set(tmp_path / "data" / "mnist")


def load() -> Any:
    return KINDS["mnist"]().load()


def test_plain_and_packed_files_hold_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    for packed in (False, True):
        monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path / str(packed)))
        small_set(tmp_path / str(packed) / "mnist", packed=packed)
        read.append(load())
    for plain, packed in zip(*read, strict=True):
        assert np.array_equal(plain.pixels, packed.pixels) and np.array_equal(plain.labels, packed.labels)
    assert read[0][0].pixels.shape == (20, 28, 28, 1) and read[0][1].labels.tolist() == list(range(10))


def test_a_missing_file_is_named_and_not_fetched_in_silence(data: Any) -> None:
    (data / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"mnist/t10k-labels-idx1-ubyte: found no such file; expected an idx file"):
        load()


def test_a_file_cut_short_says_how_many_bytes_it_holds_and_should(data: Any) -> None:
    path = data / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"train-images.*found 15580 data bytes; expected 15680 for sizes 20×28×28"):
        load()


def test_bytes_after_the_end_are_refused_too(data: Any) -> None:
    path = data / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DataError, match="found 15681 data bytes"):
        load()


def test_a_file_without_a_whole_header_is_refused(data: Any) -> None:
    (data / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08")
    with pytest.raises(DataError, match="found 3 bytes; expected an idx header of 8 bytes"):
        load()


def test_a_wrong_magic_number_is_named(data: Any) -> None:
    (data / "train-images-idx3-ubyte").write_bytes((data / "train-labels-idx1-ubyte").read_bytes())
    with pytest.raises(DataError, match=r"found magic number 2049; expected 2051"):
        load()


def test_a_download_cut_short_is_told_from_a_damaged_one(data: Any) -> None:
    path = data / "train-images-idx3-ubyte"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    damaged = bytearray(packed)
    damaged[len(packed) // 2] ^= 0xFF
    wrongs = {packed[:-500]: "ends early", bytes(damaged): "damaged gzip data", b"<html>404": "damaged gzip data"}
    for content, sentence in wrongs.items():
        path.with_name(path.name + ".gz").write_bytes(content)
        with pytest.raises(DataError, match=f"train-images-idx3-ubyte.gz: found .*{sentence}"):
            load()


def test_images_and_labels_must_be_equally_many(data: Any) -> None:
    idx.write(data / "train-labels-idx1-ubyte", np.zeros(19, dtype=np.uint8))
    with pytest.raises(DataError, match=r"labels-idx1-ubyte: found 19 labels; expected 20, one for each image"):
        load()


def test_a_label_out_of_range_is_named_with_its_place(data: Any) -> None:
    idx.write(data / "train-labels-idx1-ubyte", np.array([0] * 7 + [12] + [0] * 12, dtype=np.uint8))
    with pytest.raises(DataError, match="found label 12 at sample 7; expected labels 0 to 9 for mnist"):
        load()


def test_images_of_another_size_are_refused(data: Any) -> None:
    idx.write(data / "train-images-idx3-ubyte", np.zeros((20, 32, 32), dtype=np.uint8))
    with pytest.raises(DataError, match="found images of 32×32; expected 28×28 for mnist"):
        load()


def test_a_set_without_samples_is_refused(data: Any) -> None:
    idx.write(data / "train-images-idx3-ubyte", np.zeros((0, 28, 28), dtype=np.uint8))
    with pytest.raises(DataError, match="found sizes 0×28×28; expected at least one sample"):
        load()


def no_answer(name: Any, configuration: None, revision: Any) -> Never:
    raise ConnectionError(f"Couldn't reach '{name}' on the Hub\nand a second line")


@pytest.mark.parametrize(
    ("module", "reason"),
    [(None, "import of datasets halted"), (types.SimpleNamespace(load_dataset=no_answer), "Couldn't reach")],
    ids=["datasets is not installed", "there is no network"],
)
def test_without_files_and_hub_one_sentence_says_what_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, reason: Any
) -> None:
    monkeypatch.delenv("SEEDBUS_DATA", raising=False)
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "datasets", module)
    with pytest.raises(DataError, match=reason) as caught:
        load()
    sentence = str(caught.value)
    for needed in ("ylecun/mnist", "mnist/", "SEEDBUS_DATA", "seedbus[hub]", *STEMS):
        assert needed in sentence
    assert "\n" not in sentence and not list(tmp_path.iterdir())


def test_a_hub_that_is_out_of_reach_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    datasets = pytest.importorskip("datasets")
    from huggingface_hub import constants

    monkeypatch.delenv("SEEDBUS_DATA", raising=False)
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    with pytest.raises(DataError, match=r"the hub does not answer \(.*refused.*\)"):
        load()
    assert capfd.readouterr() == ("", "") and not constants.HF_HUB_OFFLINE and not datasets.config.HF_HUB_OFFLINE


def test_what_the_hub_sends_is_kept_and_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"image": np.full((28, 28), shade, dtype=np.uint8), "label": shade % 10} for shade in range(30)]
    asked = []

    def load_dataset(name: Any, configuration: None, revision: Any) -> Any:
        asked.append((name, len(revision)))
        return {"train": rows, "test": rows[:10]}

    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    first, second = load(), load()
    assert asked == [("ylecun/mnist", 40)], "at a commit, whatever the set's name stands for today"
    assert first[0].pixels[:, 0, 0, 0].tolist() == list(range(30))
    assert np.array_equal(first[1].labels, second[1].labels)
    assert sorted(path.name for path in (tmp_path / "mnist").iterdir()) == sorted(STEMS), "no partial files are left"


def test_fewer_samples_than_clients_is_a_data_error(data: Any) -> None:
    with pytest.raises(DataError, match="19 clients and 18 training samples"):
        KINDS["mnist"]().bind(seed=0, clients=19, partition=Iid())


@pytest.mark.skipif(
    not (Path(os.environ.get("SEEDBUS_DATA", "")) / "fashion-mnist").is_dir() or "SEEDBUS_DATA" not in os.environ,
    reason="SEEDBUS_DATA does not name a folder that has fashion-mnist",
)
def test_fashion_mnist_is_read_whole() -> None:
    train, test = KINDS["fashion-mnist"]().load()
    assert train.pixels.shape == (60_000, 28, 28, 1) and test.pixels.shape == (10_000, 28, 28, 1)
    assert np.bincount(train.labels).tolist() == [6_000] * 10 and np.bincount(test.labels).tolist() == [1_000] * 10
    assert train.pixels.mean() / 255 == pytest.approx(0.2860, abs=1e-4)


@pytest.mark.slow
def test_digits_are_scikit_learns_and_read_without_it() -> None:
    """It runs in a process of its own, because other tests import scikit-learn in this one."""
    code = """
import sys
from seedbus.models.tasks.digits import Digits, _table
splits = Digits().load()
assert not {"sklearn", "pandas"} & set(sys.modules), "it was imported"
from sklearn.datasets import load_digits
theirs, table = load_digits(), _table()
assert (table[:, :-1] == theirs.data).all() and (table[:, -1] == theirs.target).all() and table.shape == (1797, 65)
assert sorted(map(bytes, [i for split in splits for i in split.pixels])) == sorted(
    map(bytes, theirs.images.astype("uint8"))
)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("is_installed", [True, False])
def test_digits_that_are_not_there_are_one_sentence(
    is_installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib.machinery import ModuleSpec

    package = ModuleSpec("sklearn", None, origin=str(tmp_path / "__init__.py")) if is_installed else None
    monkeypatch.setattr("seedbus.models.tasks.digits.find_spec", lambda name: package)
    missing = "digits.csv.gz" if is_installed else "no scikit-learn"
    with pytest.raises(DataError, match=rf"task digits: found .*{missing}; expected"):
        KINDS["digits"]().load()
