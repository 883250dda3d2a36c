"""What a channel is: whom it reaches in a round, and what it adds to the mean of what they send."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from seedbus.algorithms.contract import Vector


class Channel(BaseModel, ABC):
    """A channel is one file of this folder: a frozen pydantic model with its name as `kind`.

    All that it draws is keyed by the round's seed, so it is the same on every transport.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: str

    @abstractmethod
    def reaches(self, seed: int, client: int) -> bool:
        """Whether a client can take part in the round of that seed, 64 bits."""

    @abstractmethod
    def noise(self, seed: int, number: int, norms: Sequence[float], dimension: int) -> Vector:
        """What the server hears beside the mean of vectors of these norms, one a client; float32 [d].

        number: 0 for updates, more for what else is reported.
        """
