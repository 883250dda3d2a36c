"""What a federation gives away: a membership attack and a reconstruction attack, with and without protection.

    python examples/attacks.py

**Membership.** Whoever has the model takes the samples with the smallest losses for those that it was trained on (Yeom
et al., arXiv:1709.01604). AUC is the probability that a member has a smaller loss than an image that is none: 0.5 is
guessing. Members are 100 digits, ten of each of ten clients; others the 297 test images.

**Reconstruction.** Each client has one image and takes one step. Of a linear layer the gradient by the weights of class
i is the input times that by its bias, so their quotient is the image (Phong et al., ePrint 2017/715; Zhu et al.,
arXiv:1906.08935, invert deeper networks). A curious server keeps each report that it reads; anybody has the commit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import seedbus
from seedbus.agents.server.report_reader import ReportReader

CLIENTS, SEEDS = 10, range(1, 6)
MASKS: dict[str, Any] = {"secure_aggregation": {}}


def noise(multiplier: float, **more: Any) -> dict[str, Any]:
    """Return fields of a scenario whose clients are private; the clip is 0.4 in the model's units."""
    return {"privacy": {"clip": 400_000, "noise_multiplier": multiplier, "delta": 1e-3, **more}}


def images(seed: int, count: int) -> tuple[TensorDataset, TensorDataset]:
    """Return `count` training digits, drawn by the seed, and 297 others, pixels from 0 to 1."""
    table, labels = load_digits(return_X_y=True)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(labels)))
    inputs, classes = torch.from_numpy(table / 16).float()[order], torch.from_numpy(labels)[order]
    return TensorDataset(inputs[:count], classes[:count]), TensorDataset(inputs[-297:], classes[-297:])


def deep() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def linear() -> nn.Module:
    return nn.Linear(64, 10)


def trained(network: Any, seed: int, count: int, rounds: int, steps: int, fields: dict[str, Any]) -> tuple[Any, Any]:
    """Return the results of a federation that learns from so many digits, and its task."""
    train, test = images(seed, count)
    task = seedbus.TorchTask(network=network, train=train, test=test, batch_size=CLIENTS)
    algorithm = {"name": "fedavg", "local_steps": steps, "learning_rate": 0.3, "weighting": "uniform"}
    scenario = seedbus.load(
        {
            "name": "attacked",
            "algorithm": algorithm | {"compression": "fixed-point"},
            "partition": {"kind": "iid"},
            "participation": {"clients": CLIENTS, "quorum": CLIENTS},
            "evaluation": {"every": rounds},
            "stop": {"rounds": rounds},
            "seed": seed,
        }
        | fields
    )
    return seedbus.run(scenario, Path(tempfile.mkdtemp()) / "run", task=task, page=False), task


def model_of(results: Any, task: Any, network: Any, round: int | None = None) -> tuple[Any, Any]:
    """Return the network after a round, from the journal, and the problem with its clients' samples."""
    replayed, made = seedbus.replay(results.folder, round, task=task), network()
    tensors = dict(replayed.problem.state_dict(replayed.point))
    made.load_state_dict({name: torch.from_numpy(np.array(each)) for name, each in tensors.items()})
    return made.requires_grad_(False), replayed.problem


def membership(seed: int, fields: dict[str, Any]) -> tuple[float, float, float, str]:
    """Return the attack's AUC, the accuracy on images that are no members, ε (∞: not private), and the digest."""
    results, task = trained(deep, seed, 111, 40, 5, fields)  # of which 11 are for validation, and nobody's
    model, problem = model_of(results, task, deep)
    held = problem.tensors(problem.splits["train"], np.concatenate(problem.parts))
    inputs, classes = task.test[:]
    member, other = (cross_entropy(model(x), y, reduction="none") for x, y in (held, (inputs, classes)))
    auc = (member[:, None] < other[None]).double().mean() + (member[:, None] == other[None]).double().mean() / 2
    accuracy = (model(inputs).argmax(1) == classes).double().mean()
    return float(auc), float(accuracy), results.summary["metrics"].get("epsilon", float("inf")), results.digest


@contextmanager
def curious() -> Iterator[dict[int, Any]]:
    """Have the server of a run keep each report that it reads: client → update [d]."""
    kept: dict[int, Any] = {}
    read: Any = ReportReader.read

    def reading(self: Any, envelope: Any, plan: Any, *, has_digests: bool) -> Any:
        report, claim = read(self, envelope, plan, has_digests=has_digests)
        kept[envelope.client] = np.asarray(self._algorithm.values(report), np.float64).ravel()
        return report, claim

    ReportReader.read = reading  # type: ignore[method-assign]
    try:
        yield kept
    finally:
        ReportReader.read = read  # type: ignore[method-assign]


def likeness(update: Any, image: Tensor, label: int) -> float:
    """Return the correlation of an image with what an update [650] of a linear layer gives away of it."""
    weights, biases = update[:640].reshape(10, 64), update[640:]
    return float(np.corrcoef(weights[label] / biases[label], image.numpy())[0, 1])


def reconstruction(seed: int, fields: dict[str, Any]) -> tuple[float, float]:
    """Return the mean correlation with the clients' images: by the reports that the server reads, and by the commit."""
    with curious() as reports:
        results, task = trained(linear, seed, 11, 1, 1, fields)
    (before, problem), (after, _) = (model_of(results, task, linear, round) for round in (0, 1))
    commit = torch.cat([(after.state_dict()[name] - before.state_dict()[name]).ravel() for name in ("weight", "bias")])
    seen, public = [], []
    for client, own in enumerate(problem.parts):
        (image,), (label,) = problem.tensors(problem.splits["train"], own)
        seen.append(likeness(reports[client], image, int(label)))
        public.append(likeness(commit.double().numpy(), image, int(label)))
    return float(np.mean(seen)), float(np.mean(public))


def interval(values: Any, digits: int = 2) -> str:
    """Return the mean over five seeds and half of its 95 % interval, by Student's t with four degrees of freedom."""
    return f"{np.mean(values):.{digits}f} ± {2.776 * np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}"


def main() -> None:
    torch.set_num_threads(1)
    print("membership, by the final model")
    print(f"{'protection':<26}{'ε':>8}{'accuracy':>16}{'AUC':>16}")
    rows = {"none": {}, "noise 1": noise(1), "noise 5": noise(5)}
    digests = {}
    for name, fields in rows.items():
        aucs, accuracies, epsilons, digests[name] = zip(*(membership(seed, fields) for seed in SEEDS), strict=True)
        print(f"{name:<26}{epsilons[0]:>8.3g}{interval(accuracies):>16}{interval(aucs):>16}")
    *_, masked = membership(SEEDS[0], MASKS)
    print(f"masks: the model has {'the same' if masked == digests['none'][0] else 'other'} bits as with none")
    print("reconstruction, correlation with a client's only image")
    print(f"{'protection':<26}{'by the server':>16}{'by the commit':>16}")
    shares = MASKS | noise(1, mechanism="distributed")
    for name, fields in (rows | {"masks": MASKS, "masks, noise 1 in shares": shares}).items():
        seen, public = zip(*(reconstruction(seed, fields) for seed in SEEDS), strict=True)
        print(f"{name:<26}{interval(seen):>16}{interval(public):>16}")


if __name__ == "__main__":
    main()
