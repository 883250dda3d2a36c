"""What every partition promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from seedbus.models.errors import DataError
from seedbus.models.generators import generator
from seedbus.studies.check.promises import brief, require, require_same

_EVEN = np.arange(2_000) % 10


def results(partition: Any) -> Any:
    """Return what another process has to find, too."""
    return [partition.split(_EVEN, 8, seed) for seed in (5, 6)]


def columns() -> Iterator[tuple[Any, int, int]]:
    """Yield labels or owners, a number of clients and a seed: forty small and uneven divisions."""
    for number in range(40):
        draw = generator("conformance", "partition", number)
        yield (
            draw.integers(0, 5, draw.integers(1, (13, 120)[number % 2])),
            int(draw.integers(1, 13)),
            int(draw.integers(0, 2**63)),
        )


def is_a_division(partition: Any, column: Any, clients: int, seed: int) -> bool:
    """Return whether samples were divided, and False if they were refused; raise AssertionError if divided wrongly."""
    before = column.copy()
    try:
        parts = partition.split(column, clients, seed)
    except DataError:
        return False
    where = f"{column.size} samples and {clients} clients"
    require_same(column, before, f"of {where} the column", "and before")
    require(len(parts) == clients, f"of {where} there are {len(parts)} parts")
    for client, part in enumerate(parts):
        require(isinstance(part, np.ndarray) and part.dtype == np.int64, f"a part is {brief(part)}, not int64")
        require(part.size, f"of {where} client {client} has no sample; expected DataError if there are too few")
        require((np.diff(part) > 0).all(), f"of {where} client {client}'s samples do not ascend: {brief(part)}")
    held = np.sort(np.concatenate(parts))
    known = (held >= 0).all() and (held < column.size).all()
    require(known, f"of {where} sample {held[-1] if held.size else 0} is held")
    twice = held[1:][np.diff(held) == 0]
    require(not twice.size, f"of {where} sample {twice[0] if twice.size else 0} goes to two clients")
    if partition.by == "labels":
        require(held.size == column.size, f"of {where} {column.size - held.size} samples are nobody's")
    return True


def every_sample_goes_to_exactly_one_client_and_nobody_is_empty(partition: Any) -> None:
    """No sample goes to two clients, none is left out, and no client is empty; what cannot be is a DataError."""
    divided = [is_a_division(partition, *each) for each in columns()]
    require(any(divided) or is_a_division(partition, _EVEN, 8, 1), "all of 41 divisions were refused")


def the_seed_alone_decides_who_holds_what(partition: Any) -> None:
    """The same samples, clients and seed give the same division, whatever was divided in between."""
    first = partition.split(_EVEN, 8, 5)
    partition.split(_EVEN[:1_000], 8, 9)
    require_same(partition.split(_EVEN, 8, 5), first, "the second division", "and the first")


def more_clients_than_samples_or_none_is_refused(partition: Any) -> None:
    """More clients than samples, or none, is a DataError."""
    for clients in (0, 11):
        try:
            parts = partition.split(np.arange(10), clients, 0)
        except DataError:
            continue
        raise AssertionError(f"10 samples were divided among {clients} clients as {brief(parts)}; expected DataError")


CONTRACT: Sequence[Any] = [
    every_sample_goes_to_exactly_one_client_and_nobody_is_empty,
    the_seed_alone_decides_who_holds_what,
    more_clients_than_samples_or_none_is_refused,
]
