"""Runs that diverge: what overflows is refused or measured as it is, without a warning or a traceback."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from algorithm_cases import Quadratic, make, seed_of, x0

from seedbus.algorithms.contract import ReportRefused
from seedbus.algorithms.directions import directions
from seedbus.algorithms.scalar_only import perturbed
from seedbus.algorithms.scalar_only.differences import projections
from seedbus.algorithms.scalar_only.perturbed import PERTURBED_MODELS

D = 40


def in_another_thread(dimension: int, work: Callable[[slice], None], **_: Any) -> None:
    """Do as `for_blocks` does with a helper: NumPy's state of errors is that of a new thread."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, slice(0, dimension)).result()


@pytest.mark.parametrize("revert", ["copy", "compensate"])
def test_a_local_step_that_overflows_on_another_thread_warns_of_nothing(
    revert: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = make("decomfl", revert=revert, perturbations=1, learning_rate=9e36)
    plan = algorithm.plan(0, 0, seed_of(0))
    replica = algorithm.replica(x0(D))
    model = PERTURBED_MODELS[revert](algorithm, directions("gaussian"), replica, plan)
    monkeypatch.setattr(perturbed, "for_blocks", in_another_thread)
    model.advance(np.full(1, 1e6, np.float32))


def test_the_projection_of_a_gradient_that_overflowed_is_no_number() -> None:
    gradient = np.full(D, np.inf, np.float32)
    signs = np.where(np.arange(D) % 2, np.float32(1), np.float32(-1))
    (found,) = projections(gradient, lambda out, p, span: np.copyto(out, signs[span]), 1)
    assert math.isnan(found)


@pytest.mark.parametrize("name", ["hiso", "hizoo"])
def test_a_hessian_that_overflowed_is_shown_as_it_is(name: str) -> None:
    """One client that lies leads H there in a few rounds."""
    algorithm = make(name)
    replica = algorithm.replica(x0(D))
    replica.fields["hessian"][0] = np.inf
    found = algorithm.diagnostics(replica)
    assert found["hessian_mean"] == math.inf
    assert math.isnan(found["hessian_cv"])


def test_a_scalar_that_no_norm_divides_is_refused_as_no_number() -> None:
    algorithm = make("hiso", normalise=True, perturbations=2)
    replica, plan = algorithm.replica(x0(D)), algorithm.plan(0, 0, seed_of(0))
    replica.fields["hessian"][:] = np.inf
    report, _ = algorithm.local(replica, None, plan, Quadratic(D, 0, 0))
    with pytest.raises(ReportRefused, match="not a finite number"):
        algorithm.check(plan, report)
