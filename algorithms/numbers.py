"""The limits of numbers that all algorithms share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Positive = Annotated[float, Field(gt=1e-37, lt=1e37)]
"""A positive hyperparameter that float32 represents neither as 0 nor as infinity."""

ABSURD = 1e12
"""The largest magnitude accepted in a report. A larger one is an error, even where float32 can represent it."""
