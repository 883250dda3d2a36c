"""Image sets in MNIST's layout: from a folder of the user, from the cache, or fetched once from the hub.

    1. $SEEDBUS_DATA/<name>/       the four idx files, plain or .gz; if the folder exists, it is used or refused
    2. $SEEDBUS_CACHE/<name>/      (default ~/.cache/seedbus) files that an earlier run fetched
    3. the Hugging Face hub        through `datasets`, an optional extra; then stored in 2

A .gz file of 1 is unpacked into $SEEDBUS_CACHE/unpacked/ by the first process that reads it.

The invariant: a set is used only if it has one label for each image and every label is one of its classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data import idx
from seedbus.models.data.hub_sets import hub_set
from seedbus.models.data.roots import own_folder, searched
from seedbus.models.errors import DataError

STEMS = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}

_REVISIONS = {  # commits on the hub: exactly the reviewed version is fetched
    "ylecun/mnist": "77f3279092a1c1579b2250db8eafed0ad422088c",
    "zalando-datasets/fashion_mnist": "531be5e2ccc9dba0c201ad3ae567a4f3d16ecdd2",
}


def read_images(
    name: str, hub: str, split: str, size: tuple[int, int], classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return one split of an image set: pixels, uint8 [n, height, width, 1], and labels, int64 [n].

    Args:
        name: the set's folder, and its name in error messages.
        hub: the set's name on the Hugging Face hub.
        split: "train" or "test".
        size: expected height and width of an image.
        classes: number of classes; labels are below it.

    Raises:
        DataError: a file is missing or damaged, or its contents are out of range.
    """
    images_path, labels_path = image_paths(name, hub, split)
    pixels, labels = idx.read(images_path, 3), idx.read(labels_path, 1)
    if pixels.shape[1:] != size:
        found, expected = ("{}×{}".format(*shape) for shape in (pixels.shape[1:], size))
        raise DataError(images_path, f"images of {found}", f"{expected} for {name}")
    if len(pixels) != len(labels):
        raise DataError(
            labels_path, f"{len(labels)} labels", f"{len(pixels)}, one for each image of {images_path.name}"
        )
    beyond = np.flatnonzero(labels >= classes)
    if beyond.size:
        raise DataError(
            labels_path, f"label {labels[beyond[0]]} at sample {beyond[0]}", f"labels 0 to {classes - 1} for {name}"
        )
    return pixels[..., None], labels.astype(np.int64)


def image_paths(name: str, hub: str, split: str) -> list[Path]:
    """Return the files of a split's images and labels, and fetch them if they are missing. Raises `DataError`."""
    folder = _folder(name, hub)
    return [idx.find(folder, stem) for stem in STEMS[split]]


def _folder(name: str, hub: str) -> Path:
    own = own_folder(name)
    if own is not None:
        return own
    cache = idx.cache_folder() / name
    if not all((cache / stem).is_file() for stems in STEMS.values() for stem in stems):
        _fetch(name, hub, cache)
    return cache


def _fetch(name: str, hub: str, folder: Path) -> None:
    """Fetch a set from the hub and store it in the folder as idx files."""
    try:
        splits = hub_set(hub, revision=_REVISIONS[hub])
        arrays = {split: _arrays(splits[split]) for split in STEMS}
    except Exception as error:  # the hub's client raises many unrelated types, also ImportError
        raise _cannot_fetch(name, hub, error) from error
    for split, stems in STEMS.items():
        for stem, array in zip(stems, arrays[split], strict=True):
            idx.write(folder / stem, array)


def _arrays(rows: Iterable[Mapping[str, Any]]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    pairs = [(np.asarray(row["image"], dtype=np.uint8), row["label"]) for row in rows]
    return np.stack([image for image, _ in pairs]), np.array([label for _, label in pairs], dtype=np.uint8)


def _cannot_fetch(name: str, hub: str, error: Exception) -> DataError:
    stems = ", ".join(stem for stems in STEMS.values() for stem in stems)
    reason = (str(error).splitlines() or [""])[0]
    return DataError(
        f"data set {name}",
        f"{searched(name)}, and fetching {hub} from the Hugging Face hub failed ({type(error).__name__}: {reason})",
        f"the idx files {stems} (plain or .gz), downloaded into a folder {name}/ of the directory that the environment "
        'variable SEEDBUS_DATA names; or a network and `pip install "seedbus[hub]"`',
    )
