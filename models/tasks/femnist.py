"""FEMNIST (Caldas et al. 2019): handwritten characters of 62 classes, 28×28, with their writers.

Read from LEAF's JSON in $SEEDBUS_DATA/leaf-femnist/ (see `leaf`): 784 numbers from 0 (ink) to 1 (paper), which
are multiples of 1/255. With `partition: natural` each client is a writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.data.leaf import read_leaf
from seedbus.models.data.samples import Images
from seedbus.models.images.task import ImageTask
from seedbus.models.own_code.named import function_or

if TYPE_CHECKING:
    from torch import nn

_CLASSES, _SIDE = 62, 28
_DIMENSIONS = {"leaf-cnn": 6_603_710, "fashion-cnn": 1_206_590, "softmax": 48_670}


class Femnist(ImageTask, frozen=True):
    """Handwritten digits and letters, 28×28, by writer (LEAF)."""

    name: Literal["femnist"] = "femnist"
    model: Annotated[Any, *function_or(*_DIMENSIONS)] = Field(
        "leaf-cnn",
        description="LEAF's CNN of two layers (6,603,710 parameters), a CNN of 1,206,590, softmax regression (48,670), "
        "or your own network",
    )

    has_owners: ClassVar[bool] = True
    mean: ClassVar[float] = 0.9615
    deviation: ClassVar[float] = 0.1643
    shape: ClassVar[tuple[int, int, int]] = (_SIDE, _SIDE, 1)
    published_names: ClassVar[Sequence[str]] = digits + ascii_uppercase + ascii_lowercase

    @property
    def our_dimension(self) -> int:
        return _DIMENSIONS[self.model]

    def network(self) -> nn.Module:
        from seedbus.models.images import networks

        match self.model:
            case "leaf-cnn":
                return networks.leaf_cnn()
            case "fashion-cnn":
                return networks.fashion_cnn()
            case _:
                return networks.softmax(_SIDE**2, _CLASSES)

    def load(self) -> tuple[Images, Images]:
        """Return all writers' training images (validation included) and test images. Raises `DataError`."""
        return read_leaf("leaf-femnist", 4, _encode)


def _encode(x: list[Any], y: list[Any]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return a user's pixels, uint8 [n, 28, 28, 1], and labels, uint8 [n]."""
    try:
        brightness, labels = np.asarray(x, dtype=np.float64), np.asarray(y)
    except (ValueError, TypeError, OverflowError):
        brightness, labels = np.empty(0), np.empty(0)
    if brightness.shape != (len(y), _SIDE**2) or not ((brightness >= 0) & (brightness <= 1)).all():
        raise ValueError(f"an image; {_SIDE**2} numbers from 0 to 1")
    if labels.shape != (len(y),) or labels.dtype.kind != "i" or labels.min() < 0 or labels.max() >= _CLASSES:
        raise ValueError(f"a label; whole numbers from 0 to {_CLASSES - 1}")
    return np.rint(brightness * 255).astype(np.uint8).reshape(-1, _SIDE, _SIDE, 1), labels.astype(np.uint8)
