"""The law of signs: one bit a coordinate, in a domain of the stream of its own."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from seedbus.algorithms.directions.laws.law import Law, Table


class Rademacher(Law):
    """Coordinates of ±1."""

    is_signs: ClassVar[bool] = True

    law: Literal["rademacher"] = "rademacher"

    @property
    def key(self) -> int:
        return 0

    def quantiles(self, probabilities: Any) -> Table:
        return np.ones(len(probabilities), np.float32)
