"""The base of the tasks MNIST and Fashion-MNIST: their files, sizes and networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from seedbus.models.data.image_files import read_images
from seedbus.models.data.samples import Images
from seedbus.models.images.task import ImageTask
from seedbus.models.own_code.named import function_or

if TYPE_CHECKING:
    from torch import nn

_DIMENSIONS = {"softmax": 7_850, "mnist-cnn": 28_938, "lenet": 44_426, "fashion-cnn": 1_206_590}
MNIST_NETWORK = function_or(*_DIMENSIONS)
NETWORKS = "softmax regression (7,850 parameters), a CNN of 28,938, 44,426 or 1,206,590, or your own network"


class MnistTask(ImageTask, frozen=True):
    """The base of `Mnist` and `FashionMnist`."""

    model: Annotated[Any, *MNIST_NETWORK] = Field("mnist-cnn", description=NETWORKS)

    hub: ClassVar[str]
    """The data set's name on the Hugging Face hub."""
    mean: ClassVar[float]
    deviation: ClassVar[float]
    shape: ClassVar[tuple[int, int, int]] = (28, 28, 1)

    @property
    def our_dimension(self) -> int:
        return _DIMENSIONS[self.model]

    def network(self) -> nn.Module:
        from seedbus.models.images import networks

        match self.model:
            case "softmax":
                return networks.softmax(28 * 28, 10)
            case "mnist-cnn":
                return networks.mnist_cnn()
            case "lenet":
                return networks.lenet()
            case _:
                return networks.fashion_cnn()

    def load(self) -> tuple[Images, Images]:
        """Return 60,000 training images (validation included) and 10,000 test images. Raises `DataError`."""
        train, test = (read_images(self.name, self.hub, split, (28, 28), classes=10) for split in ("train", "test"))
        return Images(*train), Images(*test)
