"""How far clients' models are apart after local training from the same model (FedACG, arXiv:2201.03172, Figure 2).

The local steps of one round's cohort are taken again, each client's from the round's model, with the directions and
mini-batches that it had there; so this works for scalar-only methods too, whose clients report no models. In a run
without a server each node has directions of its own, and the round's model is the sum of all commits. The paper gives
no formula for its divergence. Here, with w_i the clients' models, w̄ their mean and w the model that they start from:

    divergence   mean ‖w_i − w̄‖          move   ‖w̄ − w‖           cosine   of w_i − w and w_j − w, mean over pairs

Similarity of what networks compute: linear CKA (Kornblith et al. 2019, arXiv:1905.00414) of each block's outputs on
test samples, mean over pairs of clients. 1: the same up to rotation and scale.

Clients begin without memory (as of SCAFFOLD's control variates), like those that take part for the first time: the
journal does not have it.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from seedbus.algorithms.contract import Declined
from seedbus.models.device import placed_beside
from seedbus.models.errors import DataError
from seedbus.models.images.sample_problem import SampleProblem
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.parameters.gradients import outputs
from seedbus.scenarios.reporting.findings import Finding, Plot
from seedbus.scenarios.reporting.looks import Line
from seedbus.studies.analysis.client_models import Trains
from seedbus.studies.analysis.estimate import number
from seedbus.studies.analysis.lanczos import Vector64
from seedbus.studies.analysis.subject import Model, NotHere, Subject

TITLE = "Clients after their local steps (FedACG, Figure 2)"


def divergence(run: Subject) -> Finding:
    """Measure it. Raises `NotHere`."""
    if not run.stored:
        raise NotHere("the run has no rounds")
    rows, facts, drawn = [], [], []
    for model in run.models:
        trained = _trained(model)
        if len(trained) < 2:
            raise NotHere(f"fewer than two clients can be trained from the model of round {model.round:,}")
        start = np.asarray(run.algorithm.point(model.replayed.replica)).astype(np.float64)
        moved = np.array(trained, np.float64) - start
        mean = moved.mean(axis=0)
        cosines = [_cosine(moved[i], moved[j]) for i, j in combinations(range(len(moved)), 2)]
        figures = {
            "divergence": float(np.linalg.norm(moved - mean, axis=1).mean()),
            "move": float(np.linalg.norm(mean)),
            "cosine": float(np.mean(cosines)),
        }
        similar = _similarities(run, trained)
        rows.append([f"{model.round:,}", f"{len(trained)}", *map(number, (*figures.values(), *similar))])
        facts.append({"round": model.round, "clients": len(trained), **figures, "cka": similar})
        drawn.append(Line(f"round {model.round:,}", range(1, len(similar) + 1), similar))
    blocks = len(rows[0]) - 5
    notes = [
        "Divergence: mean distance of the clients' models from their mean. Move: how far that mean is from where they "
        "began. Cosine: of two clients' moves, mean over pairs."
        + (" CKA: of the outputs of each block of the network on test samples, mean over pairs." if blocks else "")
    ]
    if not blocks:
        notes.append("No CKA: it takes a classifier whose network is a sequence of layers.")
    plot = Plot.of_lines("CKA between clients", "block of the network", "linear CKA, mean over pairs", drawn)
    heads = ["round", "clients", "divergence", "move", "cosine", *(f"CKA {n}" for n in range(1, blocks + 1))]
    return Finding("divergence", TITLE, heads, rows, notes, [plot] if blocks else [], {"rounds": facts})


def _trained(model: Model) -> list[NDArray[Any]]:
    """Return the models of clients after their local steps from a model, float32 [d] each.

    They are the cohort of the round that began there, or of the last round, without those whose steps lead to numbers
    that are not finite. Raises `NotHere`.
    """
    run, replica, algorithm = model.run, model.replayed.replica, model.run.algorithm
    if not isinstance(algorithm, Trains):
        raise NotHere(f"{algorithm.facts.label} does not tell what local steps lead to: it has no `trained`")
    cohort = run.stored[min(model.round, len(run.stored) - 1)].cohort[: run.effort.clients]
    placed = replica.placed(placed_beside(run.problem))
    found, work = [], run.meter.begin(f"round {model.round:,}: local steps", len(cohort))
    for client in cohort:
        with suppress(Declined):
            objective = run.problem.objective(client, model.round)
            after = algorithm.trained(placed, None, model.plan(client), objective)
            if np.isfinite(own := np.asarray(after)).all():
                found.append(own.copy())
        work.advance()
    work.end()
    return found


def _similarities(run: Subject, models: list[NDArray[Any]]) -> list[float]:
    """Return the mean CKA over pairs of models for each block of the network; none if it has none."""
    problem: Any = run.problem
    if isinstance(problem, MaskedProblem):
        problem, models = problem.inside, [np.asarray(problem.whole(model)) for model in models]
    if not isinstance(problem, SampleProblem):
        return []
    grams = []
    try:
        for model in models:
            grams.append([gram(each) for each in _outputs(problem, model, run.effort.test_samples)])
    except DataError:  # a network that is not a sequence of layers
        return []
    pairs = list(combinations(grams, 2))
    return [float(np.mean([cka(one[block], other[block]) for one, other in pairs])) for block in range(len(grams[0]))]


def _outputs(problem: SampleProblem[Any], x: NDArray[Any], count: int) -> list[NDArray[np.float64]]:
    """Return the outputs of each block of the network on test samples, float64 [n, features]."""
    samples = problem.splits["test"]
    chosen = np.linspace(0, samples.labels.size - 1, min(count, samples.labels.size)).astype(np.int64)
    inputs, labels = problem.tensors(samples, chosen)
    with torch.inference_mode(), problem.flat.at(x):
        found = outputs(problem.flat, inputs, labels)
        return [each.flatten(1).double().cpu().numpy() for each in (*found.before_head, found.logits)]


def gram(features: NDArray[np.float64]) -> Vector64:
    """Return the matrix of products of n samples' centred features, float64 [n, n]."""
    centred = features - features.mean(axis=0)
    products: Vector64 = centred @ centred.T
    return products


def cka(one: Vector64, other: Vector64) -> float:
    """Return linear CKA from two matrices of `gram`; 1 if both are 0."""
    scale = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float((one * other).sum()) / scale if scale else 1.0


def _cosine(one: Vector64, other: Vector64) -> float:
    scale = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / scale if scale else 0.0
