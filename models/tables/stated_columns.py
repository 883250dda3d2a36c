"""How a scenario states the columns of tables that it does not have: names, texts, and the scale of numbers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from seedbus.models.preprocessing import MOST_TEXTS
from seedbus.models.spelling import value_of
from seedbus.settings import Settings


class StatedNumbers(Settings, frozen=True):
    """A column of numbers: an input is (number − mean) / deviation."""

    mean: float = Field(description="about the mean over all owners, as far as it is known")
    deviation: float = Field(gt=0, description="about the standard deviation over all owners")


Stated = StatedNumbers | Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_TEXTS)]
"""How a column is read: numbers, or one of these texts."""


def check_columns(columns: dict[str, Stated], target: str) -> None:
    """Raise `ValueError` unless these columns are the target and one to learn it from at least."""
    if target not in columns:
        raise ValueError(f"columns has no {target}, the target; expected its classes, or its mean and deviation")
    if len(columns) < 2:
        raise ValueError(f"columns has the target {target} alone; expected a column at least to learn it from")
    for name, each in columns.items():
        texts = [] if isinstance(each, StatedNumbers) else [value_of(text) for text in each]
        if len(set(texts)) < len(texts):
            raise ValueError(f"columns.{name} has a text twice, perhaps in two spellings; expected each once")
    classes = columns[target]
    if not isinstance(classes, StatedNumbers) and len(classes) < 2:
        raise ValueError(f"columns.{target} has one class; expected two at least")
