"""A plug-in of networks for images of 8×8 in ten classes."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import linear


def build() -> nn.Module:
    """Return a network of two layers with a norm between them."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 10))


class Transposed(nn.Module):
    """Encodes by a matrix and decodes by its transpose, which no layer's call shows."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(64, 5), nn.Linear(64, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        code = self.encoder(inputs.flatten(1)).tanh()
        return linear(linear(code, self.encoder.weight.T), self.head.weight, self.head.bias)


def transposed() -> nn.Module:
    """Return a network that uses weights without calling their layers."""
    return Transposed()


def nine() -> nn.Module:
    """Return a network for nine classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))


def normed() -> nn.Module:
    """Return a network with running statistics."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))


def top2(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the share of samples whose class has one of the two largest outputs."""
    return (outputs.topk(2).indices == targets[:, None]).any(dim=1).double().mean()
