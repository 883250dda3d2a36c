"""Every algorithm on vectors of a device: its promises hold there, and its bits are those of NumPy and Numba.

Without a GPU there are two devices: torch's own operations, and Triton's kernels in their interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import algorithm_cases
import msgpack
import numpy as np
import pytest
from algorithm_cases import CONFIGURATIONS, DIMENSION, make, objective, x0
from devices import DEVICE, IS_PROCESSOR, TORCH_DEVICE, there
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbus.agents.catch_up import chunks
from seedbus.algorithms.directions import bfloat16, directions, directions_for, law_of, reference, selftest
from seedbus.algorithms.directions.tensor_directions import on_device as directions_on
from seedbus.models.device import on_device
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.studies.check import algorithm as conformance
from seedbus.tensors import TensorVector

BACKENDS = {"torch": "TorchDirections", "triton": "TritonReplay"} if IS_PROCESSOR else {DEVICE: "TritonReplay"}
CASES = [pytest.param(name, {}, id=name) for name in ALGORITHMS.all()] + [
    pytest.param(name, hyperparameters, id=f"{name}-{case}")
    for name, cases in CONFIGURATIONS.items()
    for case, hyperparameters in cases.items()
]
OF_REPLICAS = (
    conformance.local_work_leaves_the_replica_untouched_and_is_deterministic,
    conformance.local_work_evaluates_the_loss_as_often_as_declared,
    conformance.diagnostics_are_figures_that_leave_the_replica_untouched,
    conformance.every_commit_moves_x,
    conformance.commits_fold_to_the_same_bits_one_by_one_all_at_once_and_in_chunks,
    conformance.a_commit_folded_twice_changes_nothing,
    conformance.a_gap_is_refused_and_leaves_the_replica_untouched,
    conformance.a_catch_up_brings_a_laggard_to_the_same_bits,
    conformance.a_client_is_never_handed_the_servers_own_vectors,
)
"""Promises of a replica and of the work on it; what others are about, such as messages, is on no device."""
each_case = pytest.mark.parametrize(("name", "fields"), CASES)


@contextmanager
def running(backend: str) -> Iterator[None]:
    """Within this context problems are bound on the device, and directions on it come from a backend."""
    with ExitStack() as stack:
        if backend == "triton":
            import triton_device

            stack.enter_context(triton_device.running())
        stack.enter_context(on_device(DEVICE))
        yield


def fewer(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with at most two steps of two directions: torch is slow here, and the interpreter draws fifty of
    them a second."""

    def least(value: Any) -> Any:
        return {round: min(of_round, 2) for round, of_round in value.items()} if type(value) is dict else min(value, 2)

    defaults = {key: field.default for key, field in ALGORITHMS.all()[name].model_fields.items()}
    given = {key: fields.get(key, defaults.get(key)) for key in ("perturbations", "local_steps")}
    return fields | {key: least(value) for key, value in given.items() if value is not None}


def adds_coordinates(algorithm: Any) -> bool:
    """Whether what a client reports depends on sums over coordinates, which a device takes in an order of its own."""
    return algorithm.facts.is_dense or bool(algorithm.derivatives)


@pytest.mark.few(1, slow=36)
@each_case
def test_an_algorithm_keeps_its_promises_on_vectors_of_a_device(name: str, fields: dict[str, Any]) -> None:
    """And all its rounds, with clients' memories, have the host's bits."""
    algorithm = make(name, **fewer(name, fields))
    host = algorithm_cases.rehearse(algorithm, 4)
    with running(next(iter(BACKENDS))):
        run = algorithm_cases.rehearse(algorithm, 4, place=there)
        assert all(isinstance(field, TensorVector) for field in run.replica.fields.values())
        for promise in OF_REPLICAS:
            promise(run)
    if adds_coordinates(run.algorithm):
        assert np.allclose(run.replica.x, host.replica.x, rtol=1e-4, atol=1e-6)
    else:
        assert run.replica.digest() == host.replica.digest()


@pytest.mark.few(1, slow=60)
@pytest.mark.parametrize(
    ("name", "fields", "backend"),
    [
        pytest.param(*case.values, backend, id=f"{case.id}-{backend}")
        for number, case in enumerate(CASES)
        for place, backend in enumerate(BACKENDS)
        if number < len(ALGORITHMS.all()) or (number + place) % 2 or len(BACKENDS) == 1  # configurations take turns
    ],
)
def test_folding_local_work_and_snapshots_have_the_hosts_bits(name: str, fields: dict[str, Any], backend: str) -> None:
    run = algorithm_cases.rehearse(make(name, **fewer(name, fields)), 2, clients=2)
    algorithm, memory = run.algorithm, None
    with running(backend):
        replica, late = (algorithm.replica(x0()).placed(there) for _ in range(2))
        assert type(directions_for("gaussian", there(x0())).backend).__name__ == BACKENDS[backend]  # type: ignore[attr-defined]
        for plan, reports, commit in zip(run.plans, run.reports, run.commits, strict=True):
            if algorithm.facts.is_dense or plan.round:  # clients without a memory have nothing of their own
                own = objective(algorithm, 0, plan.round, place=there)
                report, memory = algorithm.local(replica, memory, plan, own)
                memory = msgpack.unpackb(msgpack.packb(memory))  # as a process keeps it on the disk
                mine, theirs = (np.asarray(algorithm.values(each), np.float32) for each in (report, reports[0]))
                if adds_coordinates(algorithm):
                    assert np.allclose(mine, theirs, rtol=1e-4, atol=1e-6)
                else:
                    assert mine.tobytes() == theirs.tobytes()
            algorithm.apply(replica, [commit])
            if plan.round == 0:
                title, shape = chunks.title_of(replica, 1000), chunks.shape_of(replica)
                pieces = [chunks.cut(replica, title, index, 1000).data for index in range(title.count)]
                snapshot = chunks.restored(shape, title, b"".join(pieces)).placed(there)
        algorithm.apply(late, run.commits)
        algorithm.apply(snapshot, run.commits[1:])
    assert replica.digest() == late.digest() == snapshot.digest() == run.replica.digest()
    assert all(isinstance(field, TensorVector) for each in (late, snapshot) for field in each.fields.values())


@settings(max_examples=30)
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


def test_a_process_on_a_device_that_rounds_ties_away_from_zero_shows_another_self_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = selftest()
    monkeypatch.setattr(bfloat16, "_rounded", lambda bits, where: bits + 0x8000)
    assert selftest(place=there) != ours


def test_a_replica_on_a_device_is_digested_and_copied_like_one_on_the_host() -> None:
    algorithm = make("hiso").sized(DIMENSION)
    here = algorithm.replica(x0())
    copied_there = here.placed(there)
    assert copied_there.digest() == here.digest() and copied_there.dimension == here.dimension
    copied = copied_there.copy()
    copied.fields["x"] += 1
    assert copied_there.digest() == here.digest() != copied.digest()
