"""What a gradient scalar costs and how far it is off, by differences, forward-mode differentiation and backpropagation.

    python benchmarks/slopes.py [--perturbations 1 10] [--turns 5]
    python benchmarks/slopes.py --errors

The first prints, for one client's local step of P directions, its seconds of the processor and the peak of its memory
above what the process had with the model and its point. Each way has a process of its own on one thread, which first
does a step of a tiny task; seconds are the least of the turns. The second prints the errors of differences by μ, beside
those of the exact ways: the root of the mean square of 20 directions, relative to the scalars' own, against ⟨∇f, z⟩ by
backpropagation, for the CNN in float64. The language model has OPT's architecture and random weights, of which neither
seconds nor memory depend, and batches of 16 sentences of 44 tokens. Linux only, as `memory.py`.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from memory import SHAPES, alone, forget_the_highest, resident, write

WAYS = ("forward", "central", "forward-mode", "projection")
SMOOTHING = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
CNN: dict[str, Any] = {"name": "fashion-mnist", "model": "fashion-cnn", "batch_size": 64}
SENTENCES = 16
ROUND = 20  # directions of the errors


class Step(NamedTuple):
    """A client's local step: its seconds of the processor, and its bytes at the peak."""

    seconds: float
    memory: int


def problem_of(task: str, folder: Path) -> Any:
    """Return one of the two tasks bound to its data, with a point that is written to."""
    from seedbus.models import Iid
    from seedbus.models.task import TASKS

    text = {"name": "language-model", "model": str(folder), "data": str(folder), "batch_size": SENTENCES}
    fields: dict[str, Any] = CNN if task == "fashion-cnn" else text | {"dataset": "sst2", "validation": 0}
    problem = TASKS.all()[fields["name"]].model_validate(fields).bind(seed=0, clients=2, partition=Iid())
    problem.objective(0, 0).point[:] = problem.x0()
    return problem


def algorithm_of(way: str, perturbations: int, smoothing: float = 1e-3) -> Any:
    """Return DeComFL with one local step."""
    from seedbus.algorithms.scalar_only.decomfl import DeComFL

    return DeComFL(estimator=way, perturbations=perturbations, smoothing=smoothing)


def step(algorithm: Any, problem: Any, replica: Any, round: int) -> Any:
    """Return what a client reports of one local step."""
    report, _ = algorithm.local(replica, None, algorithm.plan(round, 0, 7 + round), problem.objective(0, round))
    return report


def measure(task: str, folder: Path, way: str, perturbations: int, turns: int) -> Step:
    """Measure one way, in a process that has done nothing else."""
    import torch

    from seedbus.models import Iid
    from seedbus.models.tasks.digits import Digits

    torch.set_num_threads(1)
    tiny, algorithm = Digits(model="cnn").bind(seed=0, clients=2, partition=Iid()), algorithm_of(way, perturbations)
    step(algorithm, tiny, algorithm.replica(tiny.x0()), 0)
    problem = problem_of(task, folder)
    replica = algorithm.replica(problem.x0())
    gc.collect()
    ground, seconds = resident("VmRSS"), []
    forget_the_highest()
    for turn in range(turns):
        begun = time.process_time()
        step(algorithm, problem, replica, turn)
        seconds.append(time.process_time() - begun)
    return Step(min(seconds), resident("VmHWM") - ground)


def errors(task: str, folder: Path) -> dict[str, list[float]]:
    """Return the relative errors of each way: of differences by μ, and one of each of the others."""
    problem = problem_of(task, folder)
    replica = algorithm_of("central", 1).replica(problem.x0())
    settings = {way: SMOOTHING if way in WAYS[:2] else SMOOTHING[:1] for way in WAYS}
    found = {
        way: [step(algorithm_of(way, ROUND, mu), problem, replica, 0)[0] for mu in chosen]
        for way, chosen in settings.items()
    }
    exact = exact_slopes(problem)
    return {
        way: [float(np.linalg.norm(own.astype(np.float64) - exact) / np.linalg.norm(exact)) for own in each]
        for way, each in found.items()
    }


def exact_slopes(problem: Any) -> Any:
    """Return ⟨∇f, z⟩ of the directions of round 0, float64 [ROUND]; of a network of images its gradient in float64.

    Of the language model, whose head computes in float32, the products alone are in float64.
    """
    import torch

    from seedbus.algorithms.directions import reference

    objective = problem.objective(0, 0)
    if hasattr(problem, "flat"):
        flat, (inputs, labels) = problem.flat, objective.batch(0)
        flat.module.double()
        [parameter.requires_grad_() for parameter in flat.parameters]
        loss = problem.mean_loss(inputs.double(), labels)
        gradient = torch.autograd.grad(loss, flat.parameters)
    else:
        flat = problem.trained
        gradient = tuple(flat.views(torch.from_numpy(objective.gradient(0))))
    found = []
    for perturbation in range(ROUND):
        z = np.empty(flat.dimension, np.float32)
        reference("gaussian").fill(z, seed=7, step=0, perturbation=perturbation)
        views = flat.views(torch.from_numpy(z))
        pairs = zip(gradient, views, strict=True)
        found.append(sum(float((part.double() * view.double()).sum()) for part, view in pairs))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--perturbations", nargs="+", type=int, default=[1, 10])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--model", choices=[name for name in SHAPES if name != "tiny"], default="17m")
    parser.add_argument("--errors", action="store_true", help="of scalars, instead of what they cost")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        alone(write, folder, SHAPES[options.model], SENTENCES)
        for task in ("fashion-cnn", options.model):
            (print_errors if options.errors else print_costs)(task, folder, options)


def print_costs(task: str, folder: Path, options: Any) -> None:
    for perturbations in options.perturbations:
        for way in WAYS:
            found = alone(measure, task, folder, way, perturbations, options.turns)
            cells = [task, str(perturbations), way, f"{found.seconds:.3f} s", f"{found.memory / 1e6:,.0f} MB"]
            print(row(cells), flush=True)


def print_errors(task: str, folder: Path, options: Any) -> None:
    for way, found in alone(errors, task, folder).items():
        print(row([task, way, *(f"{each:.1e}" for each in found)]), flush=True)


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
