"""All algorithms that a scenario may name: the scalar-only family, and the dense one."""

from __future__ import annotations

from typing import Any

from seedbus.algorithms.base import BaseAlgorithm
from seedbus.algorithms.capabilities import of_algorithm
from seedbus.algorithms.contract import Algorithm
from seedbus.algorithms.dense.base import dense_algorithms
from seedbus.discovery import Variants

_CONTRACT = {name for each in Algorithm.__mro__ for name in vars(each) if not name.startswith("_")} | {"aggregation"}


def lacking(kind: type[Any]) -> frozenset[str]:
    """Return what the contract of an algorithm asks for, and a class has not."""
    return frozenset(_CONTRACT - {*dir(kind), *kind.model_fields})


ALGORITHMS = Variants(
    *("algorithm", "name", "seedbus.algorithms.scalar_only", BaseAlgorithm),
    derived=dense_algorithms,
    states=of_algorithm,
)
