"""Images in folders of the user's own: one folder for each class, as PNG or JPEG files.

Either FOLDER/train/CLASS/ and FOLDER/test/CLASS/, or FOLDER/CLASS/ and a fraction that is the test set. Classes are
numbered in the order of their names. An image is turned as its camera says, converted to eight bits a channel, and
resized to a square (bilinear; its proportions are not kept). Files with other endings are passed over.

The first process that needs a folder writes the pixels into the cache, and all processes map them from there. Decoders
may differ in the last bit, so the version of Pillow is part of the cache's key, and processes prove their pixels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.models.data.prepared import prepared
from seedbus.models.data.samples import Images
from seedbus.models.data.untrusted import check_sides, regular
from seedbus.models.errors import DataError
from seedbus.models.generators import generator

if TYPE_CHECKING:
    from PIL import Image

MODELS = ("softmax", "mnist-cnn", "leaf-cnn", "resnet-18")
"""The networks of ours for such images."""
LEAST_SIZE = 4
"""The least pixels of a side: of fewer some of these networks leave none."""
_ENDINGS = (".png", ".jpg", ".jpeg")
_CLASSES = "a folder of .png or .jpg files for each class"
_LAYOUT = f"folders train/ and test/ with {_CLASSES}, or such folders alone"
_DEEP = ("I", "F")  # the first letter of Pillow's modes with more than eight bits a channel


class Folder(NamedTuple):
    """The images of a folder.

    Attributes:
        train: the training images, validation included.
        test: the test images.
        mean: the mean brightness of the training images by channel, from 0 (black) to 1.
        deviation: the standard deviation of the same; 1 where it is zero.
        files: the path of each stored image within the folder.
    """

    train: Images
    test: Images
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    files: list[str]


def classes_in(folder: Path) -> list[str]:
    """Return the names of the classes, sorted. Raises `DataError` if there are less than two."""
    within = folder / "train" if _is_split(folder) else folder
    try:
        names = sorted(path.name for path in within.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise DataError(within, f"a folder that cannot be read ({error.strerror})", _LAYOUT) from None
    if len(names) < 2:
        raise DataError(within, f"{len(names)} folders of classes", f"two classes at least: {_LAYOUT}")
    return names


def read_folder(folder: Path, *, size: int, channels: int, test: float, name: str) -> Folder:
    """Return the images of a folder.

    Args:
        folder: the folder.
        size: height and width that images are resized to, in pixels.
        channels: 1 for grey, 3 for red, green and blue.
        test: the fraction that is the test set if the folder is not split.
        name: the task's name, which keys the draw of this fraction.

    Raises:
        DataError: a class has no images, a file is no image, or Pillow is missing.
    """
    splits = ("train", "test") if _is_split(folder) else ("",)
    classes = classes_in(folder)
    found = [_files(folder / split, classes) for split in splits]
    files = [file for each in found for file in each]
    labels = np.array([classes.index(file.parent.name) for file in files], dtype=np.int64)
    if len(splits) == 2:
        is_test = np.arange(len(files)) >= len(found[0])
    else:
        is_test = np.zeros(len(files), dtype=bool)
        is_test[generator("test", name).permutation(len(files))[: max(1, round(test * len(files)))]] = True
    missing = np.setdiff1d(np.arange(len(classes)), labels[~is_test])
    if missing.size:
        where, what = folder / classes[missing[0]], "no image of the class in the training part"
        raise DataError(where, what, "more images of it, a smaller task.test, or folders train/ and test/")
    recipe = f"image-folder 1 {size} {channels} {_pillow_version()}"
    pixels = prepared(recipe, files, {"pixels": 4}, lambda: {"pixels": decoded(files, size, channels)})["pixels"]
    train, tested = (Images(pixels, labels[rows], rows) for rows in map(np.flatnonzero, (~is_test, is_test)))
    mean, deviation = _moments(train)
    return Folder(train, tested, mean, deviation, [file.relative_to(folder).as_posix() for file in files])


def read_classes(folder: Path, classes: Sequence[str], size: int, channels: int) -> Images:
    """Return all images of an owner's folder, which has folders of some of these classes; nothing is cached.

    Args:
        folder: with CLASS/ for each class that the owner has.
        classes: the names of classes 0, 1, …
        size: height and width that images are resized to, in pixels.
        channels: 1 for grey, 3 for red, green and blue.

    Raises:
        DataError: a folder is none of these classes, or a file is no image.
    """
    if not folder.is_dir():
        raise DataError(folder, "no folder", f"a folder with {_CLASSES}")
    _pillow_version()
    files = _files(folder, classes, "the scenario does", _CLASSES)
    labels = np.array([classes.index(file.parent.name) for file in files], dtype=np.int64)
    return Images(decoded(files, size, channels), labels)


def _is_split(folder: Path) -> bool:
    return (folder / "train").is_dir() and (folder / "test").is_dir()


def _files(
    folder: Path, classes: Sequence[str], whose: str = "the training images do", layout: str = _LAYOUT
) -> list[Path]:
    """Return the images of all classes in a folder, by class and name.

    Args:
        folder: the folder.
        classes: their names.
        whose: the classes are, in words.
        layout: what is expected of the folder, in words.

    Raises:
        DataError: there are none, or a folder is of another class.
    """
    files = []
    for within in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        if within.name not in classes:
            raise DataError(within, f"a class that {whose} not have", f"one of {', '.join(classes)}")
        images = sorted(path for path in within.iterdir() if path.suffix.lower() in _ENDINGS)
        if not images:
            raise DataError(within, "no images", f"a file at least that ends in {', '.join(_ENDINGS)}")
        files += images
    if not files:
        raise DataError(folder, "no folders of classes", layout)
    return files


def _pillow_version() -> str:
    try:
        import PIL
    except ImportError:
        raise DataError("task image-folder", "no package pillow", 'pip install "seedbus[images]"') from None
    return str(PIL.__version__)


def decoded(files: Sequence[Path], size: int, channels: int) -> NDArray[np.uint8]:
    """Return the pixels of image files, resized, uint8 [n, size, size, channels]. Raises `DataError`."""
    pixels = np.empty((len(files), size, size, channels), dtype=np.uint8)
    for place, file in zip(pixels, files, strict=True):
        place[:] = _image(file, size, channels)
    return pixels


def _image(file: Path, size: int, channels: int) -> NDArray[np.uint8]:
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged notes beside the pixels
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(regular(file), formats=("PNG", "JPEG")) as opened:
                check_sides(*opened.size)
                _check_depth(opened, file)
                turned = ImageOps.exif_transpose(opened).convert("L" if channels == 1 else "RGB")
        resized = turned.resize((size, size), Image.Resampling.BILINEAR)
    except DataError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(file, "an image of too many pixels", f"at most {Image.MAX_IMAGE_PIXELS} pixels") from None
    except MemoryError:
        raise
    except Exception as error:  # for damaged files Pillow raises many unrelated types
        why = (str(error).splitlines() or [type(error).__name__])[0].replace(str(file), file.name)[:200]
        raise DataError(file, f"an image that cannot be read ({why})", "an image as PNG or JPEG") from None
    return np.asarray(resized, dtype=np.uint8).reshape(size, size, channels)


def _check_depth(image: Image.Image, file: Path) -> None:
    if image.mode.startswith(_DEEP):
        raise DataError(file, f"pixels of Pillow's mode {image.mode}", "an image of eight bits a channel")


def _moments(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, from 0 to 1; sums of 256 terms that are rounded once."""
    levels = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(images.stored.shape[-1]):
        counts = np.zeros(256, dtype=np.int64)
        for start in range(0, images.labels.size, 4096):
            rows = np.arange(start, min(start + 4096, images.labels.size))
            counts += np.bincount(images.pick(rows)[..., channel].ravel(), minlength=256)
        mean = math.fsum((counts * levels).tolist()) / int(counts.sum())
        found = levels[counts > 0].tolist()
        mean = min(max(mean, found[0]), found[-1])  # where all pixels are equal, the rounded mean may not be
        variance = math.fsum((counts * (levels - mean) ** 2).tolist()) / int(counts.sum())
        means.append(mean)
        deviations.append(math.sqrt(variance) or 1.0)
    return tuple(means), tuple(deviations)
