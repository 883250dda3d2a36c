"""What every channel promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seedbus.studies.check.codec import fedavg_with
from seedbus.studies.check.promises import brief, require, require_same, seed_of
from seedbus.studies.check.runs import TWO_WORKERS, ended, require_equal_ends, world

_ASKED = [(round, client) for round in range(20) for client in range(20)]
_NORMS = ([2.0], [0.5, 3.0, 1.0], [0.0, 0.0])


def results(channel: Any) -> Any:
    """Return what another process has to find, too."""
    reached = [bool(channel.reaches(seed_of(round), client)) for round, client in _ASKED]
    return reached, [channel.noise(seed_of(1), number, norms, 50) for number, norms in enumerate(_NORMS)]


def whom_it_reaches_depends_on_the_round_and_the_client_alone(channel: Any) -> None:
    """Whom it reaches is a bool that the round's seed and the client alone decide, and it reaches somebody."""
    first = [channel.reaches(seed_of(round), client) for round, client in _ASKED]
    again = [channel.reaches(seed_of(round), client) for round, client in reversed(_ASKED)][::-1]
    kinds = {type(each).__name__ for each in first}
    require(kinds <= {"bool", "bool_"}, f"it answered with {sorted(kinds)}, not with bool")
    for (round, client), one, other in zip(_ASKED, first, again, strict=True):
        where = f"client {client} in round {round}"
        require(one == other, f"{where} was {'' if one else 'not '}reached at first, and otherwise when asked again")
    require(any(first), "of 20 clients it reached none in 20 rounds")


def noise_is_a_finite_vector_that_its_arguments_decide(channel: Any) -> None:
    """Noise is a finite float32 vector that the round's seed, the vector's number, the norms and d alone decide."""
    asked = [
        (seed, number, norms, d) for seed in (1, 2**64 - 1) for number in (0, 1) for norms in _NORMS for d in (1, 50)
    ]
    first = [channel.noise(seed, number, list(norms), d) for seed, number, norms, d in asked]
    again = [channel.noise(seed, number, list(norms), d) for seed, number, norms, d in reversed(asked)][::-1]
    for (_, _, norms, d), one, other in zip(asked, first, again, strict=True):
        is_vector = isinstance(one, np.ndarray) and (one.dtype, one.shape) == (np.float32, (d,))
        require(is_vector and np.isfinite(one).all(), f"for norms {norms} and d = {d} it is {brief(one)}")
        require_same(other, one, "asked again the noise", "and before")


def fedavg_keeps_its_contract_with_it(channel: Any) -> None:
    """FedAvg over this channel keeps the promises of an algorithm."""
    fedavg_with(channel=channel)


def two_worker_processes_give_the_same_bits_as_one(channel: Any) -> None:
    """A run over it in two worker processes ends as in one process, bit for bit."""
    algorithm = {"name": "fedavg", "learning_rate": 0.05, "channel": channel.model_dump(mode="json")}
    what = world(algorithm=algorithm)
    require_equal_ends(ended(what, TWO_WORKERS), ended(what), "in two worker processes", "in one process")


CONTRACT: Sequence[Any] = [
    whom_it_reaches_depends_on_the_round_and_the_client_alone,
    noise_is_a_finite_vector_that_its_arguments_decide,
    fedavg_keeps_its_contract_with_it,
]
WORKERS: Sequence[Any] = [two_worker_processes_give_the_same_bits_as_one]
