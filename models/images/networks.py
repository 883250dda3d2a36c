"""The small networks: images [b, channels, height, width], or texts [b, length] → logits [b, classes].

Each is a sequence of named layers that ends in `head`; the inputs of the head are the features.

`mnist_cnn` and `fashion_cnn` are the networks of DeComFL's experiments (Li et al. 2025); the latter keeps its 62
outputs, though ten classes are used. `digits_cnn` is ours: few enough parameters for zeroth-order learning.

Pooling comes before ReLU. The result is the same, because two maxima commute, and ReLU then works on a quarter of the
values. ReLU works in place, because new pages of memory cost more than the computation.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from seedbus.models.images.resnet import resnet18


def softmax(pixels: int, classes: int) -> nn.Module:
    """Softmax regression: (pixels + 1) × classes parameters, and a convex loss."""
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=nn.Linear(pixels, classes)))


def perceptron(*widths: int) -> nn.Module:
    """A multilayer perceptron with ReLU, for inputs [b, numbers].

    Args:
        widths: of the inputs, the hidden layers and the outputs.
    """
    *hidden, outputs = widths
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, (before, after) in enumerate(pairwise(hidden), start=1):
        layers |= {f"hidden{number}": nn.Linear(before, after), f"relu{number}": nn.ReLU()}
    return nn.Sequential(layers | {"head": nn.Linear(hidden[-1], outputs)})


def digits_cnn() -> nn.Module:
    """For 8×8 images and ten classes: 1,898 parameters."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 8, 3, padding=1),
            pool1=MaxPool2x2(),
            relu1=nn.ReLU(inplace=True),
            conv2=nn.Conv2d(8, 16, 3, padding=1),
            pool2=MaxPool2x2(),
            relu2=nn.ReLU(inplace=True),
            flatten=nn.Flatten(),
            head=nn.Linear(16 * 2 * 2, 10),
        )
    )


def mnist_cnn(channels: int = 1, side: int = 28, classes: int = 10) -> nn.Module:
    """For square images; 28,938 parameters for 28×28 pixels in one channel and ten classes."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 16, 5, padding=2),
            pool1=MaxPool2x2(),
            relu1=nn.ReLU(inplace=True),
            conv2=nn.Conv2d(16, 32, 5, padding=2),
            pool2=MaxPool2x2(),
            relu2=nn.ReLU(inplace=True),
            flatten=nn.Flatten(),
            head=nn.Linear(32 * (side // 4) ** 2, classes),
        )
    )


def lenet() -> nn.Module:
    """For 28×28 images and ten classes: 44,426 parameters, as in NIID-Bench (Li et al. 2022, arXiv:2102.02079, §V)."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 6, 5),
            pool1=MaxPool2x2(),
            relu1=nn.ReLU(inplace=True),
            conv2=nn.Conv2d(6, 16, 5),
            pool2=MaxPool2x2(),
            relu2=nn.ReLU(inplace=True),
            flatten=nn.Flatten(),
            hidden1=nn.Linear(16 * 4 * 4, 120),
            relu3=nn.ReLU(inplace=True),
            hidden2=nn.Linear(120, 84),
            relu4=nn.ReLU(inplace=True),
            head=nn.Linear(84, 10),
        )
    )


def fashion_cnn() -> nn.Module:
    """For 28×28 images and up to 62 classes: 1,206,590 parameters."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 32, 3),
            relu1=nn.ReLU(inplace=True),
            conv2=nn.Conv2d(32, 64, 3),
            pool=MaxPool2x2(),
            relu2=nn.ReLU(inplace=True),
            flatten=nn.Flatten(),
            hidden=nn.Linear(64 * 12 * 12, 128),
            relu3=nn.ReLU(inplace=True),
            head=nn.Linear(128, 62),
        )
    )


def leaf_cnn(channels: int = 1, side: int = 28, classes: int = 62) -> nn.Module:
    """LEAF's CNN of two layers (Caldas et al. 2019): 6,603,710 parameters for 28×28 pixels, one channel, 62 classes."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 32, 5, padding=2),
            relu1=nn.ReLU(),
            pool1=MaxPool2x2(),
            conv2=nn.Conv2d(32, 64, 5, padding=2),
            relu2=nn.ReLU(),
            pool2=MaxPool2x2(),
            flatten=nn.Flatten(),
            hidden=nn.Linear(64 * (side // 4) ** 2, 2048),
            relu3=nn.ReLU(),
            head=nn.Linear(2048, classes),
        )
    )


def of_squares(model: str, channels: int, side: int, classes: int) -> nn.Module:
    """Return the network with this name in a scenario, for square images; ResNet-18 if it is none of the others."""
    match model:
        case "softmax":
            return softmax(channels * side**2, classes)
        case "mnist-cnn":
            return mnist_cnn(channels, side, classes)
        case "leaf-cnn":
            return leaf_cnn(channels, side, classes)
        case _:
            return resnet18(classes, channels)


def character_lstm(symbols: int) -> nn.Module:
    """LEAF's stacked LSTM: texts [b, length] → logits of the next symbol; 819,920 parameters for 80 symbols.

    LEAF's own in TensorFlow has 2,048 parameters fewer: its cells have one bias, PyTorch's have two.
    """
    return nn.Sequential(
        OrderedDict(
            embedding=nn.Embedding(symbols, 8),
            lstm=nn.LSTM(8, 256, num_layers=2, batch_first=True),
            last=LastOutput(),
            head=nn.Linear(256, symbols),
        )
    )


class LastOutput(nn.Module):
    """The output of a recurrent layer after the last symbol: [b, length, hidden] → [b, hidden]."""

    def forward(self, returned: tuple[Tensor, object]) -> Tensor:
        return returned[0][:, -1]


class MaxPool2x2(nn.Module):
    """Max pooling over 2×2 blocks: [b, channels, height, width] → [b, channels, height // 2, width // 2].

    Without gradients it is computed as two maxima, with the same bits: torch's kernel also stores the position of each
    maximum, which takes up to 2.5 times as long. With gradients torch's kernel is used, because two maxima would split
    the gradient between equal values.
    """

    def forward(self, images: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return max_pool2d(images, 2)
        height, width = (2 * (size // 2) for size in images.shape[2:])
        rows = torch.maximum(images[:, :, 0:height:2], images[:, :, 1:height:2])
        return torch.maximum(rows[..., 0:width:2], rows[..., 1:width:2])
