"""ResNet-18 (He et al. 2016) for images of 32×32: a 3×3 stem without pooling, and group norms of two groups.

Group norms replace batch norms (Hsieh et al. 2020), as in FedACG (Kim et al. 2024), because batch statistics would be
state that no algorithm advances. The stages are stem, layer1 to layer4, pool, flatten and head; the inputs of the head
are the 512 features.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn
from torch.nn.functional import relu

_GROUPS = 2


class Block(nn.Module):
    """A residual block: two 3×3 convolutions and a shortcut, which is a 1×1 convolution if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, outputs, 3, stride)
        self.norm1 = nn.GroupNorm(_GROUPS, outputs)
        self.conv2 = _conv(outputs, outputs, 3, 1)
        self.norm2 = nn.GroupNorm(_GROUPS, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(_conv(inputs, outputs, 1, stride)).append(nn.GroupNorm(_GROUPS, outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """[b, inputs, height, width] → [b, outputs, height / stride, width / stride]."""
        residual = self.norm2(self.conv2(relu(self.norm1(self.conv1(inputs)))))
        return relu(residual + self.shortcut(inputs))


def resnet18(classes: int, channels: int = 3) -> nn.Module:
    """Return a network of 11,168,832 + 513 × classes parameters; 576 fewer for each channel less."""
    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(
                OrderedDict(conv=_conv(channels, 64, 3, 1), norm=nn.GroupNorm(_GROUPS, 64), relu=nn.ReLU()),
            ),
            layer1=nn.Sequential(Block(64, 64, 1), Block(64, 64, 1)),
            layer2=nn.Sequential(Block(64, 128, 2), Block(128, 128, 1)),
            layer3=nn.Sequential(Block(128, 256, 2), Block(256, 256, 1)),
            layer4=nn.Sequential(Block(256, 512, 2), Block(512, 512, 1)),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=nn.Linear(512, classes),
        )
    )


def _conv(inputs: int, outputs: int, kernel_size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size, stride=stride, padding=kernel_size // 2, bias=False)
