"""When memory runs out: one sentence that names the settings of a scenario that need less.

An allocation may fail anywhere: NumPy raises `MemoryError`, torch on a CPU a plain `RuntimeError`, on a GPU a subclass
of it. A system that overcommits memory kills the process instead; no code here runs then. Of a GPU, which processes may
share, the sentence also says how many processes fit that need as much as this one did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.models.device import HOST, gpu_memory, gpu_name
from seedbus.models.errors import DataError, OutOfMemory, is_out_of_memory
from seedbus.scenarios.running.limits import gib
from seedbus.scenarios.schema.scenario import Scenario


@contextmanager
def memory_hints(scenario: Scenario, device: str = HOST) -> Iterator[None]:
    """Turn an error of memory that ran out in the block into a `DataError` that names settings that need less.

    Args:
        scenario: the run's.
        device: where this process computes.
    """
    try:
        yield
    except OutOfMemory as error:
        fewer = _fewer_processes(device, error.__cause__ or error)
        settings = [*fewer, *lighter_settings(scenario), error.expected]
        raise DataError(error.where, error.found, _joined(settings)) from error
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        found = f"no memory for {_requested_bytes(error)} (d = {scenario.task.dimension:,})"
        fewer = _fewer_processes(device, error)
        settings = [*fewer, *lighter_settings(scenario), *scenario.task.memory_saving_settings()]
        raise DataError(scenario.name, found, _joined(settings)) from error


def lighter_settings(scenario: Scenario) -> list[str]:
    """Return settings outside the task that would need less memory, in the spelling of a scenario."""
    algorithm: object = scenario.algorithm
    settings = []
    if not isinstance(algorithm, ScalarOnly):
        settings.append("algorithm: {name: decomfl, revert: light}")
    elif algorithm.revert == "copy" and not algorithm.derivatives:
        settings.append("algorithm.revert: light")
    if scenario.verify:
        settings.append("verify: false")
    return settings


def _fewer_processes(device: str, error: BaseException) -> list[str]:
    """Return how many processes a GPU has memory for if each takes what this one has taken and asked for."""
    if gpu_name(device) is None:
        return []
    memory = gpu_memory(device)
    needed = memory.peak + _asked_of_gpu(error)
    fitting = memory.total // max(1, needed)
    if not fitting:
        return []
    processes = "one process" if fitting == 1 else f"at most {fitting} processes"
    return [f"{processes} on {device} (this one takes {gib(needed)} of {gib(memory.total)})"]


def _asked_of_gpu(error: BaseException) -> int:
    """Return the bytes that torch's allocator on a GPU was asked for last, as its message gives them; else 0."""
    match = re.search(r"Tried to allocate ([\d.]+) ([KMGT]i)?B", str(error))
    return 0 if match is None else int(float(match[1]) * 2 ** (10 * (1 + "KMGT".index(match[2][0]) if match[2] else 0)))


def _joined(settings: list[str]) -> str:
    return ", or ".join([*settings, "more memory"])


def _requested_bytes(error: BaseException) -> str:
    """Return the size of the allocation that failed, as NumPy's or torch's message gives it."""
    match = re.search(r"(?:[Uu]nable|Tried) to allocate ([\d.]+ [KMGTPE]?i?B)|allocate (\d+) bytes", str(error))
    if match is None:
        return "this run"
    return f"{match[1] or f'{int(match[2]):,} bytes'} more"
