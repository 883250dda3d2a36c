"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017): 60,000 and 10,000 images of 28×28, ten classes.

Both come as the same four idx files; see `image_files` for where they are looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from seedbus.models.data.image_files import read_images
from seedbus.models.images.task import Images, ImageTask

if TYPE_CHECKING:
    from torch import nn

_Model = Literal["softmax", "mnist-cnn", "fashion-cnn"]
_DIMENSIONS: dict[_Model, int] = {"softmax": 7_850, "mnist-cnn": 28_938, "fashion-cnn": 1_206_590}
_DESCRIPTION = "softmax regression (7,850 parameters), or a CNN of 28,938 or 1,206,590"


class MnistTask(ImageTask, frozen=True):
    """What the two sets share."""

    model: _Model = Field("mnist-cnn", description=_DESCRIPTION)

    hub: ClassVar[str]
    """The data set's name on the Hugging Face hub."""
    mean: ClassVar[float]
    deviation: ClassVar[float]

    @property
    def dimension(self) -> int:
        return _DIMENSIONS[self.model]

    def network(self) -> nn.Module:
        from seedbus.models.images import networks

        match self.model:
            case "softmax":
                return networks.softmax(28 * 28, 10)
            case "mnist-cnn":
                return networks.mnist_cnn()
            case "fashion-cnn":
                return networks.fashion_cnn()

    def load(self) -> tuple[Images, Images]:
        """60,000 images to train on (validation included) and 10,000 to test on. Raises `DataError`."""
        train, test = (read_images(self.name, self.hub, split, (28, 28), classes=10) for split in ("train", "test"))
        return Images(*train), Images(*test)


class Mnist(MnistTask, frozen=True):
    """Handwritten digits, 28×28."""

    name: Literal["mnist"] = "mnist"

    hub: ClassVar[str] = "ylecun/mnist"
    mean: ClassVar[float] = 0.1307
    deviation: ClassVar[float] = 0.3081


class FashionMnist(MnistTask, frozen=True):
    """Articles of clothing, 28×28."""

    name: Literal["fashion-mnist"] = "fashion-mnist"
    model: _Model = Field("fashion-cnn", description=_DESCRIPTION)

    hub: ClassVar[str] = "zalando-datasets/fashion_mnist"
    mean: ClassVar[float] = 0.2860
    deviation: ClassVar[float] = 0.3530
