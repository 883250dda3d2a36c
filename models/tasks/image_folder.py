"""Images of the user's own, in a folder for each class: see `images/folder.py`.

Pixels are normalised by mean and deviation of the training images, by channel; those of `partition: own` to
(brightness − 0.5) / 0.25. A table beside the folder may say who
owns each image. A process proves its pixels, and who holds them, when it joins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from seedbus.capabilities import Fact, RulesOut, Statement
from seedbus.models.data.roots import find, locate, public_or_none
from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.images.folder import LEAST_SIZE, MODELS, Folder, classes_in, read_classes, read_folder
from seedbus.models.images.task import ImageTask
from seedbus.models.own_code.named import function_or
from seedbus.models.partition import Division, Partition
from seedbus.models.partitions.own import SPECIMENS
from seedbus.models.spelling import spelled_alike
from seedbus.models.tables.owners import owners_of
from seedbus.models.task import Problem

if TYPE_CHECKING:
    from torch import nn

STATED_MEAN, STATED_DEVIATION = 0.5, 0.25
"""Of pixels from 0 to 1 that owners have, in the place of what nobody may measure."""
ClassName = Annotated[str, Field(pattern=r"^[^./\\]", max_length=255)]


class ImageFolder(ImageTask, frozen=True):
    """Images of the user's own: PNG or JPEG files, in a folder for each class."""

    has_owners: ClassVar[bool] = True
    own_data: ClassVar[str] = "folder"
    public_files: ClassVar[tuple[str, ...]] = ("folder",)

    name: Literal["image-folder"] = "image-folder"
    classes: tuple[ClassName, ...] | None = Field(
        None, min_length=2, description="for `partition: own`: the names of the classes' folders that owners may have"
    )
    folder: str | None = Field(
        None,
        min_length=1,
        description="with train/CLASS/ and test/CLASS/, or CLASS/ alone: beside the scenario, or in SEEDBUS_DATA; with "
        "`classes` a public test set, or none",
    )
    owners: str | None = Field(
        None,
        min_length=1,
        description="a CSV or Parquet file with the columns file (an image's path within the folder) and owner, for "
        "`partition: natural`: beside the scenario, or in SEEDBUS_DATA",
    )
    test: float = Field(
        0.2, gt=0, lt=1, description="fraction of the images that are the test set, if there are no train/ and test/"
    )
    size: int = Field(32, ge=LEAST_SIZE, le=1024, description="height and width that images are resized to, in pixels")
    colours: Literal["grey", "rgb"] = Field("rgb", description="grey: one channel; rgb: three")
    model: Annotated[Any, *function_or(*MODELS)] = Field(
        "mnist-cnn",
        description="softmax regression, a small or large CNN of two layers (mnist-cnn, leaf-cnn), ResNet-18, or your "
        "own network",
    )

    @field_validator("folder")
    @classmethod
    def _locate(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Make the path of a folder beside the scenario's file absolute. Raises as `roots.locate` does."""
        if value is None or info.data.get("classes") is None:
            return None if value is None else locate(value, info.context)
        return public_or_none(value, info.context)

    @field_validator("owners")
    @classmethod
    def _locate_owners(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Make the path of a file beside the scenario's file absolute. Raises as `roots.locate` does."""
        return None if value is None else locate(value, info.context, os.path.isfile)

    @model_validator(mode="after")
    def _check_stated(self) -> Self:
        if self.classes is None:
            if self.folder is None:
                raise ValueError("folder is missing; expected a folder of images, or classes for `partition: own`")
        elif self.owners is not None:
            raise ValueError("classes is for images that their owners have, and owners for common ones; leave one out")
        elif len(set(self.classes)) < len(self.classes):
            raise ValueError("classes has a name twice; expected each once")
        return self

    @property
    def has_stated(self) -> bool:  # type: ignore[override]  # a class variable of Task; here a field decides
        """Whether it has the names of classes in the place of a folder."""
        return self.classes is not None

    @property
    def has_test_set(self) -> bool:  # type: ignore[override]  # a class variable of Task; here a field decides
        """Whether there are common images."""
        return self.folder is not None

    def capabilities(self) -> Iterator[Statement]:
        yield from super().capabilities()
        if self.has_stated:
            yield RulesOut(Fact.COMMON, "states the classes of owners' folders", "classes")

    @property
    def test_fraction(self) -> float:
        """See `partitions.own.ReadsOwn`."""
        return self.test

    def read_own(self, place: Path) -> Images:
        """See `partitions.own.ReadsOwn`. Raises `DataError`."""
        return read_classes(place, self._classes, self.size, self._channels)

    def read_public(self) -> Images:
        """See `partitions.own.ReadsOwn`: `folder`. Raises `DataError`."""
        return self.specimens().take(np.zeros(0, np.int64)) if self.folder is None else self.read_own(self._path)

    def specimens(self) -> Images:
        """See `partitions.own.ReadsOwn`: noise, and a class after the other."""
        count = max(SPECIMENS, len(self._classes))
        draws = generator("specimens", self.name, *self.shape)
        pixels = draws.integers(0, 256, (count, *self.shape), dtype=np.uint8)
        return Images(pixels, np.arange(count, dtype=np.int64) % len(self._classes))

    @property
    def shape(self) -> tuple[int, int, int]:  # type: ignore[override]  # a class variable of ImageTask; here fields decide
        """Height, width and channels of an image."""
        return self.size, self.size, self._channels

    @property
    def our_dimension(self) -> int:
        """d, from the names of the classes' folders. Raises `DataError`."""
        classes, channels, pooled = len(self._classes), self._channels, (self.size // 4) ** 2
        match self.model:
            case "softmax":
                return (channels * self.size**2 + 1) * classes
            case "mnist-cnn":
                return (channels * 25 + 1) * 16 + (16 * 25 + 1) * 32 + (32 * pooled + 1) * classes
            case "leaf-cnn":
                convolutions = (channels * 25 + 1) * 32 + (32 * 25 + 1) * 64
                return convolutions + (64 * pooled + 1) * 2048 + 2049 * classes
            case _:
                return 11_168_832 - 64 * 9 * (3 - channels) + 513 * classes

    def network(self) -> nn.Module:
        from seedbus.models.images import networks

        return networks.of_squares(self.model, self._channels, self.size, len(self._classes))

    def load(self) -> tuple[Images, Images]:
        """Return the training images (validation included) and the test images. Raises `DataError`."""
        self.__dict__.pop("_read", None)  # the folder may have changed since an earlier run of this task
        return self._read.train, self._read.test

    def named_files(self) -> list[Path]:
        """See `task.Task`. Raises `DataError`."""
        if self.folder is None:
            return []
        return [self._path] if self.owners is None else [self._path, self._owners]

    def division(self, *, seed: int, clients: int, partition: Partition) -> Division:
        """See `task.Task`. Raises `DataError`."""
        if self.has_stated:
            raise DataError(f"partition {partition.kind}", "images that their owners have", "a common folder")
        self._check(partition)
        return super().division(seed=seed, clients=clients, partition=partition)

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """See `task.Task`. Raises `DataError`."""
        self._check(partition)
        return super().bind(seed=seed, clients=clients, partition=partition)

    def class_names(self) -> list[str]:
        """Return the names of the classes' folders. Raises `DataError`."""
        return self._classes

    def caveats(self) -> list[str]:
        """See `task.Task`. Raises `DataError`."""
        return [*super().caveats(), *spelled_alike("task.folder", self._classes)]

    @property
    def mean(self) -> tuple[float, ...]:  # type: ignore[override]  # a class variable of ImageTask; here the data decides
        """Of the training images, by channel; the middle, if owners have them. Raises `DataError`."""
        return (STATED_MEAN,) if self.has_stated else self._read.mean

    @property
    def deviation(self) -> tuple[float, ...]:  # type: ignore[override]  # as mean
        """Of the training images, by channel; as `mean`. Raises `DataError`."""
        return (STATED_DEVIATION,) if self.has_stated else self._read.deviation

    @property
    def _channels(self) -> int:
        return 1 if self.colours == "grey" else 3

    @property
    def _path(self) -> Path:
        found = find(self.folder or "")
        if found is None:
            where = "beside the scenario's file, or in a directory that SEEDBUS_DATA names"
            raise DataError("task.folder", f"no folder {self.folder}", f"a folder of images {where}")
        return found

    @property
    def _owners(self) -> Path:
        found = find(self.owners or "", os.path.isfile)
        if found is None:
            where = "beside the scenario's file, or in a directory that SEEDBUS_DATA names"
            raise DataError("task.owners", f"no file {self.owners}", f"a CSV or Parquet file {where}")
        return found

    def _check(self, partition: Partition) -> None:
        if not self.has_stated and partition.by == "owners" and self.owners is None:
            expected = "task.owners: a CSV file with the columns file and owner"
            raise DataError(f"partition {partition.kind}", f"task {self.name} without owners", expected)

    @property
    def _classes(self) -> list[str]:
        return classes_in(self._path) if self.classes is None else [*self.classes]

    @cached_property
    def _read(self) -> Folder:
        found = read_folder(self._path, size=self.size, channels=self._channels, test=self.test, name=self.name)
        if self.owners is None:
            return found
        owners, people = owners_of(found.files, self._owners, "task.owners")

        def owned(images: Images) -> Images:
            return images._replace(owners=owners[images.rows], people=people)

        return found._replace(train=owned(found.train), test=owned(found.test))
