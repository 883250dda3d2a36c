"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017): 60,000 and 10,000 images of 28×28, ten classes.

Both have the same four idx files; `models/data/image_files.py` looks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from seedbus.models.images.mnist_task import MNIST_NETWORK, NETWORKS, MnistTask


class Mnist(MnistTask, frozen=True):
    """Handwritten digits, 28×28."""

    name: Literal["mnist"] = "mnist"

    hub: ClassVar[str] = "ylecun/mnist"
    mean: ClassVar[float] = 0.1307
    deviation: ClassVar[float] = 0.3081
    published_names: ClassVar[Sequence[str]] = "0123456789"


class FashionMnist(MnistTask, frozen=True):
    """Articles of clothing, 28×28."""

    name: Literal["fashion-mnist"] = "fashion-mnist"
    model: Annotated[Any, *MNIST_NETWORK] = Field("fashion-cnn", description=NETWORKS)

    hub: ClassVar[str] = "zalando-datasets/fashion_mnist"
    mean: ClassVar[float] = 0.2860
    deviation: ClassVar[float] = 0.3530
    published_names: ClassVar[Sequence[str]] = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"
    )  # fmt: skip
