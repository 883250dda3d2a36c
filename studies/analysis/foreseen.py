"""How long what is measured of a run's last model will take, from a small piece of the work on a run like it.

What takes long is counted: samples that are evaluated, products with the Hessian, commits that are folded, local steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seedbus.bus.clock import wall_seconds
from seedbus.models.errors import DataError
from seedbus.models.masked_problem import MaskedProblem
from seedbus.models.task import SPLITS, HasParts, TwiceDifferentiable
from seedbus.scenarios.reporting.meter import Meter
from seedbus.studies.analysis.curvature import Effort
from seedbus.studies.analysis.divergence import divergence
from seedbus.studies.analysis.subject import Model, NotHere, Subject

CURVED = ("spectrum", "whitening", "hessian")
"""The instruments that need the Hessian, which is measured once for all of them."""
PIECE, LEAST_S = 32, 0.2  # the smallest piece of work, and seconds after which it is believed


class Takes(NamedTuple):
    """Seconds at the end of a run, and those for each of its rounds."""

    seconds: float
    a_round: float = 0.0


def foreseen(folder: Path, parts: Sequence[str]) -> Takes:
    """Return how long some parts of a study's answer will take of a run.

    Args:
        folder: a run of its first rounds.
        parts: splits and instruments, as `Ask.parts` has them.

    Raises:
        RunFolderError, DataError, ScenarioError: the run cannot be read.
    """
    if not parts:
        return Takes(0.0)
    run = Subject.of(folder, [], Effort(), Meter(is_quiet=True))
    (model,), names = run.models, {part.partition(":")[0] for part in parts}
    problem: Any = run.problem
    inside = problem.inside if isinstance(problem, MaskedProblem) else problem
    seconds, a_round = 0.0, 0.0
    if isinstance(inside, HasParts):
        seconds += _evaluation(model, inside, names)
    if names.intersection(CURVED) and isinstance(inside, TwiceDifferentiable):
        seconds += _curvature(model, sum(part.size for part in inside.parts) if isinstance(inside, HasParts) else 1)
    commits: Sequence[Any] = ()
    with suppress(NotHere):  # of a pruned run
        commits = run.commits
    if commits and not run.algorithm.facts.is_dense:
        fold = _timed(lambda: run.algorithm.apply(run.algorithm.replica(problem.x0()), commits)) / len(commits)
        has_nulls = "hessian" in model.replayed.replica.fields and names.intersection(CURVED[1:])
        a_round = fold * (1 + run.effort.nulls if has_nulls else 1)  # the model itself is made anew, too
    if "divergence" in names:
        with suppress(NotHere, DataError):
            seconds += _timed(lambda: divergence(run))
    return Takes(seconds, a_round)


def _evaluation(model: Model, problem: HasParts, names: set[str]) -> float:
    """Return how long splits take, and how well clients are served."""
    count = sum(problem.evaluated(split).size for split in names.intersection(SPLITS))
    if "fairness" in names:
        owned, most = problem.owned("test"), model.run.effort.client_samples
        count += sum(min(part.size, most) for part in [*problem.parts, *(owned or [])])
        count += 0 if owned else problem.evaluated("test").size
    tested, served = problem.evaluated("test"), model.served(0)
    evaluate = lambda size: _timed(lambda: problem.evaluate_part(served, "test", tested[:size]))  # noqa: E731
    return _scaled(evaluate, tested.size) / tested.size * count if count else 0.0


def _curvature(model: Model, samples: int) -> float:
    """Return how long the Hessian at a model takes; samples: those of all clients."""
    effort, problem, dimension = model.run.effort, model.run.problem, model.point.size
    derivable: Any = problem

    def rows(size: int) -> float:
        with derivable.derivatives(model.point, effort.samples) as derivatives:
            return _timed(lambda: derivatives.block(np.arange(size), lambda _: None))

    def product(size: int) -> float:
        with derivable.derivatives(model.point, size) as derivatives:
            return _timed(lambda: derivatives.times(np.ones(dimension)))

    if dimension <= effort.exact_up_to:
        return _scaled(rows, dimension)
    return _scaled(product, min(samples, effort.samples)) * (effort.probes * effort.steps + effort.diagonal_probes)


def _scaled(work: Callable[[int], float], size: int) -> float:
    """Return how long a piece of work takes from a part of it that is large enough; work: its size → seconds."""
    piece = min(PIECE, size)
    work(piece)  # loads what it needs
    while (seconds := work(piece)) < LEAST_S and piece < size:
        piece = min(size, 8 * piece)
    return seconds * size / piece


def _timed(work: Callable[[], object]) -> float:
    began_s = wall_seconds()
    work()
    return wall_seconds() - began_s
