"""The contract of every algorithm. An algorithm joins this suite by being a file in the folder."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import algorithm_cases
import numpy as np
import pytest
from algorithm_cases import CONFIGURATIONS, DIMENSION, Log, Rehearsal, bits, make, over_the_wire
from promised import keep
from warm_command import warm

from seedbus.algorithms.directions import set_threads
from seedbus.algorithms.directions.blocks import BLOCK
from seedbus.algorithms.scalar_only.precision import WIRE_FORMATS
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.studies.check import algorithm as conformance
from seedbus.studies.check.promises import Promise

CASES = [pytest.param(make(name), id=name) for name in ALGORITHMS.all()] + [
    pytest.param(make(name, **hyperparameters), id=f"{name}-{case}")
    for name, cases in CONFIGURATIONS.items()
    for case, hyperparameters in cases.items()
]
each_algorithm = pytest.mark.parametrize("algorithm", CASES)


@pytest.fixture(params=CASES, scope="module")
def run(request: pytest.FixtureRequest) -> Rehearsal:
    """Seven rounds of three clients, or of one client for single-client algorithms."""
    return algorithm_cases.rehearse(request.param)


@pytest.fixture
def blocks_and_threads() -> Iterator[None]:
    yield
    algorithm_cases.set_block(BLOCK)
    set_threads(1)


@pytest.mark.few(9)
def test_an_algorithm_keeps_its_promises(run: Rehearsal) -> None:
    keep(run.algorithm.name, conformance.CONTRACT, run)


@pytest.mark.parametrize(
    "promise", [*conformance.RUNS, *conformance.WORKERS], ids=lambda promise: str(promise.__name__)
)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "hiso",
        "mezo",
        "zo-adam",
        "meazo",
        "fedkseed-pro",
        "scaffold",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("hizoo", "fedexp")),
    ],
)
@pytest.mark.usefixtures("warm_workers")
def test_whole_runs_keep_their_promises(name: str, promise: Promise) -> None:
    promise(algorithm_cases.rehearse(make(name)))


# description and fields


def test_every_algorithm_of_the_papers_is_discovered() -> None:
    averaging = {"fedavg", "fedavgm", "fedprox", "fedacg", "feddyn", "fedcm", "feddc", "scaffold", "fednova", "mifa"}
    adaptive = {"fedadam", "fedyogi", "fedadagrad", "fedexp"}
    scalar = {"decomfl", "hiso", "hizoo", "mezo", "fedkseed", "feedsign", "lozo", "zo-signsgd", "zo-adam"}
    scalar |= {"fedscalar", "fedscalar-shared", "zo-yogi", "zo-rmsprop", "r-adazo", "fzoo", "meazo", "fedkseed-pro"}
    assert scalar | {"fedzo", "dzopa", "zone-s"} | averaging | adaptive <= set(ALGORITHMS.all())
    assert set(CONFIGURATIONS) <= set(ALGORITHMS.all())


@each_algorithm
def test_an_algorithm_and_every_field_have_a_description(algorithm: Any) -> None:
    assert "arXiv" in (type(algorithm).__doc__ or "")
    assert algorithm.name in ALGORITHMS.all()
    for name, field in type(algorithm).model_fields.items():
        assert name == "name" or field.description, f"{name} has no description"


def test_every_round_moves_every_field(run: Rehearsal) -> None:
    """Otherwise the rest of this file would prove nothing."""
    replica, moving = run.newcomer(), set()
    for commit in run.commits:
        before = replica.digests()
        run.algorithm.apply(replica, [commit])
        moving |= {name for name, digest in replica.digests().items() if digest != before[name]}
        assert replica.digests()["x"] != before["x"]
    assert moving == set(replica.fields) - ({"hessian"} if getattr(run.algorithm, "nu", None) == 0 else set())


@pytest.mark.few(24)
def test_neither_blocks_nor_threads_change_a_bit(run: Rehearsal, blocks_and_threads: None) -> None:
    for block, threads in ((128, 3), (384, 1)):  # the reference is one block on one thread
        algorithm_cases.set_block(block)
        set_threads(threads)
        replica = run.newcomer()
        run.algorithm.apply(replica, run.commits)
        assert bits(replica) == bits(run.replica), (block, threads)
        plan = run.algorithm.plan(0, 0, algorithm_cases.seed_of(0))
        report, _ = run.algorithm.local(run.newcomer(), None, plan, run.objective(0, 0))
        assert bits(report) == bits(run.reports[0][0]), (block, threads)


@pytest.mark.slow
def test_another_process_replays_to_the_same_digests(tmp_path: Path) -> None:
    expected, paths = [], []
    for number, (algorithm,) in enumerate(case.values for case in CASES):
        run = algorithm_cases.rehearse(algorithm, 3, clients=1)
        path = tmp_path / str(number)
        path.write_bytes(Log(algorithm, DIMENSION, run.commits).pack())
        expected.append(run.replica.digest())
        paths.append(str(path))
    command = [str(warm() / "seedbus"), algorithm_cases.__file__, "2", "256", *paths]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == expected


# the server


def test_scalars_are_rounded_to_the_wire_format_everywhere(run: Rehearsal) -> None:
    """Reports and commits contain only numbers that the wire format represents exactly."""
    if run.algorithm.facts.is_dense:
        received = [
            run.algorithm.unpack_report(over_the_wire(run.algorithm.pack_report(plan, r).body), plan)
            for plan, reports in zip(run.plans, run.reports, strict=True)
            for r in reports.values()
        ]
        sent = [report for reports in run.reports for report in reports.values()]
        assert [bits(report.vectors) for report in received] == [bits(report.vectors) for report in sent]
        return
    form = WIRE_FORMATS[run.algorithm.precision]
    sent = [run.algorithm.values(report) for reports in run.reports for report in reports.values()]
    if run.algorithm.arithmetic == "integer":
        committed = []
        for commit in run.commits:
            numbers = [commit.numbers] if hasattr(commit, "numbers") else [term.scalars for term in commit.terms]
            assert {each.dtype.kind for each in numbers} == {"i"}
    else:
        committed = [term.scalars for commit in run.commits for term in commit.terms]
    for scalars in sent + committed:
        assert bits(form.widen(form.narrow(scalars))) == bits(scalars)


def test_a_report_that_would_poison_the_model_is_refused_with_its_reason(run: Rehearsal) -> None:
    precision = getattr(run.algorithm, "precision", "")
    for value in (np.nan, np.inf, -np.inf, 1e38, -1e38):
        reason = "absurd" if np.isfinite(value) else "not-finite"
        expected = {"float16": "not-finite", "sign": "harmless"}.get(precision, reason)
        assert conformance.refusal(run, value) == expected, value


def test_a_flipped_bit_changes_the_digest_of_its_field(run: Rehearsal) -> None:
    for name in run.replica.fields:
        replica = run.replica.copy()
        replica.fields[name].view(np.uint8)[-1] ^= 1
        differing = {key for key, digest in replica.digests().items() if digest != run.replica.digests()[key]}
        assert differing == {name}
        assert replica.digest() != run.replica.digest()
    assert dataclasses.replace(run.replica, version=1).digest() != run.replica.digest()
