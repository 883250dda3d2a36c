"""Small data sets in the layouts of the published ones, so that tests need no downloads."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data import idx
from seedbus.models.data.image_files import STEMS
from seedbus.models.generators import generator

SMALLER: dict[str, dict[str, Any]] = {
    "blackbox-attack": {"label": None, "classifier_steps": 40},
    "cifar-10": {"model": "softmax"},
    "cifar-100": {"model": "softmax"},
    "femnist": {"model": "softmax"},
    "image-folder": {"folder": "small-pictures", "owners": "small-pictures/owners.csv", "size": 8, "model": "softmax"},
    "moments": {"columns": {"age": {"low": 0, "high": 120}}, "rows": 50},
    "table": {"file": "small-table/people.csv", "target": "city", "owner": "person", "hidden": [4]},
}
"""Task name → fields that make the task cheap, and those that it must have."""

SAMPLES = {"train": 60, "test": 10}
TEXT = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer the slings and arrows"


def mnist(folder: Path) -> None:
    """Write MNIST's four files: noise, with a bright row that depends on the class."""
    for split, (images, labels) in STEMS.items():
        classes = np.arange(SAMPLES[split]) % 10
        pixels = generator(split).integers(0, 64, (SAMPLES[split], 28, 28), dtype=np.uint8)
        pixels[np.arange(SAMPLES[split]), 2 * classes] = 255
        idx.write(folder / images, pixels)
        idx.write(folder / labels, classes.astype(np.uint8))


def cifar(folder: Path, files: dict[str, int], label_bytes: int, classes: int) -> None:
    """Write files of random records. files: file name → number of records."""
    folder.mkdir(parents=True)
    for name, count in files.items():
        records = generator(name).integers(0, 256, (count, label_bytes + 3072), dtype=np.uint8)
        records[:, :label_bytes] %= classes
        (folder / name).write_bytes(records.tobytes())


def cifar_sets(root: Path) -> None:
    """Write CIFAR-10 with 10 training and 5 test images, and CIFAR-100 with 18 and 5."""
    batches = {f"data_batch_{number}.bin": 2 for number in range(1, 6)}
    cifar(root / "cifar-10-batches-bin", batches | {"test_batch.bin": 5}, 1, 10)
    cifar(root / "cifar-100-binary", {"train.bin": 18, "test.bin": 5}, 2, 100)


def leaf_file(folder: Path, split: str, name: str, users: dict[str, tuple[list[Any], list[Any]]]) -> Path:
    """Write one of LEAF's files and return its path. `num_samples` is wrong, as it is in published files."""
    document = {
        "users": list(users),
        "num_samples": [len(y) + 7 for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path = folder / split / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def femnist_samples(writer: int, count: int) -> tuple[list[Any], list[Any]]:
    """Return the images and labels of one writer of FEMNIST."""
    pixels = generator("written", writer).integers(0, 256, (count, 784))
    return (pixels / 255).tolist(), [(writer + sample) % 62 for sample in range(count)]


def shakespeare_samples(role: int, count: int) -> tuple[list[Any], list[Any]]:
    """Return the texts and next characters of one role of LEAF's Shakespeare."""
    starts = range(role, role + count)
    return [TEXT[start : start + 80] for start in starts], [TEXT[start + 80] for start in starts]


def leaf_sets(root: Path, people: int = 4) -> None:
    """Write FEMNIST, two files a split, and Shakespeare, one; user i has i + 4 training samples."""
    for split, more in (("train", 4), ("test", 1)):
        writers = {f"f{writer:04}_00": femnist_samples(writer, writer + more) for writer in range(people)}
        for number, half in enumerate((list(writers)[:2], list(writers)[2:])):
            leaf_file(root / "leaf-femnist", split, f"all_data_{number}.json", {user: writers[user] for user in half})
        roles = {f"PLAY_{role}": shakespeare_samples(role, role + more) for role in range(people)}
        leaf_file(root / "leaf-shakespeare", split, "all_data.json", roles)


def people_table(path: Path, rows: int = 48) -> None:
    """Write a table of heights, ages, pets, cities and persons; a city's people are of about one height."""
    rng = generator("people")
    cities, pets = ("Aarhus", "Bergen", "Cork"), ("cat", "dog", "")
    lines = ["height,age,pet,city,person"]
    for row in range(rows):
        height = 150 + 20 * (row % 3) + rng.integers(0, 100) / 10
        lines.append(f"{height},{rng.integers(1, 99)},{pets[rng.integers(3)]},{cities[row % 3]},{row % 5}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return an image [height, width, 3] as a PNG file."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def picture_folder(folder: Path, images: int = 20, side: int = 12) -> None:
    """Write pictures of two classes, day and night, into a folder for each, and a table of their five owners."""
    lines = ["file,owner"]
    for name, brightest in (("day", 256), ("night", 100)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(images):
            pixels = generator(name, number).integers(0, brightest, (side, side, 3), dtype=np.uint8)
            (folder / name / f"{number:03}.png").write_bytes(png(pixels))
            lines.append(f"{name}/{number:03}.png,Clinic {number % 5}")
    (folder / "owners.csv").write_text("\n".join(lines) + "\n")


def all_sets(root: Path) -> None:
    """Write every data set that a task may look for in the folder."""
    mnist(root / "mnist")
    mnist(root / "fashion-mnist")
    cifar_sets(root)
    leaf_sets(root)
    people_table(root / "small-table" / "people.csv")
    picture_folder(root / "small-pictures")
