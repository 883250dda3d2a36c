"""When memory runs out: one sentence that names the settings of a scenario that need less.

An allocation may fail anywhere: NumPy raises `MemoryError`, torch on a CPU a plain `RuntimeError`. A system that
overcommits memory kills the process instead; no code here runs then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.algorithms.schedule import values
from seedbus.models.errors import DataError, OutOfMemory, is_out_of_memory
from seedbus.scenarios.schema.scenario import Scenario


@contextmanager
def memory_hints(scenario: Scenario) -> Iterator[None]:
    """Turn an error of memory that ran out in the block into a `DataError` that names settings that need less."""
    try:
        yield
    except OutOfMemory as error:
        raise DataError(error.where, error.found, _joined([*lighter_settings(scenario), error.expected])) from error
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        found = f"no memory for {_requested_bytes(error)} (d = {scenario.task.dimension:,})"
        settings = [*lighter_settings(scenario), *scenario.task.memory_saving_settings()]
        raise DataError(scenario.name, found, _joined(settings)) from error


def lighter_settings(scenario: Scenario) -> list[str]:
    """Return settings outside the task that would need less memory, in the spelling of a scenario."""
    algorithm: object = scenario.algorithm
    settings = []
    if not isinstance(algorithm, ScalarOnly):
        settings.append("algorithm: {name: decomfl, revert: light}")
    elif algorithm.revert == "copy" and "projection" not in values(algorithm.estimator):
        settings.append("algorithm.revert: light")
    if scenario.verify:
        settings.append("verify: false")
    return settings


def _joined(settings: list[str]) -> str:
    return ", or ".join([*settings, "more memory"])


def _requested_bytes(error: BaseException) -> str:
    """Return the size of the allocation that failed, as NumPy's or torch's message gives it."""
    match = re.search(r"[Uu]nable to allocate ([\d.]+ [KMGTPE]?i?B)|allocate (\d+) bytes", str(error))
    if match is None:
        return "this run"
    return f"{match[1] or f'{int(match[2]):,} bytes'} more"
