"""Laws of directions that are nobody's plug-in."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from seedbus.plugin import Law


class Ternary(Law):
    """0, or ±√share: its table holds zeros, which have a sign."""

    law: Literal["ternary"] = "ternary"
    share: int = 3

    def quantiles(self, probabilities: Any) -> Any:
        return np.where(probabilities > 1 - 0.5 / self.share, math.sqrt(self.share), 0.0)


class Laplace(Law):
    """Double exponential coordinates."""

    law: Literal["laplace"] = "laplace"

    def quantiles(self, probabilities: Any) -> Any:
        return -np.log(2 * (1 - probabilities)) / math.sqrt(2)


class Bent(Laplace):
    """Laplace's with one quantile that another processor rounds otherwise."""

    def quantiles(self, probabilities: Any) -> Any:
        table = super().quantiles(probabilities).astype(np.float32)
        table[20_000] = np.nextafter(table[20_000], np.float32(9))
        return table


class Renamed(Ternary):
    """The same distribution by another name."""

    law: Literal["renamed"] = "renamed"  # type: ignore[assignment]
