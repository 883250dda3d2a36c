"""What the programs of this folder share: the job, its data and network, and how a round is measured.

It imports torch only, so that it runs in every peer's environment. Import it before torchvision.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import statistics
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

CLASSES = 10
SUBREAPER = 36  # of prctl: processes whose parent ends become children of this one, and are counted

for name in ("nms", "qnms"):  # PyPI's torchvision is built for CUDA, and asks torch's build for CPUs for these in vain
    torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")


@dataclass(frozen=True)
class Job:
    """What is to be computed: federated averaging, in which a client makes `epochs` passes over its samples.

    Attributes:
        model: cnn, softmax, or null: ten weights that nobody trains.
        samples: of a client.
        cohort: clients of a round.
    """

    model: str
    clients: int
    cohort: int
    samples: int
    batch: int
    epochs: int
    rounds: int
    rate: float
    folder: str

    @staticmethod
    def read() -> Job:
        """Return the job of the command line."""
        return Job(**json.loads(sys.argv[1]))

    @property
    def share(self) -> float:
        return self.cohort / self.clients

    def network(self) -> nn.Module:
        """Return the network; cnn has 28,938 parameters and softmax 7,850."""
        torch.set_num_threads(1)
        torch.manual_seed(1)
        if self.model == "null":
            return nn.Linear(10, 1, bias=False)
        if self.model == "softmax":
            return nn.Sequential(nn.Flatten(), nn.Linear(784, CLASSES))
        layers: list[nn.Module] = [ChannelsLast()]
        for before, after in ((1, 16), (16, 32)):
            layers += [nn.Conv2d(before, after, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 49, CLASSES))

    def split(self, name: str) -> tuple[Tensor, Tensor]:
        """Return images uint8 [n, 1, 28, 28], and labels int64 [n], of `train` or `t10k`."""
        images, labels = (self._bytes(f"{name}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
        return images[16:].view(-1, 1, 28, 28), labels[8:].long()

    def _bytes(self, name: str) -> Tensor:
        with gzip.open(Path(self.folder) / name) as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> float | None:
        """Return the accuracy on the test samples; None without training."""
        if self.model == "null":
            return None
        pairs = zip(*(each.split(500) for each in self.split("t10k")), strict=True)
        return sum(int((network.eval()(images / 255).argmax(1) == labels).sum()) for images, labels in pairs) / 10_000


@cache
def parts_of(job: Job) -> list[tuple[Tensor, Tensor]]:
    """Return the samples of each client, drawn at random without replacement: float32 in [0, 1], and labels."""
    if job.model == "null":
        return [(torch.zeros(1, 10), torch.zeros(1, dtype=torch.int64))] * job.clients
    images, labels = job.split("train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    return [(images[own] / 255, labels[own]) for own in order.split(job.samples)[: job.clients]]


class ChannelsLast(nn.Module):
    """Images of one channel in channels_last, in which torch's convolutions on CPUs are faster.

    The weights are not: two of the peers ask for contiguous ones.
    """

    def forward(self, images: Tensor) -> Tensor:
        return images.as_strided(images.shape, (784, 1, 28, 1))


class Meter:
    """Measures the rounds of this process and of all that it starts."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(SUBREAPER, 1)
        self._laps: list[tuple[float, float]] = []

    def lap(self) -> None:
        """Note that a round has ended; the first call is the beginning of the second round."""
        self._laps.append((time.process_time() + self._others_s(), time.perf_counter()))

    def _others_s(self) -> float:
        ticks = 0
        for pid in _started_by(os.getpid())[1:]:
            with suppress(OSError):
                ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def report(self, version: str, accuracy: float | None) -> None:
        """Print the result: mean CPU and median wall seconds of a round, and MB at most of all processes together."""
        cpu, wall = zip(*self._laps, strict=True)
        rounds = len(cpu) - 1
        result = {
            "version": version,
            "cpu_s": (cpu[-1] - cpu[0]) / rounds,
            "wall_s": statistics.median(after - before for before, after in pairwise(wall)),
            "peak_mb": sum(map(_peak_mb, _started_by(os.getpid()))),
            "accuracy": accuracy,
        }
        print(json.dumps(result), flush=True)


def _started_by(pid: int) -> list[int]:
    """Return the pids of a process and of all that it has started."""
    children = list[int]()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children += map(int, task.read_text().split())
    return [pid, *(each for child in children for each in _started_by(child))]


def _peak_mb(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
