"""Handwritten digits, 1,797 images of 8×8 (UCI, as bundled with scikit-learn): real data without a download.

The set has no test split of its own. **Ours**: 297 images are the test set, the same ones for every seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbus.models.data.samples import Images
from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.models.images.task import ImageTask
from seedbus.models.own_code.named import function_or

if TYPE_CHECKING:
    from torch import nn

_DIMENSIONS = {"softmax": 650, "cnn": 1_898}
_TEST_SAMPLES = 297


class Digits(ImageTask, frozen=True):
    """8×8 handwritten digits: seconds on a laptop, no download."""

    name: Literal["digits"] = "digits"
    model: Annotated[Any, *function_or(*_DIMENSIONS)] = Field(
        "cnn", description="softmax regression, a CNN of 1,898 parameters, or your own network"
    )

    white: ClassVar[int] = 16
    mean: ClassVar[float] = 0.305
    deviation: ClassVar[float] = 0.376
    shape: ClassVar[tuple[int, int, int]] = (8, 8, 1)
    published_names: ClassVar[Sequence[str]] = "0123456789"

    @property
    def our_dimension(self) -> int:
        return _DIMENSIONS[self.model]

    def network(self) -> nn.Module:
        from seedbus.models.images import networks

        return networks.digits_cnn() if self.model == "cnn" else networks.softmax(64, 10)

    def load(self) -> tuple[Images, Images]:
        """Return 1,500 training images (validation included) and 297 test images. Raises `DataError`."""
        table = _table()
        images = Images(table[:, :-1].reshape(-1, 8, 8, 1).astype(np.uint8), table[:, -1].astype(np.int64))
        order = generator("test", self.name).permutation(images.labels.size)
        return images.take(np.sort(order[_TEST_SAMPLES:])), images.take(np.sort(order[:_TEST_SAMPLES]))


def _table() -> NDArray[np.float64]:
    """Return the contents of scikit-learn's file, [1797, 65]: 64 pixels from 0 to 16, and the digit.

    The file is read directly, because importing scikit-learn takes longer than importing torch.

    Raises:
        DataError: scikit-learn or its file is missing.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError("task digits", "no scikit-learn", '`pip install "seedbus[digits]"`')
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not file.is_file():
        raise DataError("task digits", f"no {file}", "the file that is part of scikit-learn")
    return np.loadtxt(file, delimiter=",")
