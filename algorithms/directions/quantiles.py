"""The table of normal quantiles: entry i is Φ⁻¹((i + ½) / 65536) as float32, antisymmetric to the bit.

A table look-up is exact everywhere, and a logarithm is not. So the table is a file that is never recomputed where
it is used, and its SHA-256 is checked when it is read. Its variance is 0.99998 and its kurtosis 2.9992. Its values
reach ±4.32. `python -m seedbus.algorithms.directions.quantiles FILE` writes the table again.
"""

from __future__ import annotations

import hashlib
import io
import sys
from functools import lru_cache
from importlib import resources
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

FILE: Final = "gaussian-quantiles.npy"
SHA256: Final = "c69d635de0417018e278e6d72555d83ac85188e7c18994f3ca4753244d667e6a"
SIZE: Final = 1 << 16


@lru_cache(maxsize=1)
def quantiles() -> NDArray[np.float32]:
    """Return the table, [65536], read-only.

    Raises:
        RuntimeError: the file is not the one that defines the stream.
    """
    content = resources.files("seedbus.algorithms.directions").joinpath(FILE).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256:
        raise RuntimeError(f"{FILE} is damaged: its SHA-256 is {digest}, not {SHA256}")
    table: NDArray[np.float32] = np.load(io.BytesIO(content), allow_pickle=False).astype(np.float32)
    table.flags.writeable = False
    return table


def compute_quantiles() -> NDArray[np.float32]:
    """Compute the table from its definition: the upper half in float64, rounded once, and its mirror image."""
    normal = NormalDist()
    upper = np.array([normal.inv_cdf((i + 0.5) / SIZE) for i in range(SIZE // 2, SIZE)]).astype("<f4")
    return np.concatenate((-upper[::-1], upper))


if __name__ == "__main__":
    np.save(sys.argv[1], compute_quantiles(), allow_pickle=False)
