"""One small network around every layer of torch that has parameters, with inputs for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.data import Dataset

from seedbus.models.tasks.torch_task import TorchTask

STATISTICS = {"BatchNorm1d": (4,), "BatchNorm2d": (4, 3, 3), "BatchNorm3d": (4, 2, 2, 2), "SyncBatchNorm": (4, 3, 3)}
"""Layers with running statistics, and the shape of an input."""


class Case(NamedTuple):
    """A layer, the shapes of its inputs, and how many whole numbers the inputs stand for; 0: they are fractions."""

    layer: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    words: int = 0


class Judge(nn.Module):
    """A layer whose outputs become two logits."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(2, 2)

    def forward(self, *inputs: Tensor) -> Tensor:
        outputs = self.layer(*inputs)
        outputs = (outputs[0] if isinstance(outputs, tuple) else outputs).flatten(1)
        logits: Tensor = self.head(torch.stack([outputs.mean(dim=1), outputs[:, 0] * 2], dim=1))
        return logits


class Attention(nn.MultiheadAttention):
    def forward(self, inputs: Tensor) -> Any:  # type: ignore[override]
        return super().forward(inputs, inputs, inputs)


class Bare(nn.Module):
    """Parameters that are in no layer, one of them of four dimensions, and a list and a mapping of more."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(4))
        self.grid = nn.Parameter(torch.rand(1, 2, 2, 1))
        self.more = nn.ParameterList([torch.rand(4), torch.rand(1)])
        self.named = nn.ParameterDict({"shift": torch.rand(4)})

    def forward(self, inputs: Tensor) -> Tensor:
        product: Tensor = inputs * self.scale * self.more[0] + self.named["shift"]
        outputs: Tensor = product * self.more[1] + self.grid.view(4)
        return outputs


class Tied(nn.Module):
    """A weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(inputs).tanh())
        return outputs


class Constants(nn.Module):
    """Buffers and a frozen parameter beside a trained one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]))
        self.register_buffer("count", torch.tensor(3), persistent=False)
        self.body = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.body(inputs) * self.mask) / self.count
        return outputs


class _Rated(nn.Module):
    """The log-probabilities of an adaptive softmax, which otherwise wants the targets as inputs."""

    def __init__(self, softmax: nn.AdaptiveLogSoftmaxWithLoss) -> None:
        super().__init__()
        self.softmax = softmax

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.softmax.log_prob(inputs)
        return outputs


LAYERS: dict[str, Case] = {
    "AdaptiveLogSoftmaxWithLoss": Case(
        lambda: _Rated(nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4], div_value=1.5)), ((4,),)
    ),
    "Bilinear": Case(lambda: nn.Bilinear(3, 4, 2), ((3,), (4,))),
    "Conv1d": Case(lambda: nn.Conv1d(2, 3, 2), ((2, 5),)),
    "Conv2d": Case(lambda: nn.Conv2d(2, 3, 2), ((2, 4, 5),)),
    "Conv3d": Case(lambda: nn.Conv3d(2, 3, 2), ((2, 3, 3, 3),)),
    "ConvTranspose1d": Case(lambda: nn.ConvTranspose1d(2, 3, 2), ((2, 5),)),
    "ConvTranspose2d": Case(lambda: nn.ConvTranspose2d(2, 3, 2), ((2, 4, 5),)),
    "ConvTranspose3d": Case(lambda: nn.ConvTranspose3d(2, 3, 2), ((2, 3, 3, 3),)),
    "Embedding": Case(lambda: nn.Embedding(7, 3, padding_idx=0), ((5,),), words=7),
    "EmbeddingBag": Case(lambda: nn.EmbeddingBag(7, 3), ((5,),), words=7),
    "GRU": Case(lambda: nn.GRU(3, 4, num_layers=2, batch_first=True, bidirectional=True), ((5, 3),)),
    "GRUCell": Case(lambda: nn.GRUCell(3, 4), ((3,),)),
    "GroupNorm": Case(lambda: nn.GroupNorm(2, 4), ((4, 3, 3),)),
    "InstanceNorm1d": Case(lambda: nn.InstanceNorm1d(4, affine=True), ((4, 5),)),
    "InstanceNorm2d": Case(lambda: nn.InstanceNorm2d(4, affine=True), ((4, 3, 3),)),
    "InstanceNorm3d": Case(lambda: nn.InstanceNorm3d(4, affine=True), ((4, 2, 2, 2),)),
    "LSTM": Case(lambda: nn.LSTM(3, 4, batch_first=True), ((5, 3),)),
    "LSTMCell": Case(lambda: nn.LSTMCell(3, 4), ((3,),)),
    "LayerNorm": Case(lambda: nn.LayerNorm(4), ((4,),)),
    "Linear": Case(lambda: nn.Linear(3, 4), ((3,),)),
    "MultiheadAttention": Case(lambda: Attention(4, 2, batch_first=True), ((5, 4),)),
    "PReLU": Case(lambda: nn.PReLU(4), ((4,),)),
    "RMSNorm": Case(lambda: nn.RMSNorm(4), ((4,),)),
    "RNN": Case(lambda: nn.RNN(3, 4, batch_first=True, nonlinearity="relu"), ((5, 3),)),
    "RNNCell": Case(lambda: nn.RNNCell(3, 4), ((3,),)),
    "Transformer": Case(lambda: nn.Transformer(4, 2, 1, 1, 8, batch_first=True), ((5, 4), (3, 4))),
    "TransformerDecoder": Case(
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), 2), ((5, 4), (3, 4))
    ),
    "TransformerDecoderLayer": Case(lambda: nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), ((5, 4), (3, 4))),
    "TransformerEncoder": Case(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2), ((5, 4),)
    ),
    "TransformerEncoderLayer": Case(lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), ((5, 4),)),
    # and what is no layer
    "bare parameters": Case(Bare, ((4,),)),
    "tied": Case(Tied, ((4,),)),
    "constants": Case(Constants, ((4,),)),
    "weight norm": Case(lambda: parametrizations.weight_norm(nn.Linear(4, 4)), ((4,),)),
    "spectral norm": Case(lambda: parametrizations.spectral_norm(nn.Linear(4, 4)), ((4,),)),
}


class Items(Dataset[Any]):
    """Items drawn from a seed: inputs of some shapes and a class of two."""

    def __init__(self, case: Case, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.targets = torch.randint(0, 2, (count,), generator=generator)
        self.inputs = [
            torch.randint(0, case.words, (count, *shape), generator=generator)
            if case.words
            else torch.rand(count, *shape, generator=generator) - self.targets.view(-1, *[1] * len(shape)) / 2
            for shape in case.shapes
        ]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> Any:
        inputs = tuple(each[row] for each in self.inputs)
        return inputs if len(inputs) > 1 else inputs[0], int(self.targets[row])


def task(case: Case, **fields: Any) -> TorchTask:
    """Return the task of a layer, with 60 training and 20 test items."""
    given: dict[str, Any] = {"network": lambda: Judge(case.layer()), "train": Items(case, 60, 1)}
    return TorchTask(**{**given, "test": Items(case, 20, 2), "batch_size": 7, **fields})
