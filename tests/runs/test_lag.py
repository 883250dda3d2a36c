"""Lag does not change bits: replicas that took part, lagged, joined late or live in another process are equal.

The logs in `data/` are frozen: a release that replays them to other digests has changed its random stream, its
arithmetic or its wire format, and cannot continue old runs. `python tests/runs/test_lag.py` writes them and their
digests again.
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Any

import algorithm_cases
import msgpack
import numpy as np
import pytest
from algorithm_cases import Log, Quadratic, Rehearsal, bits, make, over_the_wire, rehearse, seed_of, x0
from warm_command import warm

from seedbus.algorithms.contract import Replica
from seedbus.algorithms.directions import reference

DIMENSION, ROUNDS = 5_003, 500
CHANGING: dict[str, Any] = {"perturbations": {0: 5, 200: 7, 400: 3}, "learning_rate": {0: 0.5, 200: 0.25, 400: 0.125}}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "decomfl with momentum": ("decomfl", {**CHANGING, "momentum": 0.9}),
    "hiso, K 2, P 5": ("hiso", {**CHANGING, "local_steps": 2}),
}
FROZEN: dict[str, tuple[str, dict[str, Any]]] = {
    "decomfl-momentum": ("decomfl", {"momentum": 0.5, "perturbations": 10, "learning_rate": 0.5}),
    "hiso-k2-p5": ("hiso", {"local_steps": 2, "perturbations": 5, "learning_rate": 0.5}),
    "schedules-rademacher": (
        "decomfl",
        {"directions": "rademacher", "perturbations": {0: 2, 10: 4}, "learning_rate": {0: 0.5, 20: 0.25}},
    ),
    "float16-median": (
        "hiso",
        {"precision": "float16", "aggregation": "median", "local_steps": 2, "perturbations": 5, "learning_rate": 0.5},
    ),
    "bfloat16-clipped": (
        "decomfl",
        {"precision": "bfloat16", "aggregation": "clipped", "momentum": 0.5, "local_steps": 3, "learning_rate": 0.5},
    ),
}
DATA = Path(algorithm_cases.__file__).with_name("data")


def freeze() -> None:
    """Write the frozen logs, of thirty rounds each."""
    for name, (algorithm, hyperparameters) in FROZEN.items():
        run = rehearse(make(algorithm, **hyperparameters), 30, dimension=DIMENSION)
        log = Log(run.algorithm, DIMENSION, run.commits)
        (DATA / f"{name}.log").write_bytes(log.pack(run.replica.digest()))


@functools.cache
def run_of(name: str) -> Rehearsal:
    """Rehearse five hundred rounds with one client, which takes part in all of them."""
    algorithm, hyperparameters = RUNS[name]
    return rehearse(make(algorithm, **hyperparameters), ROUNDS, clients=1, dimension=DIMENSION)


@pytest.fixture(params=RUNS, scope="module")
def run(request: pytest.FixtureRequest) -> Rehearsal:
    return run_of(request.param)


def caught_up(run: Rehearsal, *cuts: int) -> Replica:
    """Return a replica that catches up from x₀ to each of these versions and to the end, each time over the wire."""
    replica: Replica = run.algorithm.replica(x0(DIMENSION))
    for version in (*cuts, len(run.commits)):
        missed = run.algorithm.pack_commits(run.commits[replica.version : version]).body
        run.algorithm.apply(replica, run.algorithm.unpack_commits(over_the_wire(missed)))
        assert replica.version == version
    return replica


@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param((), id="came late, at 500"),
        pytest.param((499,), id="lagged 499, then 1"),
        pytest.param((1, 64, 65, 199, 201, 400), id="lagged by different lengths"),
        pytest.param(range(0, ROUNDS, 37), id="took part now and then"),
    ],
)
def test_a_client_that_lagged_holds_the_bits_of_one_that_always_took_part(
    run: Rehearsal, cuts: tuple[int, ...]
) -> None:
    assert bits(caught_up(run, *cuts)) == bits(run.replica)


def test_the_schedule_in_force_travels_with_every_commit(run: Rehearsal) -> None:
    shapes = [commit.terms[0].scalars.shape for commit in run.commits]
    steps = shapes[0][0]
    assert shapes == [(steps, 5)] * 200 + [(steps, 7)] * 200 + [(steps, 3)] * 100
    assert [commit.learning_rate for commit in run.commits] == [0.5] * 200 + [0.25] * 200 + [0.125] * 100


def test_a_follower_whose_own_schedule_differs_folds_what_the_commits_say(run: Rehearsal) -> None:
    misled = run.algorithm.model_copy(update={"perturbations": 1, "learning_rate": 9.0, "local_steps": 7})
    replica = misled.replica(x0(DIMENSION))
    misled.apply(replica, run.commits)
    assert bits(replica) == bits(run.replica)


@pytest.mark.slow
def test_another_process_with_two_threads_holds_the_bits_of_this_one_with_one(tmp_path: Path) -> None:
    runs = [run_of(name) for name in RUNS]
    logs = [tmp_path / str(number) for number in range(len(runs))]
    for log, run in zip(logs, runs, strict=True):
        log.write_bytes(Log(run.algorithm, DIMENSION, run.commits).pack())
    command = [str(warm() / "seedbus"), algorithm_cases.__file__, "2", "1024", *map(str, logs)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [run.replica.digest() for run in runs]


def test_one_flipped_bit_shows_in_the_digest_of_its_field_and_of_no_other(run: Rehearsal) -> None:
    truth = run.replica.digests()
    for name in truth:
        for coordinate in (0, 2_500, DIMENSION - 1):
            replica = run.replica.copy()
            replica.fields[name].view(np.uint32)[coordinate] ^= 1
            assert {key for key, digest in replica.digests().items() if digest != truth[key]} == {name}


@pytest.mark.slow
def test_ten_thousand_missed_rounds_fold_to_the_bits_of_one_by_one() -> None:
    algorithm, hyperparameters = RUNS["hiso, K 2, P 5"]
    run = rehearse(make(algorithm, **hyperparameters), 10_000, clients=1, dimension=DIMENSION)
    assert bits(caught_up(run)) == bits(run.replica)
    assert bits(caught_up(run, 1, 9_999)) == bits(run.replica)


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_log_replays_to_the_digest_recorded_with_it(name: str) -> None:
    log, recorded = Log.unpack((DATA / f"{name}.log").read_bytes())
    assert bits(log.algorithm) == bits(make(FROZEN[name][0], **FROZEN[name][1]).sized(DIMENSION))
    assert len(log.commits) == 30
    assert log.replay().digest() == recorded
    packed, kept = (msgpack.unpackb(each) for each in (log.pack(recorded), (DATA / f"{name}.log").read_bytes()))
    assert packed[2:] == kept[2:], "but for hyperparameters that are new since, the same bytes"


@pytest.mark.few(4)
@pytest.mark.parametrize("name", FROZEN)
def test_the_reference_replays_a_frozen_log_to_the_same_digest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbus.algorithms.scalar_only.base.directions_for", lambda kind, x: reference(kind))
    log, recorded = Log.unpack((DATA / f"{name}.log").read_bytes())
    assert log.replay().digest() == recorded


def test_local_work_of_a_laggard_reports_the_scalars_of_who_always_took_part(run: Rehearsal) -> None:
    plan = run.algorithm.plan(ROUNDS, ROUNDS, seed_of(ROUNDS))

    def report(replica: Replica) -> Any:
        return run.algorithm.local(replica, None, plan, Quadratic(DIMENSION, 1, ROUNDS))[0]

    assert bits(report(caught_up(run, 250))) == bits(report(run.replica))


if __name__ == "__main__":
    freeze()
