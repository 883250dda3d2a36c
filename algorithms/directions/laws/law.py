"""The law of a direction: the distribution of its coordinates, as a table of 65,536 quantiles.

Sixteen random bits are the number of a quantile. A look-up is exact everywhere, so every backend, compiled or not,
draws from the table of any law, with the same bits and at the same speed. Laws are symmetric: `quantiles` gives the
upper half of the table, and the lower half is its mirror image. So the mean is exactly 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import SerializerFunctionWrapHandler, WrapSerializer

from seedbus.discovery import Variants
from seedbus.keyed import keyed_bits
from seedbus.settings import Settings

HALF: Final = 1 << 15
"""Entries of the upper half of a table."""

PROBABILITIES: Final = (np.arange(HALF, 2 * HALF) + 0.5) / (2 * HALF)
"""The probabilities of the upper half, (i + ½) / 65,536 for i from 32,768 on, float64 [32768]."""
PROBABILITIES.flags.writeable = False

Table = NDArray[np.float32]


class Law(Settings, ABC):
    """A symmetric distribution with variance 1: a frozen pydantic model with its name as `law`."""

    is_signs: ClassVar[bool] = False
    """Whether coordinates are ±1 and take one bit each; only ours may."""

    law: str

    @abstractmethod
    def quantiles(self, probabilities: NDArray[np.float64]) -> ArrayLike:
        """Return the quantiles of probabilities above ½: finite, not negative, ascending. Float32 holds them rounded.

        Args:
            probabilities: (i + ½) / 65,536 for i from 32,768 to 65,535, [32768], read-only.

        Returns:
            The values that a coordinate is below with these probabilities, [32768].
        """

    @property
    def key(self) -> int:
        """64 bits of the law's name, with which every seed is combined, so that no two laws share a stream."""
        return keyed_bits("law", self.law)

    @property
    def table(self) -> Table:
        """The upper half of the table, [32768], read-only.

        Raises:
            ValueError: `quantiles` fails, or returns something else.
        """
        return _table(self)


LAWS = Variants("law", "law", "seedbus.algorithms.directions.laws", Law, is_short=True)


def _shortest(law: Law, dump: SerializerFunctionWrapHandler) -> Any:
    """Return a law as its name, if that is all that there is to say."""
    fields = dump(law)
    return fields["law"] if len(fields) == 1 else fields


AnyLaw = Annotated[Law, LAWS, WrapSerializer(_shortest)]
"""The type of a field: a name, or a mapping of a law's fields."""

Kind = Law | str
"""A law, or the name of one whose fields have defaults."""


def law_of(kind: Kind) -> Law:
    """Return a law; by its name, with its defaults."""
    law: Law = LAWS.all()[kind]() if isinstance(kind, str) else kind
    return law


def mirrored(upper: NDArray[Any]) -> NDArray[Any]:
    """Return a whole table, [65536], read-only, from its upper half."""
    table = np.concatenate((-upper[::-1], upper))
    table.flags.writeable = False
    return table


@lru_cache(maxsize=16)
def _table(law: Law) -> Table:
    try:
        values = np.asarray(law.quantiles(PROBABILITIES))
        table: Table = np.array(values, np.float32, order="C")
    except Exception as error:
        raise ValueError(
            f"directions: the quantiles of {law.law} cannot be computed ({type(error).__name__}: {error})"
        ) from error
    if table.shape != (HALF,) or not np.isfinite(table).all():
        wrong = values.shape if table.shape != (HALF,) else table[~np.isfinite(table)][0]
        raise ValueError(f"directions: the quantiles of {law.law} are {HALF:,} finite numbers, and not {wrong}")
    table.flags.writeable = False
    return table
