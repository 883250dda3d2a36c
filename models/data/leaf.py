"""LEAF's data sets (Caldas et al. 2019), in the form that its scripts write: JSON files in `train/` and `test/`.

A file lists its users, and the lists x and y of each: {"users": [u], "user_data": {u: {"x": […], "y": […]}}}. Its
`num_samples` is not read: in published files it is out of date, and len(y) is correct. Users are numbered in the order
of the files' names, and within a file in its order; those with test samples alone come last.

The invariant: a set is used only if every x has a y, and both have the form that the task expects.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.bounded import LARGEST_TEXT, read_text
from seedbus.models.data.prepared import Arrays, data_folder, prepared
from seedbus.models.data.samples import Images
from seedbus.models.data.untrusted import parse_json, regular
from seedbus.models.errors import DataError

_SOURCE = "LEAF's JSON files in train/ and test/ (https://leaf.cmu.edu)"

Encode = Callable[[list[Any], list[Any]], tuple[NDArray[np.uint8], NDArray[np.uint8]]]
"""Turns a user's x and y into samples [n, …] and labels [n]. Raises `ValueError("found; expected")`."""


def read_leaf(name: str, dimensions: int, encode: Encode) -> tuple[Images, Images]:
    """Return the training and the test samples of the set in $SEEDBUS_DATA/<name>/, with owners.

    Args:
        name: the set's folder.
        dimensions: number of dimensions of the encoded samples.
        encode: encodes the samples of one user.

    Raises:
        DataError: files are missing, cannot be read, or have another content.
    """
    numbers: dict[str, int] = {}
    images = []
    for split in ("train", "test"):
        folder = data_folder(name, _SOURCE) / split
        paths = sorted(folder.glob("*.json"))
        if not paths:
            raise DataError(folder, "no JSON files", _SOURCE)
        shapes = {"samples": dimensions, "labels": 1, "owners": 2, "people": 1}
        arrays = prepared(f"{name} 2", paths, shapes, partial(_parse, paths, encode))
        people = [numbers.setdefault(person, len(numbers)) for person in json.loads(arrays["people"].tobytes())]
        owners = np.ascontiguousarray(arrays["owners"]).view("<u4").ravel()
        images.append(Images(arrays["samples"], arrays["labels"].astype(np.int64), owners=np.array(people)[owners]))
    train, test = (each._replace(people=list(numbers)) for each in images)
    return train, test


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
        "people": np.frombuffer(json.dumps(list(numbers)).encode(), dtype=np.uint8).copy(),
    }


def _users(path: Path) -> list[tuple[str, list[Any], list[Any]]]:
    """Return name, x and y of every user with samples, in the order of the file. Raises `DataError`."""
    try:
        with regular(path).open("rb") as file:
            document = parse_json(read_text(file, LARGEST_TEXT))
        users = [
            (user, document["user_data"][user]["x"], document["user_data"][user]["y"]) for user in document["users"]
        ]
    except OSError as error:
        raise DataError(path, f"a file that cannot be read ({error.strerror})", "a readable file") from error
    except ValueError as error:
        raise DataError(path, f"invalid JSON ({error})", "LEAF's JSON") from None
    except (LookupError, TypeError) as error:
        raise DataError(path, f"another layout ({type(error).__name__}: {error})", "LEAF's JSON") from None
    twice = next((user for user, count in Counter(user for user, _, _ in users).items() if count > 1), None)
    if twice is not None:  # a short list of names could repeat one person's samples without end
        raise DataError(path, f"user {twice} twice", "every user once")
    if any(not str(user).strip() for user, _, _ in users):
        raise DataError(path, "a user without a name", "a name for every user")
    for user, x, y in users:
        if not isinstance(x, list) or not isinstance(y, list) or len(x) != len(y):
            raise DataError(
                path, f"x and y of user {user}, which are not lists of equal length", "a label for every sample"
            )
    return [(user, x, y) for user, x, y in users if y]
