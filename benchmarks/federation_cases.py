"""What the owners of `federation.py` have, real data that come with scikit-learn, and what a leak would look like."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

OWNERS = ("north", "east", "west")
_LEAST_DISTINCT = 5  # bytes of eight: fewer would be found by chance, such as the zeros of a number like 13.0


class Share(NamedTuple):
    """What one owner has.

    Attributes:
        what: it in words, for the table.
        secrets: what must not leave it, as bytes → what these are.
    """

    what: str
    secrets: dict[bytes, str]


class Case(NamedTuple):
    """A scenario and its data.

    Attributes:
        name: what it is called.
        scenario: its fields, but for the number of rounds.
        rounds: how many rounds it has.
        own: the name of each owner's file or folder, in its own folder.
        divide: writes that of each owner, and returns what it has.
    """

    name: str
    scenario: dict[str, Any]
    rounds: int
    own: str
    divide: Callable[[Sequence[Path]], list[Share]]


def table_case() -> Case:
    """Return the table; what the scenario states of its columns is rounded to one digit."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in found.feature_names]
    means, deviations = (
        [float(f"{value:.1g}") for value in each] for each in (found.data.mean(axis=0), found.data.std(axis=0))
    )
    labels = [str(name) for name in found.target_names]
    columns: dict[str, Any] = {
        name: {"mean": mean, "deviation": deviation}
        for name, mean, deviation in zip(names, means, deviations, strict=True)
    }
    task = {"name": "table", "target": "diagnosis", "columns": columns | {"diagnosis": labels}, "hidden": [32]}

    def divide(places: Sequence[Path]) -> list[Share]:
        shares = []
        for number, place in enumerate(places):
            rows, classes = found.data[number :: len(places)], found.target[number :: len(places)]
            with place.open("w", newline="") as file:
                lines = csv.writer(file)
                lines.writerow([*names, "diagnosis"])
                lines.writerows([*row.tolist(), labels[label]] for row, label in zip(rows, classes, strict=True))
            secrets = {place.name.encode(): "the name of a file"} | _of_labels(labels, classes)
            for row in rows:
                secrets |= of_row(row, (row - means) / deviations)
            shares.append(Share(f"{len(rows)} rows", secrets))
        return shares

    return Case(
        "breast-cancer",
        _fields(task, "breast-cancer", {"learning_rate": 0.05, "perturbations": 5}),
        150,
        "ward-of-patients.csv",
        divide,
    )


def image_case() -> Case:
    """Return the images, which have the size that they are learnt in."""
    from PIL import Image
    from sklearn.datasets import load_digits

    found = load_digits()
    labels = [f"numeral-{name}" for name in "zero one two three four five six seven eight nine".split()]
    pixels = (found.images * (255 / 16)).round().astype(np.uint8)
    size = pixels.shape[1]
    task = {"name": "image-folder", "classes": labels, "size": size, "colours": "grey", "model": "mnist-cnn"}

    def divide(places: Sequence[Path]) -> list[Share]:
        shares = []
        for number, place in enumerate(places):
            mine, classes = pixels[number :: len(places)], found.target[number :: len(places)]
            secrets = {place.name.encode(): "the name of a folder"} | _of_labels(labels, classes)
            for index, (image, label) in enumerate(zip(mine, classes, strict=True)):
                path = place / labels[label] / f"scan-{OWNERS[number]}-{index}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(path)
                secrets |= {path.name.encode(): "the name of a file"} | _of_image(image, path.read_bytes())
            shares.append(Share(f"{len(mine)} images", secrets))
        return shares

    return Case(
        "digits",
        _fields(task, "digits", {"learning_rate": 0.005, "perturbations": 10, "local_steps": 4}),
        40,
        "scans-of-patients",
        divide,
    )


def _fields(task: dict[str, Any], name: str, algorithm: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "task": task,
        "partition": "own",
        "algorithm": {"name": "decomfl"} | algorithm,
        "participation": {"clients": len(OWNERS), "cohort": len(OWNERS)},
        "evaluation": {"by": "clients", "every": 10},
    }


def _of_labels(names: Sequence[str], classes: NDArray[Any]) -> dict[bytes, str]:
    """Return class names, and an owner's labels in their order as the arrays that programs have of them."""
    found = {name.encode(): "a label" for name in names}
    for kind in (np.uint8, np.int64, np.float32):
        found[classes[:32].astype(kind).tobytes()] = "labels"
    return found


def of_row(raw: NDArray[Any], standardised: NDArray[Any]) -> dict[bytes, str]:
    """Return the cells of a row as numbers of a file and of a network, and as decimal text."""
    found: dict[bytes, str] = {}
    for what, numbers in (("raw", raw), ("standardised", standardised)):
        pairs = numbers.astype(np.float32)
        found |= {pairs[at : at + 2].tobytes(): f"{what} numbers, float32" for at in range(len(pairs) - 1)}
        found |= {np.float64(number).tobytes(): f"a {what} number, float64" for number in numbers}
    texts = {repr(float(number)).encode(): "a number as text" for number in raw}
    return {secret: what for secret, what in found.items() if _is_telling(secret)} | {
        text: what for text, what in texts.items() if len(text) >= 6
    }


def _of_image(image: NDArray[Any], file: bytes) -> dict[bytes, str]:
    """Return the part of an image that varies most, in the encodings of a network, and the middle of its file."""
    found = {file[-36:-12]: "a part of an image's file"}
    scaled = image.ravel() / 255.0
    for what, values in (("pixels", image.ravel()), ("pixels / 255", scaled), ("normalised", (scaled - 0.5) / 0.25)):
        kinds = (np.uint8,) if what == "pixels" else (np.float32, np.float64)
        for kind in kinds:
            encoded = values.astype(kind).tobytes()
            step = np.dtype(kind).itemsize
            starts = range(0, len(encoded) - 15, step)
            best = max(starts, key=lambda at, encoded=encoded: len(set(encoded[at : at + 8])))  # type: ignore[misc]
            found[encoded[best : best + 16]] = f"{what}, {np.dtype(kind).name}"
    return {secret: what for secret, what in found.items() if _is_telling(secret)}


def _is_telling(secret: bytes) -> bool:
    return len(set(secret[:8])) >= _LEAST_DISTINCT


def searched(stream: bytes, secrets: dict[bytes, str]) -> dict[bytes, str]:
    """Return which of the secrets, of four bytes at least each, are in a stream of bytes.

    Their first bytes are compared with those at all places at once, as integers.
    """
    found: dict[bytes, str] = {}
    by_length = defaultdict[int, dict[int, list[bytes]]](lambda: defaultdict(list))
    for secret in secrets:
        length = min(8, len(secret))
        by_length[length][int.from_bytes(secret[:length], "little")].append(secret)
    data = np.frombuffer(stream, np.uint8)
    for length, starts in by_length.items():
        windows = np.zeros(max(0, data.size - length + 1), np.uint64)
        for place in range(length):
            windows |= data[place : place + windows.size].astype(np.uint64) << np.uint64(8 * place)
        for at in np.flatnonzero(np.isin(windows, np.array([*starts], np.uint64))).tolist():
            for secret in starts[int(windows[at])]:
                if stream.startswith(secret, at):
                    found[secret] = secrets[secret]
    return found
