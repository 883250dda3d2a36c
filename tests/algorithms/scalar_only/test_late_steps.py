"""Which scalar-only algorithms take late reports: those whose scalars move x by the same, wherever the model is."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from algorithm_cases import Rehearsal, bits, make, rehearse

from seedbus.algorithms.contract import LateReports
from seedbus.scenarios.schema.discovery import ALGORITHMS

RATE = 10.0
"""A step so large that the rounding of x is small beside it."""
SETTINGS: dict[str, Any] = {"hizoo": {"alpha": 0.5}}
"""With the default, H hardly changes in a few rounds."""
POOLED = {"fedkseed", "fedkseed-pro"}
"""Their commits hold whole numbers of units that are added to x, and no scalars."""
WITH_TERMS = [name for name in ALGORITHMS.all() if not make(name).facts.is_dense and name not in POOLED]
SIZED_BY_THE_SERVER = {"meazo"}
"""Their commits move x as DeComFL's, by an η that the server made for scalars of this version."""


def moved(run: Rehearsal, folded: int, commit: Any, factor: float) -> Any:
    """Return how far a commit's scalars, each times a factor, move the x of a replica with so many commits."""
    points = []
    for times in (factor, 0.0):
        replica = run.newcomer()
        run.algorithm.apply(replica, run.commits[:folded])
        terms = tuple(dataclasses.replace(term, scalars=term.scalars * np.float32(times)) for term in commit.terms)
        run.algorithm.apply(replica, [dataclasses.replace(commit, version=folded + 1, learning_rate=RATE, terms=terms)])
        points.append(np.array(run.algorithm.point(replica), np.float64))
    return points[0] - points[1]


@pytest.mark.parametrize("name", WITH_TERMS)
def test_late_reports_are_taken_by_those_algorithms_whose_scalars_move_every_model_alike(name: str) -> None:
    """A late scalar is added where its round is over: that is right if x moves by a multiple of it, from any state."""
    run = rehearse(make(name, **SETTINGS.get(name, {})), rounds=3)
    commit = run.commits[-1]
    at_last, at_first, half = moved(run, 2, commit, 1.0), moved(run, 0, commit, 1.0), moved(run, 2, commit, 0.5)
    scale = np.abs(at_last).max()
    is_alike = all(np.abs(at_last - other).max() < 1e-3 * scale for other in (at_first, 2 * half))
    assert scale > 1e-3 and run.algorithm.facts.takes_late == (is_alike and name not in SIZED_BY_THE_SERVER)


@pytest.mark.parametrize("name", [name for name in WITH_TERMS if make(name).facts.takes_late])
def test_late_reports_alone_make_a_commit(name: str) -> None:
    run = rehearse(make(name), rounds=2)
    early, now = run.plans
    late = [LateReports(early, run.reports[0], 0.25)]
    commit, _ = run.algorithm.aggregate(run.states[1], now, {}, late=late)
    assert (commit.version, commit.round) == (2, 1) == (now.version + 1, commit.terms[0].round)
    replica, moved = run.newcomer(), run.newcomer()
    for each in (replica, moved):
        run.algorithm.apply(each, run.commits[:1])
    run.algorithm.apply(moved, [commit])
    assert bits(moved.x) != bits(replica.x)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *((name, SETTINGS.get(name, {})) for name in WITH_TERMS),
        ("hiso", {"estimator": "curvature", "nu": 0.5}),
        ("hiso", {"nu": 0.5, "momentum": 0.5, "weight_decay": 0.1}),
        ("decomfl", {"momentum": 0.5, "weight_decay": 0.1, "local_steps": 2}),
    ],
)
def test_a_term_without_weight_is_folded_as_none(name: str, fields: dict[str, Any]) -> None:
    """A commit of late reports alone begins with one."""
    run = rehearse(make(name, **fields), rounds=2)
    first, commit = run.commits
    (own, *_) = commit.terms
    more = dataclasses.replace(own, seed=own.seed + 1, scalars=own.scalars * np.float32(3), weight=0.0)
    replica = run.newcomer()
    run.algorithm.apply(replica, [first, dataclasses.replace(commit, terms=(*commit.terms, more))])
    assert bits(replica) == bits(run.replica)
