"""The standard normal law, whose table is a file (`quantiles`): a logarithm is not the same on every processor."""

from __future__ import annotations

from typing import Any, Literal

from seedbus.algorithms.directions.laws.law import HALF, Law, Table
from seedbus.algorithms.directions.quantiles import quantiles


class Gaussian(Law):
    """Standard normal coordinates."""

    law: Literal["gaussian"] = "gaussian"

    @property
    def key(self) -> int:
        return 0

    def quantiles(self, probabilities: Any) -> Table:
        return quantiles()[HALF:]
