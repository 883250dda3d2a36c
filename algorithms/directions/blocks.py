"""Processes a long vector in cache-sized blocks of coordinates, on threads of this process.

The blocks are independent of each other, so neither the number of threads nor the size of the blocks can change a bit.
(Numba's own `parallel=True` is not used, because it aborts the process when two threads call it.)
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Final

from seedbus.algorithms.directions.contract import ALIGNMENT
from seedbus.vector import Vector, is_on_host

BLOCK: Final = 16_384
"""Coordinates in a block: 64 KiB per vector, so that x, Δ, H, m and the table fit into the second-level cache."""

DEVICE_BLOCK: Final = 1 << 22
"""Coordinates in a block on a device: enough to use all of it, and 16 MiB for a temporary vector."""

TENSOR_BLOCK: Final = 1 << 16
"""Coordinates in a block of a tensor in the processor's memory."""

_threads: int | None = None  # not decided yet


def set_threads(threads: int) -> None:
    """Set how many threads `for_blocks` uses in this process by default, for good; initially 1."""
    global _threads
    if threads < 1:
        raise ValueError(f"threads = {threads}: at least one must do the work")
    _threads = threads


def use_all_cores() -> None:
    """Use a thread for each core by default, unless `set_threads` was called: other processes use the others then."""
    global _threads
    if _threads is None:
        _threads = os.cpu_count() or 1


def for_blocks(
    dimension: int,
    work: Callable[[slice], None],
    *,
    like: Vector | None = None,
    threads: int | None = None,
    block: int = BLOCK,
) -> None:
    """Call `work` once for each block of coordinates, and return when all calls have ended.

    The first exception that `work` raises stops the work and is raised here.

    Args:
        dimension: number of coordinates, d.
        work: called with the span of a block.
        like: a vector of the kind that `work` works on; one on a device is processed in long blocks, on this thread.
        threads: the most threads to use, including this one; None: as `set_threads` and `use_all_cores` say.
        block: coordinates per block; a multiple of `ALIGNMENT`.

    Raises:
        ValueError: the block is not a multiple of `ALIGNMENT`.
    """
    if like is not None and not is_on_host(like):
        is_near = getattr(like, "tensor").device.type == "cpu"  # noqa: B009  # a vector's type has no tensor
        threads, block = 1, TENSOR_BLOCK if is_near else DEVICE_BLOCK
    if block < ALIGNMENT or block % ALIGNMENT:
        raise ValueError(f"block = {block}: a block is a multiple of {ALIGNMENT} coordinates")
    if dimension <= block:  # a small model: as little as possible around the work
        if dimension:
            work(slice(0, dimension))
        return
    pending = deque(slice(first, min(first + block, dimension)) for first in range(0, dimension, block))
    helpers = min((_threads or 1) if threads is None else threads, len(pending)) - 1
    if helpers < 1:
        _drain(pending, work)
    else:
        _drain_with_helpers(pending, work, helpers)


def _drain_with_helpers(pending: deque[slice], work: Callable[[slice], None], helpers: int) -> None:
    """Process the blocks on this thread and others.

    A helper that has not got a thread in the end is cancelled, so nested calls cannot wait for each other.
    """
    futures = [_pool().submit(_drain, pending, work) for _ in range(helpers)]
    try:
        _drain(pending, work)
    finally:
        failures = [future.exception() for future in futures if not future.cancel()]
    for failure in failures:
        if failure is not None:
            raise failure


def _drain(pending: deque[slice], work: Callable[[slice], None]) -> None:
    try:
        while pending:
            try:
                block = pending.popleft()
            except IndexError:  # another thread took the last one
                return
            work(block)
    except BaseException:
        pending.clear()
        raise


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    """Return the pool of this process, which starts threads when they are needed, at most one per processor."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="directions")
