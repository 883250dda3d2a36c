"""What every law of directions promises."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from seedbus.algorithms.directions import Directions, directions, philox4x32, reference, stream_key
from seedbus.algorithms.directions.laws.law import HALF, PROBABILITIES, mirrored
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.studies.check import algorithm
from seedbus.studies.check.promises import brief, require, require_same
from seedbus.studies.check.rehearsal import Rehearsal, rehearse

TOLERANCE = 0.01
_DIMENSION = 5_003
_STREAM = {"seed": 2**63 + 9, "step": 3, "perturbation": 2**32 - 1}


def results(law: Any) -> Any:
    """Return what another process has to find, too."""
    return [law.table, _drawn(reference(law))]


def _drawn(source: Directions, start: int = 0, size: int = _DIMENSION) -> Any:
    z = np.empty(size, np.float32)
    source.fill(z, start=start, **_STREAM)
    return z


def a_law_is_frozen_and_can_be_a_key(law: Any) -> None:
    """No field of a law can be changed, none is a list or a dict, and a field that it does not have is refused."""
    hash(law)
    for field in type(law).model_fields:
        try:
            setattr(law, field, getattr(law, field))
        except ValidationError:
            continue
        raise AssertionError(f"{field} was changed; its class has to be frozen")
    try:
        type(law)(**law.model_dump() | {"densitty": 0.1})
    except ValidationError:
        return
    raise AssertionError("densitty: 0.1 was accepted; its class has to have extra='forbid'")


def quantiles_are_finite_and_ascend_from_0(law: Any) -> None:
    """Its 32,768 quantiles are finite numbers that ascend, and none is below 0, the median."""
    values = np.asarray(law.quantiles(PROBABILITIES))
    require(values.shape == (HALF,) and values.dtype.kind in "fiu", f"the quantiles are {brief(values)}")
    with np.errstate(over="ignore"):
        table = values.astype(np.float32)
    require(np.isfinite(table).all(), f"the largest quantile is {table[-1]}, at a probability of {PROBABILITIES[-1]}")
    require(table[0] >= 0, f"at a probability of {PROBABILITIES[0]} the quantile is {table[0]}, below the median")
    falls = np.flatnonzero(np.diff(table) < 0)
    if falls.size:
        at = int(falls[0])
        where = f"{PROBABILITIES[at]:.6f} and {PROBABILITIES[at + 1]:.6f}"
        raise AssertionError(f"at probabilities of {where} the quantiles are {table[at]} and {table[at + 1]}")


def fields_alone_decide_the_quantiles(law: Any) -> None:
    """The same fields have the same quantiles, also when they were written as JSON and read again."""
    first = np.array(law.quantiles(PROBABILITIES))
    require_same(np.array(law.quantiles(PROBABILITIES)), first, "computed again, the quantiles", "and before")
    again = type(law).model_validate_json(law.model_dump_json())
    require_same(np.array(again.quantiles(PROBABILITIES)), first, "of what was read, the quantiles", "and before")


def coordinates_have_variance_1(law: Any) -> None:
    """Coordinates have variance 1, within a hundredth; by symmetry their mean is 0."""
    table = law.table.astype(np.float64)
    variance = float(np.mean(table * table))
    advice = f"divide the quantiles by {math.sqrt(variance):.6g}" if variance else "they are all 0"
    require(abs(variance - 1) <= TOLERANCE, f"the variance is {variance:.6g}: {advice}")


def _backends(law: Any) -> Iterator[tuple[str, Directions]]:
    yield "NumPy", reference(law)
    yield "Numba", directions(law)


def every_backend_draws_the_quantiles_that_the_stream_chooses(law: Any) -> None:
    """Every backend draws, for any span, the quantiles that the numbers of the stream choose."""
    counter = np.zeros((-(-_DIMENSION // 8), 4), np.uint32)
    counter[:, 0] = np.arange(len(counter))
    counter[:, 1], counter[:, 2] = _STREAM["step"], _STREAM["perturbation"]
    numbers = philox4x32(counter, stream_key(law, _STREAM["seed"])).astype("<u4").reshape(-1).view("<u2")
    chosen = mirrored(law.table)[numbers][:_DIMENSION]
    for name, source in _backends(law):
        for start, stop in ((0, _DIMENSION), (4_096, _DIMENSION), (128, 129)):
            drawn = _drawn(source, start, stop - start)
            require_same(drawn, chosen[start:stop], f"from {start} on {name} draws", "and the quantiles are")


def _rehearsed(law: Any, name: str = "decomfl", **fields: Any) -> Rehearsal:
    return rehearse(ALGORITHMS.all()[name](directions=law, **fields))


def algorithms_keep_their_contract_with_it(law: Any) -> None:
    """DeComFL, HiSo, and exact sums and FedKSeed if it stays below 8, keep the promises of an algorithm with it."""
    runs = [_rehearsed(law, "decomfl", local_steps=2), _rehearsed(law, "hiso", perturbations=2)]
    if law.table.max() < 7.999:
        runs += [_rehearsed(law, "decomfl", arithmetic="integer"), _rehearsed(law, "fedkseed", pool=50)]
    for run in runs:
        for promise in (
            algorithm.fields_survive_a_round_trip_as_text,
            algorithm.local_work_leaves_the_replica_untouched_and_is_deterministic,
            algorithm.every_commit_moves_x,
            algorithm.commits_fold_to_the_same_bits_one_by_one_all_at_once_and_in_chunks,
            algorithm.a_catch_up_brings_a_laggard_to_the_same_bits,
        ):
            promise(run)


def a_run_with_losses_and_laggards_ends_with_the_same_bits_everywhere(law: Any) -> None:
    """In a run with lost messages, and clients that lag, all verified replicas have the same bits."""
    algorithm.a_run_with_losses_and_laggards_ends_with_the_same_bits_everywhere(_rehearsed(law))


def a_run_that_is_interrupted_and_resumed_ends_alike(law: Any) -> None:
    """A run that is interrupted and resumed ends as one that never was."""
    algorithm.a_run_that_is_interrupted_and_resumed_ends_alike(_rehearsed(law))


def two_worker_processes_give_the_same_bits_as_one(law: Any) -> None:
    """A run in two worker processes ends as in one process, bit for bit."""
    algorithm.two_worker_processes_give_the_same_bits_as_one(_rehearsed(law))


CONTRACT: Sequence[Any] = [
    a_law_is_frozen_and_can_be_a_key,
    quantiles_are_finite_and_ascend_from_0,
    fields_alone_decide_the_quantiles,
    coordinates_have_variance_1,
    every_backend_draws_the_quantiles_that_the_stream_chooses,
    algorithms_keep_their_contract_with_it,
]
RUNS: Sequence[Any] = [
    a_run_with_losses_and_laggards_ends_with_the_same_bits_everywhere,
    a_run_that_is_interrupted_and_resumed_ends_alike,
]
WORKERS: Sequence[Any] = [two_worker_processes_give_the_same_bits_as_one]
