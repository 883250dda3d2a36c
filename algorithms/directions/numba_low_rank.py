"""The products of `low_rank` in Numba: the same operations in the same order, in pieces that stay in cache.

It is compiled, or loaded from the disk, when a run first needs it: few runs do.
"""

from __future__ import annotations

from seedbus.algorithms.directions.kernels import PIECE, kernel


@kernel
def products(out, u, v, first, columns, factor):  # type: ignore[no-untyped-def]
    """Write coordinates of a matrix U Vᵀ · factor, from its coordinate `first` on.

    Args:
        out: the coordinates, float32 [n].
        u: U from the row of the first coordinate on, row by row, float32 [rows · r].
        v: V, column by column, float32 [r · columns].
        first: the first coordinate's column.
        columns: columns of the matrix.
        factor: float32.
    """
    rank = v.size // columns
    done, row, column = 0, 0, first
    while done < out.size:
        count = min(columns - column, out.size - done, PIECE)
        part = out[done : done + count]
        for q in range(rank):
            weight, other = u[row * rank + q], v[q * columns + column : q * columns + column + count]
            if q == 0:
                for i in range(count):
                    part[i] = weight * other[i]
            else:
                for i in range(count):
                    part[i] += weight * other[i]
        for i in range(count):
            part[i] *= factor
        done += count
        column += count
        if column == columns:
            row, column = row + 1, 0
