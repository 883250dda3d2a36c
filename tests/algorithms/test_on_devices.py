"""Every algorithm on vectors of a device: replicas have the same bits as on the host, and so have its scalars."""

from __future__ import annotations

from typing import Any

import algorithm_cases
import numpy as np
import pytest
from algorithm_cases import CONFIGURATIONS, DIMENSION, make, objective, x0
from devices import DEVICE, TORCH_DEVICE, there
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import directions, law_of, reference, selftest
from seedbus.algorithms.directions.tensor_directions import on_device as directions_on
from seedbus.models.device import on_device
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.tensors import TensorVector

CASES = [pytest.param(make(name), id=name) for name in ALGORITHMS.all()] + [
    pytest.param(make(name, **hyperparameters), id=f"{name}-{case}")
    for name, cases in CONFIGURATIONS.items()
    for case, hyperparameters in cases.items()
]


def moved(replica: Replica) -> Replica:
    """Return a replica whose vectors lie in torch's memory."""
    return Replica(replica.version, {name: there(field) for name, field in replica.fields.items()})


@pytest.mark.few(10)
@pytest.mark.parametrize("algorithm", CASES)
def test_folding_and_local_work_have_the_hosts_bits(algorithm: Any) -> None:
    clients = min(2, algorithm.most_clients or 2)
    run = algorithm_cases.rehearse(algorithm, 3, clients=clients)
    algorithm = run.algorithm
    replica = moved(algorithm.replica(x0()))
    for plan, reports, commit in zip(run.plans, run.reports, run.commits, strict=True):
        if algorithm.is_dense and plan.round:
            break  # what a client remembers of earlier rounds is tested in whole runs
        with on_device(DEVICE):
            own = objective(algorithm, 0, plan.round)
        if type(own) is algorithm_cases.Quadratic:
            own.point = there(own.point)
        report, _ = algorithm.local(replica, None, plan, own)
        mine, theirs = (np.asarray(algorithm.values(each), np.float32) for each in (report, reports[0]))
        if algorithm.is_dense or "projection" in str(algorithm.estimator):  # sums over coordinates in another order
            assert np.allclose(mine, theirs, rtol=1e-4, atol=1e-6)
        else:
            assert mine.tobytes() == theirs.tobytes()
        algorithm.apply(replica, [commit])
    late = moved(algorithm.replica(x0()))
    algorithm.apply(late, run.commits)
    assert late.digest() == run.replica.digest()
    assert all(isinstance(field, TensorVector) for field in late.fields.values())


@settings(deadline=None, max_examples=30)
@given(
    kind=st.sampled_from(["gaussian", "rademacher"]),
    size=st.integers(1, 700),
    start=st.integers(0, 2**20).map(lambda blocks: 128 * blocks),
    seed=st.integers(0, 2**64 - 1),
    step=st.integers(0, 2**32 - 2),
    count=st.integers(1, 4),
    divided=st.booleans(),
)
def test_directions_on_tensors_have_the_references_bits(
    kind: Any, size: int, start: int, seed: int, step: int, count: int, divided: bool
) -> None:
    where: dict[str, Any] = {"seed": seed, "step": step, "start": start}
    x = np.cos(np.arange(size, dtype=np.float32))
    scalars, roots = np.sin(np.arange(count) + 0.5).astype(np.float32), 1 + x * x if divided else None
    results = []
    for backend, place in (
        (reference(kind), np.array),
        (directions_on(law_of(kind), TORCH_DEVICE.partition(":")[0]), there),
    ):
        own, divisor = place(x), None if roots is None else place(roots)
        z, delta, moved_x = (np.empty_like(own) for _ in range(3))
        backend.fill(z, perturbation=count, **where)
        backend.accumulate(delta, scalars, divisor=divisor, **where)
        backend.perturb(moved_x, own, 1e-3, perturbation=0, divisor=divisor, **where)
        results.append([np.asarray(each).tobytes() for each in (z, delta, moved_x)])
    assert results[0] == results[1]


def test_a_process_on_a_device_shows_the_hosts_self_test() -> None:
    assert selftest(place=there) == selftest() == selftest(reference) == selftest(directions)


def test_a_replica_on_a_device_is_digested_and_copied_like_one_on_the_host() -> None:
    algorithm = make("hiso").sized(DIMENSION)
    here = algorithm.replica(x0())
    copied_there = moved(here)
    assert copied_there.digest() == here.digest() and copied_there.dimension == here.dimension
    copied = copied_there.copy()
    copied.fields["x"] += 1
    assert copied_there.digest() == here.digest() != copied.digest()
