"""CIFAR: its binary files, the augmentation of batches, and the residual network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_data import cifar_sets
from torch import nn

from seedbus.models import DataError, Iid
from seedbus.models.data import idx
from seedbus.models.generators import generator
from seedbus.models.images.resnet import resnet18
from seedbus.models.parameters.flat import FlatModule
from seedbus.models.tasks.cifar import Cifar10, Cifar100

KEY = {"seed": 1, "client": 2, "round": 3, "step": 4}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small versions of both data sets, and an empty cache."""
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SEEDBUS_CACHE", str(tmp_path / "cache"))
    cifar_sets(tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("task", [Cifar10(), Cifar100()], ids=lambda task: str(task.name))
def test_records_are_read_pixel_by_pixel_with_their_last_label(task: Any, data: Path) -> None:
    train, test = task.load()
    size = task.label_bytes + 3072
    for split, images in (("train", train), ("test", test)):
        records = b"".join((data / task.folder / name).read_bytes() for name in task.files[split])
        assert len(images.labels) == len(records) // size
        for sample, label in enumerate(images.labels):
            record = records[sample * size : (sample + 1) * size]
            assert label == record[task.label_bytes - 1]
            planes = np.frombuffer(record[task.label_bytes :], dtype=np.uint8).reshape(3, 32, 32)
            assert np.array_equal(images.pixels[sample], planes.transpose(1, 2, 0)), "red, green and blue of a pixel"


def test_files_are_read_once_and_anew_when_they_have_changed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = Cifar10().load()
    with monkeypatch.context() as patch:
        patch.setattr(np, "fromfile", None)
        second, _ = Cifar10().load()
    assert np.array_equal(first.stored, second.stored) and not second.stored.flags.writeable
    path = data / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:3073])
    assert len(Cifar10().load()[0].labels) == len(first.labels) - 1
    assert len(list((idx.cache_folder() / "prepared").iterdir())) == 4, "what was there before is gone"


def test_a_damaged_prepared_file_is_prepared_again() -> None:
    first, _ = Cifar10().load()
    for path in (idx.cache_folder() / "prepared").iterdir():
        content = path.read_bytes()
        path.unlink()  # memory maps of the deleted file stay valid
        path.write_bytes(content[:-1])
    again, _ = Cifar10().load()
    assert np.array_equal(first.labels, again.labels) and again.stored.shape == (10, 32, 32, 3)


def test_without_a_cache_files_are_read_all_the_same(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached, _ = Cifar100().load()
    monkeypatch.setenv("SEEDBUS_CACHE", str(data / "cifar-100-binary" / "train.bin"))
    read, _ = Cifar100().load()
    assert np.array_equal(cached.stored, read.stored) and np.array_equal(cached.labels, read.labels)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "test_batch.bin: found 0 bytes; expected records of 3073 bytes, at least one"),
        (bytes(3074), "found 3074 bytes; expected records of 3073"),
        (bytes(3073) + b"\x0a" + bytes(3072), "found label 10 at sample 1; expected labels 0 to 9"),
    ],
)
def test_damaged_files_are_named(data: Path, content: bytes, sentence: str) -> None:
    (data / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        Cifar10().load()


def test_what_is_missing_is_named_with_where_to_get_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_4.bin: found no such file; expected the binary version.*kriz"):
        Cifar10().load()
    monkeypatch.setenv("SEEDBUS_DATA", str(data / "elsewhere"))
    with pytest.raises(DataError, match=r"found no folder .*elsewhere/cifar-100-binary \(.*\); expected the binary"):
        Cifar100().load()
    monkeypatch.delenv("SEEDBUS_DATA")
    with pytest.raises(DataError, match="found no environment variable SEEDBUS_DATA"):
        Cifar100().load()


def test_every_channel_has_its_own_mean_and_deviation() -> None:
    inputs = Cifar10().inputs(np.full((1, 32, 32, 3), 128, dtype=np.uint8))
    expected = (128 / 255 - np.array(Cifar10.mean)) / np.array(Cifar10.deviation)
    assert inputs.dtype == np.float32 and inputs.shape == (1, 32, 32, 3)
    assert inputs[0, 7, 9] == pytest.approx(expected, rel=1e-6)


def test_an_augmented_image_is_a_crop_of_its_frame_mirrored_or_not() -> None:
    stored = generator("pixels").integers(1, 256, (40, 32, 32, 3), dtype=np.uint8)
    changed = Cifar10().augmented(stored, **KEY)
    framed = np.pad(stored, ((0, 0), (4, 4), (4, 4), (0, 0)))
    seen = set()
    for image, frame in zip(changed, framed, strict=True):
        crops = {
            (top, left, step): frame[top : top + 32, left : left + 32][:, ::step]
            for top in range(9)
            for left in range(9)
            for step in (1, -1)
        }
        (position,) = [place for place, crop in crops.items() if np.array_equal(crop, image)]
        seen.add(position)
    assert len(seen) > 30 and {step for _, _, step in seen} == {1, -1}


def test_augmentation_is_drawn_by_its_key_and_for_training_only() -> None:
    task = Cifar10(model="softmax", batch_size=2)
    problem: Any = task.bind(seed=1, clients=3, partition=Iid())
    first, _ = problem.objective(1, 0).batch(0)
    assert torch.equal(first, problem.objective(1, 0).batch(0)[0]), "at every call of a step"
    plain: Any = Cifar10(model="softmax", batch_size=2, augmentation="none").bind(seed=1, clients=3, partition=Iid())
    assert not torch.equal(first, plain.objective(1, 0).batch(0)[0])
    assert torch.equal(first, problem.objective(1, 0).batch(0)[0])
    x = problem.x0()
    assert problem.evaluate(x, "train") == plain.evaluate(x, "train")
    stored = problem.splits["train"].pixels
    augmented = task.augmented(stored, **KEY)
    for name in KEY:
        assert not np.array_equal(augmented, task.augmented(stored, **{**KEY, name: KEY[name] + 1}))


def test_the_resnet_has_fedacgs_parameters_and_512_features() -> None:
    module: Any = resnet18(10)
    assert sum(p.numel() for p in module.parameters()) == 11_173_962
    assert [name for name, _ in module.named_children()][-3:] == ["pool", "flatten", "head"]
    assert all(norm.num_groups == 2 for norm in module.modules() if isinstance(norm, nn.GroupNorm))
    with torch.inference_mode():
        images = torch.zeros(1, 3, 32, 32)
        assert module[0](images).shape == (1, 64, 32, 32), "no pooling before the first layer"
        assert module[:-1](images).shape == (1, 512) and module(images).shape == (1, 10)


def test_a_resnet_of_views_computes_what_its_own_parameters_did() -> None:
    module: Any = resnet18(10)
    image = torch.from_numpy(generator("image").random((1, 32, 32, 3), dtype=np.float32)).permute(0, 3, 1, 2)
    with torch.inference_mode():
        before = module(image)
        assert torch.allclose(FlatModule(module).module(image), before, atol=1e-4)


@pytest.mark.slow
def test_a_resnets_losses_do_not_depend_on_other_clients() -> None:
    alone, crowd = (Cifar10(batch_size=4).bind(seed=1, clients=2, partition=Iid()) for _ in range(2))
    x = alone.x0()
    losses = []
    for problem, others in ((alone, []), (crowd, [0, 1])):
        for other in others:
            problem.objective(other, 5).loss(0)
        objective = problem.objective(1, 5)
        objective.point[:] = x
        losses.append([objective.loss(step) for step in (0, 1, 0)])
    assert losses[0] == losses[1] and losses[0][0] == losses[0][2]
