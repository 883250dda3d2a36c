"""The parts of every compiled kernel: adding one direction, or a sum of directions, to one piece of a vector.

Numba compiles them for this machine's processor: float32, no fast-math. A piece is small enough for the innermost
caches. Its Philox words are computed a few blocks at a time and used at once, so the table look-ups for some words wait
for memory while the processor computes the next ones. Where a processor has fewer instructions under way than such
blocks need, `fetch_and_write` mixes both. For `gaussian` the table is the upper half of the table of quantiles. An
absent array, such as this table for `rademacher`, has no elements. So a kernel is compiled only once, for every kind,
update rule and replica; it chooses between its loops at the start of each piece.

Kernels take whole groups of 128 coordinates. The end of a vector is padded, in the kernel (`padded`) or by its caller
(`groups`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import float32

from seedbus.algorithms.directions.contract import ALIGNMENT
from seedbus.algorithms.directions.llvm_ops import (
    NEXT,
    PHILOX_BLOCKS,
    QUANTILES,
    SIGNS,
    WORDS,
    add_signs,
    fetch_and_write,
    fold_indices,
    gather_quantiles,
    sum_signs,
    write_words,
)
from seedbus.vector import Vector

BLOCKS = 32  # Philox blocks computed at a time, 512 bytes: look-ups wait for memory while the next are computed
PIECE = 128 * BLOCKS  # coordinates in a piece, 16 KiB of each vector: all that `rademacher` gets from that many blocks
DIRECTIONS = 16  # directions of `rademacher` that are summed in registers
SCRATCH_WORDS = DIRECTIONS * 4 * BLOCKS  # length of the scratch array of `add` and `add_all`

ABSENT = np.empty(0, np.float32)

FLOAT32 = np.dtype(np.float32)
ONE = np.float32(1)

Kernel = Callable[..., Any]


def kernel(function: Kernel) -> Kernel:
    """Decorate a function that Python calls: it is compiled once for this processor, and cached on disk if possible."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    # Numba's cache finds a kernel by its name and checks only the kernel's own file for changes
    function.__qualname__ += f"-{sources()}"
    try:
        compiled: Kernel = numba.njit(function, cache=True, **options)
    except RuntimeError:  # neither the installation nor a cache folder is writable
        compiled = numba.njit(function, **options)
    return compiled


@lru_cache(maxsize=1)
def sources() -> str:
    """Return a digest of the files that every kernel is compiled from."""
    folder = Path(__file__).parent
    parts = (folder.joinpath(name).read_bytes() for name in ("llvm_ops.py", "philox.py", "kernels.py"))
    return hashlib.blake2b(b"".join(parts), digest_size=4).hexdigest()


def inlined(function: Kernel) -> Kernel:
    """Decorate a part of kernels, which is inlined into them."""
    compiled: Kernel = numba.njit(function, nogil=True, forceinline=True, error_model="numpy")
    return compiled


class Stream(NamedTuple):
    """Words of one direction's stream: of the counter, and of the key."""

    step: int
    p: int
    low: int
    high: int


class LookUp(NamedTuple):
    """The upper half of the table of quantiles, without elements for `rademacher`; and whether gathers read it."""

    table: Vector
    gathers: bool


@inlined
def philox_words(words, block, count, stream, domain):  # type: ignore[no-untyped-def]
    """Write words [4 · BLOCKS] = `count` Philox blocks of the stream of one direction, from `block` on."""
    for b in range(0, count, PHILOX_BLOCKS):
        write_words(words, 4 * b, block + b, stream, domain)


