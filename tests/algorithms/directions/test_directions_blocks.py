"""Directions are the same bits on any number of threads and in blocks of any size."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

import numpy as np
import pytest

from seedbus.algorithms.directions import Kind, blocks, directions, for_blocks, set_threads, use_all_cores

each_kind = pytest.mark.parametrize("kind", ["gaussian", "rademacher"])


@each_kind
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("block", [128, 4096, 16384])
def test_neither_threads_nor_blocks_change_a_bit(kind: Kind, threads: int, block: int) -> None:
    single, parts = np.empty(20_011, np.float32), np.full(20_011, np.nan, np.float32)
    source = directions(kind)
    source.accumulate(single, [0.3, -1.7], seed=9, step=1)

    def work(part: slice) -> None:
        source.accumulate(parts[part], [0.3, -1.7], seed=9, step=1, start=part.start)

    for_blocks(single.size, work, threads=threads, block=block)
    assert parts.tobytes() == single.tobytes()


@pytest.mark.parametrize("threads", [1, 4])
def test_a_failure_in_one_block_is_raised_to_the_caller(threads: int) -> None:
    def work(part: slice) -> None:
        if part.start == 1280:
            raise ZeroDivisionError("one block failed")

    with pytest.raises(ZeroDivisionError, match="one block failed"):
        for_blocks(128 * 100, work, threads=threads, block=128)


def test_nested_blocks_do_not_deadlock() -> None:
    counts = np.zeros(40)

    def outer(part: slice) -> None:
        def inner(piece: slice) -> None:
            counts[part.start // 128] += piece.stop - piece.start

        for_blocks(1000, inner, threads=1 if part.start % 256 else 3, block=1024)

    set_threads(4)
    try:
        for_blocks(40 * 128, outer, block=128)
    finally:
        set_threads(1)
    assert counts.tolist() == [1000] * 40


def test_invalid_numbers_of_blocks_and_threads_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 128"):
        for_blocks(1000, lambda part: None, block=100)
    with pytest.raises(ValueError, match="at least one"):
        set_threads(0)
    for_blocks(0, lambda part: pytest.fail("there is nothing to do"))


def test_all_cores_are_used_unless_a_number_of_threads_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(expected: int) -> int:
        """Return how many threads work; each waits for `expected` of them, so none can do all the work."""
        seen, all_there = set(), threading.Barrier(expected)

        def work(part: slice) -> None:
            if get_ident() not in seen:
                seen.add(get_ident())
                all_there.wait(60)

        for_blocks(100 * 128, work, block=128)
        return len(seen)

    monkeypatch.setattr(blocks, "_threads", None)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    blocks._pool.cache_clear()
    assert threads(1) == 1
    use_all_cores()
    assert threads(3) == 3
    set_threads(1)
    use_all_cores()
    assert threads(1) == 1
    blocks._pool.cache_clear()


@each_kind
def test_kernels_may_be_called_from_many_threads_at_once(kind: Kind) -> None:
    def drawn(perturbation: int) -> bytes:
        out = np.empty(50_003, np.float32)
        directions(kind).fill(out, seed=1, step=2, perturbation=perturbation)
        return out.tobytes()

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(drawn, range(40)))
    assert together == [drawn(perturbation) for perturbation in range(40)]
