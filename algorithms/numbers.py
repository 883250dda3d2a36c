"""The limits of numbers that all algorithms share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

SMALLEST = 1e-37
"""Of what smaller numbers than this become in float32, the inverse may be infinite."""

Positive = Annotated[float, Field(gt=SMALLEST, lt=1e37)]
"""A positive hyperparameter that float32 represents neither as 0 nor as infinity."""

ABSURD = 1e12
"""The largest magnitude accepted in a report. A larger one is an error, even where float32 can represent it."""
