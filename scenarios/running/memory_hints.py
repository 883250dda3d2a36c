"""Memory that runs out: one sentence that names what of a scenario would take less.

An allocation may fail anywhere: NumPy raises `MemoryError`, torch on a CPU a plain `RuntimeError`. Where a system
promises more than it has, it kills the process instead, and nothing here is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.schedule import values
from seedbus.models.errors import DataError, NoRoom, is_out_of_memory
from seedbus.scenarios.schema.scenario import Scenario


@contextmanager
def memory_hints(scenario: Scenario) -> Iterator[None]:
    """While a scenario's own work goes on. Raises `DataError` where memory runs out."""
    try:
        yield
    except NoRoom as error:
        raise DataError(error.where, error.found, _listed([*lighter(scenario), error.expected])) from error
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        found = f"no memory for {_asked(error)} (d = {scenario.task.dimension:,})"
        raise DataError(scenario.name, found, _listed([*lighter(scenario), *scenario.task.smaller()])) from error


def lighter(scenario: Scenario) -> list[str]:
    """Settings beside the task's own that need less memory, as a scenario spells them."""
    algorithm: object = scenario.algorithm
    found = []
    if not isinstance(algorithm, ScalarOnly):
        found.append("algorithm: {name: decomfl, revert: light}")
    elif algorithm.revert == "copy" and "projection" not in values(algorithm.estimator):
        found.append("algorithm.revert: light")
    if scenario.verify:
        found.append("verify: false")
    return found


def _listed(settings: list[str]) -> str:
    return ", or ".join([*settings, "more memory"])


def _asked(error: BaseException) -> str:
    """How much was asked for, in the words of NumPy or of torch."""
    found = re.search(r"[Uu]nable to allocate ([\d.]+ [KMGTPE]?i?B)|allocate (\d+) bytes", str(error))
    if found is None:
        return "this run"
    return f"{found[1] or f'{int(found[2]):,} bytes'} more"
