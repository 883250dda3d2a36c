"""A plug-in on which owners agree: a network, and how a file of theirs is read."""

import torch
from torch.utils.data import TensorDataset


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def read(place: str | None) -> TensorDataset:
    if place is None:
        return TensorDataset(torch.arange(12.0).reshape(4, 3) / 12, torch.tensor([0, 1, 0, 1]))
    with open(place, encoding="utf-8") as file:
        rows = [[float(cell) for cell in line.split()] for line in file]
    values = torch.tensor(rows)
    return TensorDataset(values[:, :-1], values[:, -1].long())
