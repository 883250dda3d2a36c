"""What every codec of vectors promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from seedbus.algorithms.contract import BadPayload, Vector
from seedbus.algorithms.dense.base import FedAvg
from seedbus.models.generators import generator
from seedbus.studies.check import algorithm
from seedbus.studies.check.promises import (
    brief,
    bytes_of,
    digest,
    over_the_wire,
    require,
    require_same,
    spoiled,
)
from seedbus.studies.check.rehearsal import rehearse


def vectors() -> Iterator[Vector]:
    """Yield forty vectors of 1 to 70 coordinates below 2⁹: constant, sparse and tiny ones among them."""
    yield np.zeros(5, np.float32)
    yield np.full(9, -3.5, np.float32)
    for number in range(38):
        draw = generator("conformance", "codec", number)
        vector = draw.uniform(-1, 1, int(draw.integers(1, 71))) * 2.0 ** draw.integers(-40, 10)
        yield (vector * (draw.random(vector.size) < (0.1, 1.0)[number % 2])).astype(np.float32)


def results(codec: Any) -> Any:
    """Return what another process has to find, too."""
    return [codec.encode(vector, number) for number, vector in enumerate(vectors())]


def round_trip(codec: Any, vector: Vector, key: int) -> None:
    """Raise AssertionError unless a vector is encoded and decoded as the contract says."""
    before = vector.copy()
    body = codec.encode(vector, key)
    require_same(vector, before, "after encoding the vector", "and before")
    require_same(codec.encode(vector.copy(), key), body, "encoded again it", "and before")
    arrived = codec.decode(over_the_wire(body), vector.size)
    require(
        isinstance(arrived, np.ndarray) and (arrived.dtype, arrived.shape) == (np.float32, vector.shape),
        f"{brief(vector)} was decoded to {brief(arrived)}",
    )
    require_same(codec.decode(body, vector.size), arrived, "decoded again it", "and before")
    require(np.isfinite(arrived).all(), f"{brief(vector)} was decoded to {brief(arrived)}")
    size, most = bytes_of(body), codec.most_bytes(vector.size)
    require(size <= most, f"{vector.size} coordinates take {size} bytes, and most_bytes says {most}")


def a_vector_is_encoded_deterministically_within_its_size_limit(codec: Any) -> None:
    """A vector and a key decide the bytes, at most `most_bytes`; numbers below 2⁹ decode to a finite float32 vector."""
    for number, vector in enumerate(vectors()):
        round_trip(codec, vector, number * 2**57)


def a_vector_that_is_not_finite_does_not_decode_to_a_finite_one(codec: Any) -> None:
    """A vector with NaN or ∞ does not decode to a finite one, so that the server refuses it."""
    for wrong in (np.nan, np.inf, -np.inf):
        vector = np.cos(np.arange(200, dtype=np.float32))
        vector[17] = wrong
        with np.errstate(all="ignore"):
            arrived = codec.decode(over_the_wire(codec.encode(vector, 1)), vector.size)
        require(not np.isfinite(arrived).all(), f"with {wrong} at 17 it was decoded to {brief(arrived)}")


def any_body_decodes_or_is_refused(codec: Any) -> None:
    """Whatever a peer sends decodes to a float32 vector of the right size, or is refused with BadPayload."""
    with np.errstate(all="ignore"):
        for body in spoiled(codec.encode(np.cos(np.arange(9, dtype=np.float32)), 1)):
            takes(codec, body, 9)


def takes(codec: Any, body: Any, dimension: int) -> None:
    """Raise AssertionError unless a body decodes or is refused with BadPayload."""
    try:
        decoded = codec.decode(body, dimension)
    except BadPayload:
        return
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise AssertionError(f"{body!r:.80} raised {what}; expected BadPayload") from error
    require(
        isinstance(decoded, np.ndarray) and (decoded.dtype, decoded.shape) == (np.float32, (dimension,)),
        f"{body!r:.80} was decoded to {brief(decoded)} where {dimension} coordinates were expected",
    )


def scalars_are_counted(codec: Any) -> None:
    """`scalars` says how many of a vector's numbers are sent, at most all of them."""
    for dimension in (1, 9, 1_000):
        count = codec.scalars(dimension)
        require(isinstance(count, int) and 0 <= count <= dimension, f"of {dimension} numbers it says {count!r}")


def fedavg_keeps_its_contract_with_it(codec: Any) -> None:
    """FedAvg with this codec keeps the promises of an algorithm: client and server use the same decoded update."""
    fedavg_with(compression=codec)


def fedavg_with(**fields: Any) -> None:
    """Raise AssertionError unless FedAvg with these fields keeps the contract of algorithms."""
    clients = max(3, getattr(fields.get("aggregation"), "fewest_reports", 1))
    run = rehearse(FedAvg(learning_rate=0.5, **fields), clients=clients)
    again = rehearse(FedAvg(learning_rate=0.5, **fields), clients=clients)
    found, expected = digest(again.commits), digest(run.commits)
    require(found == expected, f"a second run's commits have digest {found}, and the first's {expected}")
    for check in (
        algorithm.local_work_leaves_the_replica_untouched_and_is_deterministic,
        algorithm.the_order_of_arrival_does_not_change_a_commit,
        algorithm.the_servers_state_survives_a_checkpoint,
        algorithm.aggregating_leaves_state_and_reports_untouched,
        algorithm.plans_reports_and_commits_survive_a_round_trip,
        algorithm.a_report_that_would_poison_the_model_is_refused,
    ):
        check(run)


CONTRACT: Sequence[Any] = [
    a_vector_is_encoded_deterministically_within_its_size_limit,
    a_vector_that_is_not_finite_does_not_decode_to_a_finite_one,
    any_body_decodes_or_is_refused,
    scalars_are_counted,
    fedavg_keeps_its_contract_with_it,
]
