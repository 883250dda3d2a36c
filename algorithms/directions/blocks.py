"""Work on a long vector, one cache-sized block of coordinates at a time, on this process's own threads.

A block is independent of every other, so neither the number of threads nor the size of the blocks can change a bit.
(Numba's own `parallel=True` aborts the process when two threads call it, so it is not used.)
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Final

from seedbus.algorithms.directions.contract import ALIGNMENT

BLOCK: Final = 16_384
"""Coordinates in a block: 64 KiB a vector, so that x, Δ, H and m stay in the second-level cache beside the table."""

_threads = 1


def set_threads(threads: int) -> None:
    """How many threads `for_blocks` uses in this process when it isn't told; 1 at the start."""
    global _threads
    if threads < 1:
        raise ValueError(f"threads = {threads}: at least one must do the work")
    _threads = threads


def for_blocks(
    dimension: int, work: Callable[[slice], None], *, threads: int | None = None, block: int = BLOCK
) -> None:
    """Call `work` once for each block of `dimension` coordinates, on up to `threads` threads, this one among them.

    Returns when all is done. The first exception that `work` raises ends the work and is raised here.
    """
    if block < ALIGNMENT or block % ALIGNMENT:
        raise ValueError(f"block = {block}: a block is a multiple of {ALIGNMENT} coordinates")
    waiting = deque(slice(first, min(first + block, dimension)) for first in range(0, dimension, block))
    helpers = min(_threads if threads is None else threads, len(waiting)) - 1
    if helpers < 1:
        _drain(waiting, work)
    else:
        _share(waiting, work, helpers)


def _share(waiting: deque[slice], work: Callable[[slice], None], helpers: int) -> None:
    """Drain with helpers. One that never got a thread is called off, so nested calls cannot wait for each other."""
    futures = [_pool().submit(_drain, waiting, work) for _ in range(helpers)]
    try:
        _drain(waiting, work)
    finally:
        failures = [future.exception() for future in futures if not future.cancel()]
    for failure in failures:
        if failure is not None:
            raise failure


def _drain(waiting: deque[slice], work: Callable[[slice], None]) -> None:
    try:
        while waiting:
            try:
                block = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            work(block)
    except BaseException:
        waiting.clear()
        raise


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    """Threads are started as they are needed, and never more than there are processors."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="directions")
