"""Whole rounds on a device, beside plain torch of the same work: steps a second, clients a second, peak memory.

Seedbus runs with bus, journal and evaluator, as `seedbus run` does, in one process. Plain torch is `plain.py` with all
its vectors on the device: a model a client, and a loss read at a time. Both have the same networks, batches of the same
shape that come from the host's memory, DeComFL with K = 1, and the same settings of torch (TF32 off, deterministic).
Samples and weights are random, so no data set is needed. Contenders take turns, each begins from nothing, and the best
turn of each counts. Works that differ in how Seedbus computes alone share the figure of plain torch. A *step* is one
client's local step, P + 1 forward passes and what they need. The first rounds, which compile kernels, and Seedbus' last
one, which evaluates, are not counted; peak memory is that of the counted ones.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from memory import Answering, long_sentence, write
from plain import Batch, Commit, Follower, Recipe, federated_round, flat
from pydantic import Field
from rounds import as_in_papers

from seedbus.agents.observer import NullObserver
from seedbus.models.data.samples import Images
from seedbus.models.device import on_device
from seedbus.models.errors import DataError
from seedbus.models.errors import is_out_of_memory as is_full
from seedbus.models.task import Task
from seedbus.models.tasks.cifar import Cifar10
from seedbus.models.tasks.language_model import LanguageModel
from seedbus.models.tasks.mnist import FashionMnist
from seedbus.scenarios.running.run import run

WARM = 2  # rounds that do not count
OPT: dict[str, dict[str, int]] = {
    "OPT-125M": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 50_272},
    "OPT-350M": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 50_272,
        "word_embed_proj_dim": 512,
        "do_layer_norm_before": False,
    },
    "OPT-1.3B": {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "vocab_size": 50_272},
}
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 400, "ffn_dim": 32}
TINY |= {"max_position_embeddings": 64}
DRY_OPT = dict.fromkeys(OPT, TINY) | {"OPT-350M": TINY | {"word_embed_proj_dim": 8, "do_layer_norm_before": False}}


@dataclass(frozen=True)
class Work:
    """Rounds of one network.

    Attributes:
        name: the network's.
        clients: number of clients.
        cohort: clients of a round.
        perturbations: P.
        batch: samples of a batch.
        rounds: rounds that count.
        forward: how Seedbus computes a step's losses, `eager` or `stacked`.
    """

    name: str
    clients: int
    cohort: int
    perturbations: int
    batch: int = 32
    rounds: int = 10
    forward: str = "eager"


MNIST, RESNET = "MNIST CNN", "ResNet-18"
WORKS = [
    Work(MNIST, 100, 10, 10, rounds=20),
    Work(MNIST, 100, 10, 10, rounds=20, forward="stacked"),
    Work(RESNET, 100, 5, 10, batch=50, rounds=6),
    *(Work(name, 2, 2, 10, rounds=rounds) for name, rounds in zip(OPT, (8, 5, 3), strict=True)),
]
CROWDS = [
    Work(MNIST, count, count, 5, rounds=rounds, forward=forward)
    for count, rounds in ((10, 20), (100, 10), (1_000, 3))
    for forward in ("eager", "stacked")
]
DRY_WORKS = [
    Work(MNIST, 3, 2, 2, batch=2, rounds=1),
    Work(MNIST, 3, 2, 2, batch=2, rounds=1, forward="stacked"),
    Work(RESNET, 2, 1, 1, batch=1, rounds=1),
    *(Work(name, 2, 2, 2, batch=2, rounds=1) for name in OPT),
]
DRY_CROWDS = [Work(MNIST, 3, 3, 2, batch=2, rounds=1, forward=forward) for forward in ("eager", "stacked")]


@dataclass(frozen=True)
class Turn:
    """What one contender's rounds took.

    Attributes:
        seconds: of a round, the mean.
        peak: bytes of the device's memory at most; 0: they are not counted there.
    """

    seconds: float
    peak: int


@dataclass(frozen=True)
class Figure:
    """A work's best turns; None: the device's memory was too small.

    Attributes:
        dimension: d.
    """

    work: Work
    dimension: int
    ours: Turn | None
    plain: Turn | None


class RandomFashion(FashionMnist, frozen=True):
    """Noise in the shape of Fashion-MNIST."""

    samples: int = Field(1000, description="training images")

    def load(self) -> tuple[Images, Images]:
        return noise(self.samples, 28, 1), noise(16, 28, 1)


class RandomCifar(Cifar10, frozen=True):
    """Noise in the shape of CIFAR-10."""

    samples: int = Field(1000, description="training images")

    def load(self) -> tuple[Images, Images]:
        return noise(self.samples, 32, 3), noise(16, 32, 3)


def noise(count: int, side: int, channels: int) -> Images:
    rng = np.random.default_rng(count)
    pixels = rng.integers(0, 256, (count, side, side, channels), dtype=np.uint8)
    return Images(pixels, rng.integers(0, 10, count))


def task_of(work: Work, folder: Path) -> Task:
    """Return the work's task; folder: that of the language models, by name."""
    fields: dict[str, Any] = {"batch_size": work.batch, "validation": 0}
    if work.name in OPT:
        place = str(folder / work.name)
        return LanguageModel.model_validate(fields | {"model": place, "data": place})
    if work.forward == "stacked":
        fields |= {"forward": "stacked", "chunk": work.perturbations + 1}
    fields["samples"] = work.clients * work.batch
    if work.name == RESNET:
        return RandomCifar.model_validate(fields)
    return RandomFashion.model_validate(fields | {"model": "mnist-cnn"})


