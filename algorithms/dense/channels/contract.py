"""The contract of a channel: which clients it reaches in a round, and what noise it adds to the mean of vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from seedbus.algorithms.contract import Packed, Vector
from seedbus.algorithms.dense.vectors import raw
from seedbus.discovery import Variants
from seedbus.settings import Settings


class Channel(Settings, ABC):
    """A channel is one file of this folder: a frozen pydantic model with its name as `kind`.

    Its draws are keyed by the round's seed, so they are the same on every transport.
    """

    kind: str

    @abstractmethod
    def reaches(self, seed: int, client: int) -> bool:
        """Return whether a client can take part in a round; seed: the round's, 64 bits."""

    @abstractmethod
    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        """Return the noise that the channel adds to the mean of the clients' vectors, float32 [d].

        Args:
            seed: the round's seed, 64 bits.
            number: index of the vector in a report; 0 is the update.
            norms: the norm of each client's vector.
            dimension: number of coordinates, d.
        """

    def peak(self, reports: Iterable[Any]) -> Packed:
        """Return the largest norm of each of the vectors of some reports, packed for those who sent them."""
        largest = np.max([report.norms for report in reports], axis=0)
        return Packed([raw(largest)], scalars=largest.size)


CHANNELS = Variants("channel", "kind", "seedbus.algorithms.dense.channels", Channel, is_short=True)
