"""The type of the vectors that algorithms compute with: models, updates and directions.

There is one definition for this layer; `contract` re-exports it. `models` has its own, because it imports no other
layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.floating[Any]]
"""Coordinates, shape [d] unless said otherwise; float32 in every run, float64 only in the theory tests' reference."""