@inlined
def add(out, x, scale, words, start, stream, look_up, factor):  # type: ignore[no-untyped-def]
    """Write out = x + scale · z · factor over one piece (`gaussian`: z / factor).

    x may be out; `start` is the piece's first coordinate; `words` is scratch, [SCRATCH_WORDS].
    """
    table = look_up.table
    if table.size and look_up.gathers:
        if factor.size:
            add_gathered(out, x, scale, words, start, stream, table, factor)
        else:
            add_gathered(out, x, scale, words, start, stream, table, None)
    elif table.size:
        if factor.size:
            add_fetched(out, x, scale, words, start, stream, table, factor)
        else:
            add_fetched(out, x, scale, words, start, stream, table, None)
    else:
        for first in range(0, out.size, 128 * BLOCKS):
            last = min(first + 128 * BLOCKS, out.size)
            philox_words(words, (start + first) // 128, (last - first) // 128, stream, 1)
            if factor.size:
                for i in range(first, last, SIGNS):
                    add_signs(out, x, scale, words, factor, i, (i - first) // SIGNS)
            else:
                for i in range(first, last, SIGNS):
                    add_signs(out, x, scale, words, None, i, (i - first) // SIGNS)


@inlined
def add_gathered(out, x, scale, words, start, stream, table, divisor):  # type: ignore[no-untyped-def]
    """Write out = x + scale · z / divisor over one piece, with look-ups by gathers."""
    for first in range(0, out.size, 8 * BLOCKS):
        last = min(first + 8 * BLOCKS, out.size)
        philox_words(words, (start + first) // 8, (last - first) // 8, stream, 0)
        for i in range(first, last, QUANTILES):
            gather_quantiles(out, x, scale, words, table, divisor, i, (i - first) // 2)


@inlined
def add_fetched(out, x, scale, words, start, stream, table, divisor):  # type: ignore[no-untyped-def]
    """Write out = x + scale · z / divisor over one piece, with look-ups one by one (see `sum_fetched`)."""
    w, block = 0, start // 8
    philox_words(words, block, NEXT // 8, stream, 0)
    fold_indices(words, w)
    for i in range(0, out.size, NEXT):
        other = NEXT // 2 - w
        block += NEXT // 8
        fetch_and_write(out, x, scale, words, table, divisor, i, w, other, block, stream)
        fold_indices(words, other)
        w = other


@inlined
def along(stream, p):  # type: ignore[no-untyped-def]
    """Return the stream of another direction of the same step."""
    return Stream(stream.step, p, stream.low, stream.high)


@inlined
def add_all(out, scales, words, start, stream, look_up, divisor):  # type: ignore[no-untyped-def]
    """Write out = (Σ_p scales[p] · z(p)) / divisor over one piece; `words` is scratch, [SCRATCH_WORDS]."""
    table = look_up.table
    out[:] = float32(0)
    if table.size and look_up.gathers:
        for p in range(scales.size):
            add_gathered(out, out, scales[p], words, start, along(stream, p), table, None)
    elif table.size:
        sum_fetched(out, scales, words, start, stream, table)
    else:
        for first in range(0, scales.size, DIRECTIONS):
            count = min(DIRECTIONS, scales.size - first)
            for p in range(count):
                part = words[4 * BLOCKS * p :]
                philox_words(part, start // 128, out.size // 128, along(stream, first + p), 1)
            for i in range(0, out.size, SIGNS * WORDS):
                sum_signs(out, scales, first, count, words, 4 * BLOCKS, i, i // SIGNS)
    for i in range(divisor.size):
        out[i] /= divisor[i]


@inlined
def sum_fetched(out, scales, words, start, stream, table):  # type: ignore[no-untyped-def]
    """Add Σ_p scales[p] · z(p) to one piece, with look-ups one by one; `words` is scratch, [SCRATCH_WORDS].

    Every direction is added to a few coordinates before the next ones, so `out` leaves the innermost cache to the
    table. The last words are written for nothing.
    """
    w, block = 0, start // 8
    philox_words(words, block, NEXT // 8, along(stream, 0), 0)
    fold_indices(words, w)
    for i in range(0, out.size, NEXT):
        for p in range(scales.size):
            other, following = NEXT // 2 - w, p + 1
            if following == scales.size:
                following = 0
                block += NEXT // 8
            fetch_and_write(out, out, scales[p], words, table, None, i, w, other, block, along(stream, following))
            fold_indices(words, other)
            w = other


@inlined
def divide_by(divisor, scratch, table):  # type: ignore[no-untyped-def]
    """Return the factor that `add` takes for a piece's divisor: for `rademacher` 1 / divisor, written to `scratch`."""
    if table.size:
        return divisor
    factor = scratch[: divisor.size]
    for i in range(factor.size):
        factor[i] = ONE / divisor[i]
    return factor


@inlined
def padded(vector, count):  # type: ignore[no-untyped-def]
    """Return a copy of the vector and `count` ones; one without elements stays so."""
    longer = np.ones(vector.size + count if vector.size else 0, np.float32)
    longer[: vector.size] = vector
    return longer


def check_float32(out: Vector, *others: Vector | None) -> None:
    """Raise ValueError unless every vector is contiguous float32 of out's shape; others would be compiled for anew."""
    shape = (out.size,)
    for vector in (out, *others):
        if vector is None or (vector.dtype == FLOAT32 and vector.shape == shape and vector.flags.c_contiguous):
            continue
        raise ValueError(
            f"compiled directions take contiguous float32 vectors of one shape: {vector.dtype} of {vector.shape} "
            f"beside {out.dtype} of {out.shape} (`reference` takes other types)"
        )


def groups(start: int, *vectors: Vector | None, written: int = 1) -> Iterator[tuple[int, list[Vector]]]:
    """Yield vectors in whole groups of 128 coordinates: their whole pieces, then the rest, padded with ones.

    Args:
        start: the first coordinate of the vectors.
        vectors: of one size; for None there is a vector without elements.
        written: how many of the vectors, from the first, the caller writes to; their rest is copied back.

    Yields:
        The first coordinate, and the part of each vector.
    """
    size = max(vector.size for vector in vectors if vector is not None)
    whole = size // PIECE * PIECE if size % ALIGNMENT else size
    if whole:
        yield start, [ABSENT if vector is None else vector[:whole] for vector in vectors]
    if whole == size:
        return
    ends = [ABSENT if vector is None else _padded(vector[whole:]) for vector in vectors]
    yield start + whole, ends
    for vector, end in zip(vectors[:written], ends, strict=False):
        if vector is not None:
            vector[whole:] = end[: size - whole]


def _padded(end: Vector) -> Vector:
    padded = np.ones(end.size + -end.size % ALIGNMENT, end.dtype)
    padded[: end.size] = end
    return padded
