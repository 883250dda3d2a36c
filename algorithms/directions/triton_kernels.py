"""The Triton kernels of the directions, which compute the same bits as the NumPy reference.

Each thread computes a Philox block and turns it into eight coordinates, so no thread waits for the words of another.
(A block of `rademacher` serves 128 coordinates; sixteen threads compute the same one, which is cheaper than sharing.)
Whatever it reads and writes lies in its own registers too: no coordinate goes from thread to thread.

Exactness
- `*`, `+` and `−` are separate operations in kernels that are launched with `EXACT`: neither LLVM nor ptxas may fuse.
- Quotients are `tl.div_rn` (a plain `/` is approximate on a GPU), roots `tl.sqrt_rn`; nothing flushes subnormals.
- Coefficients arrive as float32 and are never Python floats.
- bfloat16 is read and written as its bits (int16) by integer arithmetic, not by the device's own conversion.
"""

from __future__ import annotations

from typing import Any, Final

import triton
import triton.language as tl

from seedbus.algorithms.directions.philox import MULTIPLIERS, ROUNDS, WEYL

COUNT: Final = 1024
"""Coordinates per program: eight for each of its 128 threads."""

EXACT: Final[dict[str, Any]] = {"num_warps": 4, "enable_fp_fusion": False}

M0, M1 = (tl.constexpr(multiplier) for multiplier in MULTIPLIERS)
W0, W1 = (tl.constexpr(weyl) for weyl in WEYL)
TURNS = tl.constexpr(ROUNDS)
SIGN = tl.constexpr(-(1 << 31))


@triton.jit
def _philox(block, step, p, domain: tl.constexpr, low, high):  # type: ignore[no-untyped-def]
    """Return the four words of the stream's blocks, uint32 in the shape of `block`; all arguments are uint32."""
    c0, c1, c2, c3 = block, block * 0 + step, block * 0 + p, block * 0 + domain
    k0, k1 = low, high
    for _ in tl.static_range(TURNS):
        product0, product1 = c0.to(tl.uint64) * M0, c2.to(tl.uint64) * M1
        c0, c1 = (product1 >> 32).to(tl.uint32) ^ c1 ^ k0, product1.to(tl.uint32)
        c2, c3 = (product0 >> 32).to(tl.uint32) ^ c3 ^ k1, product0.to(tl.uint32)
        k0, k1 = k0 + W0, k1 + W1
    return c0, c1, c2, c3


@triton.jit
def _quantile(table, number):  # type: ignore[no-untyped-def]
    """Return quantiles by their numbers. The table is their upper half, which fits into a first-level cache.

    A table of int16 has q, which is returned as int32 (directions.exact); one of float32 has z.
    """
    centred = number.to(tl.int32) - 32768
    upper = tl.load(table + (centred ^ (centred >> 31)))
    if table.dtype.element_ty == tl.int16:
        quantile = (upper.to(tl.int32) ^ (centred >> 31)) - (centred >> 31)
    else:
        quantile = (upper.to(tl.int32, bitcast=True) ^ (centred & SIGN)).to(tl.float32, bitcast=True)
    return quantile


@triton.jit
def _quantiles(table, even, odd):  # type: ignore[no-untyped-def]
    """Return two words' quantiles, interleaved after they are looked up, so that no index leaves its thread."""
    return tl.interleave(_quantile(table, even), _quantile(table, odd))


@triton.jit
def _sign(unit, bits):  # type: ignore[no-untyped-def]
    """Return `unit`, which is positive, where the lowest bit is 1, else −unit; float32 or int32."""
    if unit.dtype == tl.float32:
        sign = (unit.to(tl.uint32, bitcast=True) ^ ((bits ^ 1) << 31)).to(tl.float32, bitcast=True)
    else:
        flip = (bits & 1).to(tl.int32) - 1
        sign = (unit ^ flip) - flip
    return sign


@triton.jit
def _signs(unit, even, odd):  # type: ignore[no-untyped-def]
    """Return the signs of two words, interleaved."""
    return tl.interleave(_sign(unit, even), _sign(unit, odd))


