"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009): 50,000 and 10,000 colour images of 32×32, ten and a hundred classes.

They are read from the official binary version, unpacked in a directory of SEEDBUS_DATA: `cifar-10-batches-bin/` with
`data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`, and `cifar-100-binary/` with `train.bin` and `test.bin`.
A file is a sequence of records: the label (in CIFAR-100 coarse and fine label, of which the fine one is used) and 3 ×
1,024 bytes, red, green and blue. The first process that needs a set writes it into the cache with channels last, and
all processes map it from there.

Augmentation is a random crop of the image in a black frame of four pixels, and random mirroring. FedACG's paper (Kim et
al. 2024) describes none; its authors' code crops and mirrors in this way, and also rotates images by up to 10 degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.data.prepared import Arrays, data_folder, prepared
from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.images.augmentation import PixelsT, cropped
from seedbus.models.images.task import ImageTask
from seedbus.models.own_code.named import function_or

if TYPE_CHECKING:
    from torch import nn

SIDE, FRAME = 32, 4  # pixels
_SOURCE = "the binary version from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked"

_FINE = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
""".split()


class CifarTask(ImageTask, frozen=True):
    """The common part of the two tasks."""

    model: Annotated[Any, *function_or("resnet-18", "softmax")] = Field(
        "resnet-18", description="ResNet-18 with group norms, softmax regression, or your own network"
    )
    augmentation: Literal["none", "crop-flip"] = Field(
        "crop-flip", description="of training batches: none, or random crops and mirroring"
    )

    shape: ClassVar[tuple[int, int, int]] = (SIDE, SIDE, 3)
    folder: ClassVar[str]
    files: ClassVar[dict[str, tuple[str, ...]]]
    """The names of the files by split."""
    label_bytes: ClassVar[int]
    """Label bytes at the start of a record; the last one is used."""
    classes: ClassVar[int]

    @property
    def our_dimension(self) -> int:
        if self.model == "softmax":
            return (3 * SIDE**2 + 1) * self.classes
        return 11_168_832 + 513 * self.classes

    def network(self) -> nn.Module:
        from seedbus.models.images import networks, resnet

        return networks.softmax(3 * SIDE**2, self.classes) if self.model == "softmax" else resnet.resnet18(self.classes)

    def load(self) -> tuple[Images, Images]:
        """Return 50,000 training images (validation included) and 10,000 test images. Raises `DataError`."""
        return self._split("train"), self._split("test")

    def augmented(self, stored: PixelsT, *, seed: int, client: int, round: int, step: int) -> PixelsT:
        """Return the batch [b, 32, 32, 3], each image cropped from its black frame and mirrored with probability ½."""
        if self.augmentation == "none":
            return stored
        count = len(stored)  # type: ignore[arg-type]
        rng = generator("augmentation", seed, client, round, step)
        tops, lefts = rng.integers(0, 2 * FRAME + 1, (2, count))
        mirrored = rng.integers(0, 2, count).astype(bool)
        rows, columns = tops[:, None] + np.arange(SIDE), lefts[:, None] + np.arange(SIDE)
        columns[mirrored] = columns[mirrored, ::-1]
        return cropped(stored, FRAME, rows, columns)

    def _split(self, split: str) -> Images:
        paths = [data_folder(self.folder, _SOURCE) / name for name in self.files[split]]
        for path in paths:
            if not path.is_file():
                raise DataError(path, "no such file", _SOURCE)
        arrays = prepared(f"{self.name} 1", paths, {"pixels": 4, "labels": 1}, lambda: self._parse(paths))
        return Images(arrays["pixels"], arrays["labels"].astype(np.int64))

    def _parse(self, paths: list[Path]) -> Arrays:
        records = np.concatenate([self._records(path) for path in paths])
        planes = records[:, self.label_bytes :].reshape(-1, 3, SIDE, SIDE)
        return {
            "pixels": np.ascontiguousarray(planes.transpose(0, 2, 3, 1)),
            "labels": records[:, self.label_bytes - 1],
        }

    def _records(self, path: Path) -> NDArray[np.uint8]:
        """Return the records of a file, uint8 [n, bytes of a record]. Raises `DataError`."""
        size = self.label_bytes + 3 * SIDE**2
        try:
            content = np.fromfile(path, dtype=np.uint8)
        except OSError as error:
            raise DataError(path, f"a file that cannot be read ({error.strerror})", "a readable file") from error
        if content.size == 0 or content.size % size:
            raise DataError(path, f"{content.size} bytes", f"records of {size} bytes, at least one")
        records = content.reshape(-1, size)
        labels = records[:, self.label_bytes - 1]
        beyond = np.flatnonzero(labels >= self.classes)
        if beyond.size:
            raise DataError(path, f"label {labels[beyond[0]]} at sample {beyond[0]}", f"labels 0 to {self.classes - 1}")
        return records


class Cifar10(CifarTask, frozen=True):
    """Ten kinds of animals and vehicles in colour, 32×32."""

    name: Literal["cifar-10"] = "cifar-10"

    folder: ClassVar[str] = "cifar-10-batches-bin"
    files: ClassVar[dict[str, tuple[str, ...]]] = {
        "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        "test": ("test_batch.bin",),
    }
    label_bytes: ClassVar[int] = 1
    classes: ClassVar[int] = 10
    published_names: ClassVar[Sequence[str]] = (
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"
    )  # fmt: skip
    mean: ClassVar[tuple[float, ...]] = (0.4914, 0.4822, 0.4465)
    deviation: ClassVar[tuple[float, ...]] = (0.2470, 0.2435, 0.2616)


class Cifar100(CifarTask, frozen=True):
    """A hundred kinds of things in colour, 32×32; the fine labels."""

    name: Literal["cifar-100"] = "cifar-100"

    folder: ClassVar[str] = "cifar-100-binary"
    files: ClassVar[dict[str, tuple[str, ...]]] = {"train": ("train.bin",), "test": ("test.bin",)}
    label_bytes: ClassVar[int] = 2
    classes: ClassVar[int] = 100
    published_names: ClassVar[Sequence[str]] = _FINE
    mean: ClassVar[tuple[float, ...]] = (0.5071, 0.4865, 0.4409)
    deviation: ClassVar[tuple[float, ...]] = (0.2673, 0.2564, 0.2762)
