"""Handwritten digits, 1,797 images of 8×8 (UCI, as bundled with scikit-learn): real data that nothing has to fetch.

The set has no test split of its own. **Ours**: 297 images, the same in every run whatever the seed, are the test set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from seedbus.models.image_task import Images, ImageTask
from seedbus.models.streams import stream

if TYPE_CHECKING:
    from torch import nn

_DIMENSIONS = {"softmax": 650, "cnn": 1_898}
_TEST_SAMPLES = 297


class Digits(ImageTask, frozen=True):
    """8×8 handwritten digits: seconds on a laptop, no download."""

    name: Literal["digits"] = "digits"
    model: Literal["softmax", "cnn"] = Field("cnn", description="softmax regression, or a CNN of 1,898 parameters")

    white: ClassVar[int] = 16
    mean: ClassVar[float] = 0.305
    deviation: ClassVar[float] = 0.376

    @property
    def dimension(self) -> int:
        return _DIMENSIONS[self.model]

    def network(self) -> nn.Module:
        from seedbus.models import networks

        return networks.digits_cnn() if self.model == "cnn" else networks.softmax(64, 10)

    def load(self) -> tuple[Images, Images]:
        """1,500 images to train on (validation included) and 297 to test on."""
        from sklearn.datasets import load_digits

        bundle = load_digits()
        images = Images(bundle.images[..., None].astype(np.uint8), bundle.target.astype(np.int64))
        order = stream("test", self.name).permutation(images.labels.size)
        return images.take(np.sort(order[_TEST_SAMPLES:])), images.take(np.sort(order[:_TEST_SAMPLES]))
