"""All algorithms that a scenario may name: the scalar-only family, and the dense one."""

from __future__ import annotations

from typing import Any

from seedbus.algorithms.contract import Algorithm
from seedbus.algorithms.dense.base import dense_algorithms
from seedbus.discovery import Variants

_CONTRACT = {name for each in Algorithm.__mro__ for name in vars(each) if not name.startswith("_")}


def _is_algorithm(kind: type[Any]) -> bool:
    """Whether a class has everything that the contract of an algorithm asks for."""
    return _CONTRACT <= {*dir(kind), *kind.model_fields}


ALGORITHMS = Variants("algorithm", "name", "seedbus.algorithms.scalar_only", _is_algorithm, derived=dense_algorithms)