class Watch(NullObserver):
    """Takes the time at the ends of rounds, and empties the memory's peak when the first ones are over.

    Args:
        device: where the rounds are computed.
        rounds: those that count, after the first ones.
    """

    def __init__(self, device: str, rounds: int) -> None:
        self.device = device
        self.rounds = rounds
        self.ends: list[float] = []
        self.peak = 0

    def round_closed(self, closed: Any = None, now_ns: int = 0, bytes_so_far: int = 0) -> None:
        if len(self.ends) == WARM + self.rounds:
            return
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)
            self.peak = torch.cuda.max_memory_allocated(self.device)
            if len(self.ends) < WARM:
                torch.cuda.reset_peak_memory_stats(self.device)
        self.ends.append(time.perf_counter())

    @property
    def turn(self) -> Turn:
        return Turn((self.ends[WARM + self.rounds - 1] - self.ends[WARM - 1]) / self.rounds, self.peak)


def ours(work: Work, folder: Path, device: str) -> Turn:
    """Run Seedbus."""
    rounds, watch = WARM + work.rounds + 1, Watch(device, work.rounds)
    described = {
        "name": "gpu",
        "task": {"name": "null"},
        "algorithm": {"name": "decomfl", "perturbations": work.perturbations, "learning_rate": 1e-6},
        "participation": {"clients": work.clients, "cohort": work.cohort},
        "evaluation": {"every": rounds},
        "stop": {"rounds": rounds},
    }
    with tempfile.TemporaryDirectory() as place:
        run(described, Path(place) / "run", task=task_of(work, folder), observer=watch, device=device)
    return watch.turn


def plain(work: Work, folder: Path, device: str) -> Turn:
    """Run plain torch."""
    where, watch, log = torch.device("cpu" if device == "torch" else device), Watch(device, work.rounds), list[Commit]()
    with on_device(device):
        network, pool = network_and_batch(work, folder)
        network = network.to(where)
        followers = [Follower(flat(network), Recipe(1e-6)) for _ in range(work.clients)]
        for seed in range(WARM + work.rounds):
            chosen = [(seed * work.cohort + number) % work.clients for number in range(work.cohort)]
            cohort = {client: [Batch(pool.images.to(where), pool.labels.to(where))] for client in chosen}
            federated_round(network, followers, cohort, log, seed, work.perturbations)
            watch.round_closed()
    return watch.turn


def network_and_batch(work: Work, folder: Path) -> tuple[Any, Batch]:
    """Return the work's network, as public code has it, and a batch, both in the host's memory."""
    torch.set_num_threads(1)
    task: Any = task_of(work, folder)
    if work.name in OPT:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        module = AutoModelForCausalLM.from_pretrained(task.model, dtype=torch.float32).eval().requires_grad_(False)
        row = AutoTokenizer.from_pretrained(task.model)(f"{long_sentence(0)} It was great")["input_ids"]
        return Language(module), Batch(torch.tensor([row] * work.batch), torch.full((work.batch,), row[-1]))
    images, _ = task.load()
    pixels = torch.from_numpy(task.inputs(images.stored[: work.batch])).permute(0, 3, 1, 2).contiguous()
    network = task.network() if work.name == RESNET else as_in_papers(task.network())
    return network.eval().requires_grad_(False), Batch(pixels, torch.from_numpy(images.labels[: work.batch]))


class Language(Answering):
    """A language model that can be moved."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._module = model

    def to(self, where: torch.device) -> Language:
        return Language(self._module.to(where))


def measure(works: Sequence[Work], device: str, turns: int, *, is_dry: bool) -> Iterator[Figure]:
    """Measure works in turns; is_dry: with language models of a few thousand weights."""
    with tempfile.TemporaryDirectory() as place:
        folder, plain_turns = Path(place), dict[Work, list[Turn | None]]()
        for work in works:
            if work.name in OPT:
                shape = (DRY_OPT if is_dry else OPT)[work.name]
                write(folder / work.name, shape, work.batch * work.clients)
            own_turns, same = list[Turn | None](), replace(work, forward="eager")
            is_new = same not in plain_turns
            for _ in range(turns):
                own_turns.append(attempted(ours, work, folder, device))
                if is_new:
                    plain_turns.setdefault(same, []).append(attempted(plain, work, folder, device))
            yield Figure(work, dimension(work, folder), best_of(own_turns), best_of(plain_turns[same]))


def best_of(turns: Sequence[Turn | None]) -> Turn | None:
    return min((turn for turn in turns if turn is not None), key=lambda turn: turn.seconds, default=None)


def attempted(contender: Callable[..., Turn], work: Work, folder: Path, device: str) -> Turn | None:
    """Return a contender's turn, after which its memory is free again; None: the device's memory ran out."""
    try:
        return contender(work, folder, device)
    except (RuntimeError, DataError) as error:
        if not (is_full(error) or is_full(error.__cause__ or error)):
            raise
        return None
    finally:
        gc.collect()
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)


def dimension(work: Work, folder: Path) -> int:
    return task_of(work, folder).dimension
