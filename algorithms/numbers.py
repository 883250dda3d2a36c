"""Numbers that all algorithms accept, and numbers that they take for a fault."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Positive = Annotated[float, Field(gt=1e-37, lt=1e37)]
"""A hyperparameter that float32 holds, neither as 0 nor as infinity."""

ABSURD = 1e12
"""A magnitude beyond this is a fault and not a gradient; float32 would still hold it."""
