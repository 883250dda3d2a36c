"""Small data sets in the layouts of the published ones, for tests that need no data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from seedbus.models.data import idx
from seedbus.models.data.image_files import STEMS
from seedbus.models.streams import stream

SMALLER: dict[str, dict[str, Any]] = {
    "blackbox-attack": {"label": None, "classifier_steps": 40},
    "cifar-10": {"model": "softmax"},
    "cifar-100": {"model": "softmax"},
    "femnist": {"model": "softmax"},
}
"""What makes tasks cheap enough for many tests, by name."""

SAMPLES = {"train": 60, "test": 10}
TEXT = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer the slings and arrows"


def mnist(folder: Path) -> None:
    """MNIST's four files: noise, with a bright row that tells the class."""
    for split, (images, labels) in STEMS.items():
        classes = np.arange(SAMPLES[split]) % 10
        pixels = stream(split).integers(0, 64, (SAMPLES[split], 28, 28), dtype=np.uint8)
        pixels[np.arange(SAMPLES[split]), 2 * classes] = 255
        idx.write(folder / images, pixels)
        idx.write(folder / labels, classes.astype(np.uint8))


def cifar(folder: Path, files: dict[str, int], label_bytes: int, classes: int) -> None:
    """Random records: so many in each file."""
    folder.mkdir(parents=True)
    for name, count in files.items():
        records = stream(name).integers(0, 256, (count, label_bytes + 3072), dtype=np.uint8)
        records[:, :label_bytes] %= classes
        (folder / name).write_bytes(records.tobytes())


def cifars(root: Path) -> None:
    """CIFAR-10, 10 and 5 images, and CIFAR-100, 18 and 5."""
    batches = {f"data_batch_{number}.bin": 2 for number in range(1, 6)}
    cifar(root / "cifar-10-batches-bin", batches | {"test_batch.bin": 5}, 1, 10)
    cifar(root / "cifar-100-binary", {"train.bin": 18, "test.bin": 5}, 2, 100)


def leaf(folder: Path, split: str, name: str, users: dict[str, tuple[list[Any], list[Any]]]) -> Path:
    """One of LEAF's files, whose `num_samples` is wrong, as it is in published samples; returns its path."""
    document = {
        "users": list(users),
        "num_samples": [len(y) + 7 for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path = folder / split / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def written(writer: int, count: int) -> tuple[list[Any], list[Any]]:
    """A writer's images and labels, as FEMNIST has them."""
    pixels = stream("written", writer).integers(0, 256, (count, 784))
    return (pixels / 255).tolist(), [(writer + sample) % 62 for sample in range(count)]


def spoken(role: int, count: int) -> tuple[list[Any], list[Any]]:
    """A role's texts and next characters, as Shakespeare has them."""
    starts = range(role, role + count)
    return [TEXT[start : start + 80] for start in starts], [TEXT[start + 80] for start in starts]


def leaves(root: Path, people: int = 4) -> None:
    """FEMNIST in two files a split and Shakespeare in one; person i has i + 4 samples to train on."""
    for split, more in (("train", 4), ("test", 1)):
        writers = {f"f{writer:04}_00": written(writer, writer + more) for writer in range(people)}
        for number, half in enumerate((list(writers)[:2], list(writers)[2:])):
            leaf(root / "leaf-femnist", split, f"all_data_{number}.json", {user: writers[user] for user in half})
        roles = {f"PLAY_{role}": spoken(role, role + more) for role in range(people)}
        leaf(root / "leaf-shakespeare", split, "all_data.json", roles)


def all_sets(root: Path) -> None:
    """Every set that a task may look for in the folder."""
    mnist(root / "mnist")
    mnist(root / "fashion-mnist")
    cifars(root)
    leaves(root)