@triton.jit
def direction(table, start, step, p, low, high, COUNT: tl.constexpr, IS_GAUSSIAN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return z(step, p)[start : start + COUNT], float32; start: int64, a multiple of 128; the other numbers: uint32.

    With a table of int16: q instead, int32.
    """
    eight = tl.arange(0, COUNT // 8).to(tl.uint32)
    if IS_GAUSSIAN:
        c0, c1, c2, c3 = _philox((start // 8).to(tl.uint32) + eight, step, p, 0, low, high)
        even = tl.interleave(_quantiles(table, c0 & 0xFFFF, c2 & 0xFFFF), _quantiles(table, c1 & 0xFFFF, c3 & 0xFFFF))
        odd = tl.interleave(_quantiles(table, c0 >> 16, c2 >> 16), _quantiles(table, c1 >> 16, c3 >> 16))
    else:
        c0, c1, c2, c3 = _philox((start // 128).to(tl.uint32) + eight // 16, step, p, 1, low, high)
        number = eight // 4 % 4
        word = tl.where(number < 2, tl.where(number == 0, c0, c1), tl.where(number == 2, c2, c3))
        byte = word >> (eight % 4 * 8)
        # loaded by each thread: Triton moves no load, so what is derived from it stays in the thread as well
        unit = tl.load(table + eight // COUNT)
        if table.dtype.element_ty == tl.int16:
            unit = unit.to(tl.int32)
        even = tl.interleave(_signs(unit, byte, byte >> 4), _signs(unit, byte >> 2, byte >> 6))
        odd = tl.interleave(_signs(unit, byte >> 1, byte >> 5), _signs(unit, byte >> 3, byte >> 7))
    return tl.interleave(even, odd)


@triton.jit
def _nearest(x):  # type: ignore[no-untyped-def]
    """Return the bits of the nearest bfloat16, ties to even, as the upper half of a uint32; a NaN stays a NaN."""
    bits = x.to(tl.uint32, bitcast=True)
    rounded = bits + (0x7FFF + ((bits >> 16) & 1))
    return tl.where(x != x, bits | 0x400000, rounded) & 0xFFFF0000


@triton.jit
def stored(pointer, x):  # type: ignore[no-untyped-def]
    """Return x as `read` would return it after `write` at this pointer."""
    if pointer.dtype.element_ty == tl.int16:
        x = _nearest(x).to(tl.float32, bitcast=True)
    return x


@triton.jit
def load(pointer, first, size, other, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return pointer[first : first + COUNT], and `other` from `size` on.

    A thread loads the eight coordinates that it draws, in words of 16 bytes: then none of them needs another thread,
    nor the shared memory that the first-level cache would lack.
    """
    eight = first + 8 * tl.arange(0, COUNT // 8)
    if pointer.dtype.element_ty.primitive_bitwidth == 16:
        at = eight[:, None] + tl.arange(0, 8)[None, :]
        return tl.reshape(tl.load(pointer + at, mask=at < size, other=other), [COUNT])
    elif pointer.dtype.element_ty.primitive_bitwidth == 32:
        at = eight[:, None] + tl.arange(0, 4)[None, :]
        low = tl.load(pointer + at, mask=at < size, other=other)
        high = tl.load(pointer + at + 4, mask=at + 4 < size, other=other)
        return tl.reshape(tl.permute(tl.join(low, high), (0, 2, 1)), [COUNT])
    else:
        at = eight[:, None] + tl.arange(0, 2)[None, :]
        low = tl.join(
            tl.load(pointer + at, mask=at < size, other=other),
            tl.load(pointer + at + 4, mask=at + 4 < size, other=other),
        )
        high = tl.join(
            tl.load(pointer + at + 2, mask=at + 2 < size, other=other),
            tl.load(pointer + at + 6, mask=at + 6 < size, other=other),
        )
        return tl.reshape(tl.permute(tl.join(low, high), (0, 2, 3, 1)), [COUNT])


@triton.jit
def store(pointer, first, size, x, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write pointer[first : first + COUNT] = x, up to `size`, as `load` reads it."""
    eight = first + 8 * tl.arange(0, COUNT // 8)
    if pointer.dtype.element_ty.primitive_bitwidth == 16:
        at = eight[:, None] + tl.arange(0, 8)[None, :]
        tl.store(pointer + at, tl.reshape(x, [COUNT // 8, 8]), mask=at < size)
    elif pointer.dtype.element_ty.primitive_bitwidth == 32:
        at = eight[:, None] + tl.arange(0, 4)[None, :]
        low, high = tl.split(tl.permute(tl.reshape(x, [COUNT // 8, 2, 4]), (0, 2, 1)))
        tl.store(pointer + at, low, mask=at < size)
        tl.store(pointer + at + 4, high, mask=at + 4 < size)
    else:
        at = eight[:, None] + tl.arange(0, 2)[None, :]
        low, high = tl.split(tl.permute(tl.reshape(x, [COUNT // 8, 2, 2, 2]), (0, 3, 1, 2)))
        first_two, third_two = tl.split(low)
        second_two, fourth_two = tl.split(high)
        tl.store(pointer + at, first_two, mask=at < size)
        tl.store(pointer + at + 2, second_two, mask=at + 2 < size)
        tl.store(pointer + at + 4, third_two, mask=at + 4 < size)
        tl.store(pointer + at + 6, fourth_two, mask=at + 6 < size)


@triton.jit
def read(pointer, first, size, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return COUNT coordinates as float32, from float32 or from the bits of bfloat16; 1 beyond the end."""
    if pointer.dtype.element_ty == tl.int16:
        half = load(pointer, first, size, 0x3F80, COUNT)
        x = (half.to(tl.uint16, bitcast=True).to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        x = load(pointer, first, size, 1.0, COUNT)
    return x


@triton.jit
def write(pointer, first, size, x, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write COUNT coordinates as float32, or as the bits of bfloat16 with one rounding."""
    if pointer.dtype.element_ty == tl.int16:
        half = (_nearest(x) >> 16).to(tl.uint16)
        store(pointer, first, size, half.to(tl.int16, bitcast=True), COUNT)
    else:
        store(pointer, first, size, x, COUNT)


@triton.jit
def unsigned(word):  # type: ignore[no-untyped-def]
    """Return the 32-bit word that was passed as a signed number."""
    return word.to(tl.uint32, bitcast=True)


# do_not_specialize: otherwise Triton would compile further kernels for special values of these words.


@triton.jit(do_not_specialize=["start", "step", "p", "low", "high"])
def fill(out, table, size, start, step, p, low, high, COUNT: tl.constexpr, IS_GAUSSIAN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write out = z(step, p)."""
    first = tl.program_id(0).to(tl.int64) * COUNT
    step, p, low, high = unsigned(step), unsigned(p), unsigned(low), unsigned(high)
    z = direction(table, start + first, step, p, low, high, COUNT, IS_GAUSSIAN)
    write(out, first, size, z, COUNT)


@triton.jit(do_not_specialize=["start", "step", "p", "low", "high"])
def perturb(  # type: ignore[no-untyped-def]
    out, x, divisor, scale, table, size, start, step, p, low, high, COUNT: tl.constexpr, IS_GAUSSIAN: tl.constexpr
):
    """Write out = x + scale · (z(step, p) / divisor); out may be x."""
    first = tl.program_id(0).to(tl.int64) * COUNT
    step, p, low, high = unsigned(step), unsigned(p), unsigned(low), unsigned(high)
    z = direction(table, start + first, step, p, low, high, COUNT, IS_GAUSSIAN)
    if divisor is not None:
        z = tl.div_rn(z, read(divisor, first, size, COUNT))
    write(out, first, size, read(x, first, size, COUNT) + scale * z, COUNT)


@triton.jit(do_not_specialize=["count", "start", "step", "low", "high"])
def accumulate(  # type: ignore[no-untyped-def]
    out, divisor, scales, count, table, size, start, step, low, high, COUNT: tl.constexpr, IS_GAUSSIAN: tl.constexpr
):
    """Write out = (Σ_p scales[p] · z(step, p)) / divisor, with p ascending from 0 to count − 1."""
    first = tl.program_id(0).to(tl.int64) * COUNT
    step, low, high = unsigned(step), unsigned(low), unsigned(high)
    total = tl.zeros([COUNT], tl.float32)
    for p in range(count):
        z = direction(table, start + first, step, p, low, high, COUNT, IS_GAUSSIAN)
        total = total + tl.load(scales + p) * z
    if divisor is not None:
        total = tl.div_rn(total, read(divisor, first, size, COUNT))
    write(out, first, size, total, COUNT)
