"""What the scores of two answers tell of the classes, and how much of it the answer with the higher score tells.

A model that was not trained for a task often prefers one answer whatever it is asked. The order of its scores may still
tell the classes apart: so `accuracy` is compared with that of the best threshold, chosen on these very samples, which
no training has to beat but an honest table shows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.models.text.language_problem import EVALUATION_TOKENS, LanguageProblem
from seedbus.models.text.tokens import chunks, collate


class Separation(NamedTuple):
    """How well differences of scores tell two classes apart.

    Attributes:
        accuracy: of the threshold 0: the answer with the higher score.
        best: of the best threshold for these samples.
        threshold: the one that has it; class 1 is above it.
        auc: the probability that a sample of class 1 has the larger difference than one of class 0; ties count half.
    """

    accuracy: float
    best: float
    threshold: float
    auc: float


def separation(differences: NDArray[np.floating], labels: NDArray[np.integer]) -> Separation:
    """Return how well the differences tell the classes apart.

    Args:
        differences: the score of the answer of class 1 minus that of class 0, [n].
        labels: the classes, 0 or 1, [n]; both occur.

    Raises:
        ValueError: a difference is no number, or a class has no sample.
    """
    values, positive = np.asarray(differences, np.float64), np.asarray(labels) == 1
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros or np.isnan(values).any():
        raise ValueError(f"{ones} samples of class 1 and {zeros} of class 0, or a difference that is no number")
    levels, place = np.unique(values, return_inverse=True)
    at_one, at_zero = (np.bincount(place[each], minlength=levels.size) for each in (positive, ~positive))
    zeros_below = np.concatenate([[0], np.cumsum(at_zero)])  # samples of class 0 below each level, and below infinity
    ones_below = np.concatenate([[0], np.cumsum(at_one)])
    right = zeros_below + ones - ones_below  # samples on the right side of a threshold just below each level
    best = int(right.argmax())
    edges = np.concatenate([[levels[0] - 1], (levels[1:] + levels[:-1]) / 2, [levels[-1] + 1]])
    pairs = (at_one * (zeros_below[:-1] + at_zero / 2)).sum()
    accuracy = float(((values > 0) == positive).mean())
    return Separation(accuracy, float(right[best] / values.size), float(edges[best]), float(pairs / (ones * zeros)))


def differences(problem: LanguageProblem, split: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the differences of the answers' scores at the problem's point, and the classes, of a split's samples.

    Only the samples that an evaluation takes are computed, in its order.
    """
    import torch

    indices = problem.evaluated(split)
    pairs = [problem.encoded(split, int(index)) for index in indices]
    found = np.zeros(len(indices))
    for group in chunks([sum(pair.length for pair in each) for each in pairs], EVALUATION_TOKENS):
        batch = collate([pair for place in group for pair in pairs[place]])
        with torch.inference_mode():
            scores = problem.network.scores(problem.network.prepared(batch, compared=2)).view(len(group), 2)
        found[group] = (scores[:, 1].double() - scores[:, 0].double()).cpu().numpy()
    return found, np.array(problem.labels(indices, split), np.int64)
