"""LEAF's data sets (Caldas et al. 2019), as its scripts write them: JSON files in `train/` and `test/`.

A file names its users, and holds for each the lists x and y: {"users": [u], "user_data": {u: {"x": […], "y": […]}}}.
Its `num_samples` is not read: in published samples it is stale, and len(y) is the truth. Users are numbered as they
come, file after file in the order of their names.

The invariant: a set is used only if every x has its y, and both are what the task says they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data.prepared import Arrays, data_folder, prepared
from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError

_SOURCE = "LEAF's JSON files in train/ and test/ (https://leaf.cmu.edu)"

Encode = Callable[[list[Any], list[Any]], tuple[NDArray[np.uint8], NDArray[np.uint8]]]
"""A user's x and y → samples [n, …] and labels [n]. Raises `ValueError`, with what is found and what was expected."""


def read_leaf(name: str, split: str, dimensions: int, encode: Encode) -> Images:
    """One split of the set in $SEEDBUS_DATA/<name>/, with owners. split: "train" or "test". Raises `DataError`.

    dimensions: of the encoded samples.
    """
    folder = data_folder(name, _SOURCE) / split
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise DataError(folder, "no JSON files", _SOURCE)
    shapes = {"samples": dimensions, "labels": 1, "owners": 2}
    arrays = prepared(f"{name} 1", paths, shapes, lambda: _parse(paths, encode))
    owners = np.ascontiguousarray(arrays["owners"]).view("<u4").ravel()
    return Images(arrays["samples"], arrays["labels"].astype(np.int64), owners=owners.astype(np.int64))


def _parse(paths: list[Path], encode: Encode) -> Arrays:
    numbers: dict[str, int] = {}
    samples, labels, owners = [], [], []
    for path in paths:
        for user, x, y in _users(path):
            try:
                encoded, classes = encode(x, y)
            except ValueError as error:
                found, _, expected = str(error).partition("; ")
                raise DataError(path, f"{found} of user {user}", expected) from None
            samples.append(encoded)
            labels.append(classes)
            owners.append(np.full(len(classes), numbers.setdefault(user, len(numbers)), dtype="<u4"))
    if not sum(map(len, labels)):
        raise DataError(paths[0].parent, "no samples", _SOURCE)
    return {
        "samples": np.concatenate(samples),
        "labels": np.concatenate(labels),
        "owners": np.concatenate(owners).view(np.uint8).reshape(-1, 4),
    }


def _users(path: Path) -> list[tuple[str, list[Any], list[Any]]]:
    """Name, x and y of every user with samples, in the order of the file. Raises `DataError`."""
    try:
        document = json.loads(path.read_bytes())
        users = [
            (user, document["user_data"][user]["x"], document["user_data"][user]["y"]) for user in document["users"]
        ]
    except OSError as error:
        raise DataError(path, f"a file that cannot be read ({error.strerror})", "a readable file") from error
    except ValueError as error:
        raise DataError(path, f"no JSON ({error})", "LEAF's JSON") from None
    except (KeyError, TypeError) as error:
        raise DataError(path, f"another layout ({type(error).__name__}: {error})", "LEAF's JSON") from None
    for user, x, y in users:
        if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
            raise DataError(
                path, f"x and y of user {user} that are not lists of one length", "a label for every sample"
            )
    return [(user, x, y) for user, x, y in users if y]
