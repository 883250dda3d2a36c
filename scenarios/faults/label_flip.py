"""Label flipping: clients that learn from wrong labels."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from seedbus.bus import KeyedRandom
from seedbus.scenarios.faults.base import ROUND_KEY, RoundSelector

_Class = Annotated[int, Field(ge=0, le=10**6)]


class LabelFlip(RoundSelector):
    """The selected clients learn from wrong labels, and are honest otherwise. Evaluations have the true ones.

    `reverse` is the label flipping of Fang et al. 2020 (arXiv:1911.11815), and single pairs of classes are the targeted
    one of Tolpegin et al. 2020 (arXiv:2007.08432). Several of these faults apply one after the other, ordered by repr.
    """

    keyed_as = f"LabelFlip {ROUND_KEY} to pairs"

    fault: Literal["label-flip"] = "label-flip"
    to: Literal["reverse", "next"] = Field(
        default="reverse",
        description="the class that a class c of C is taken for: C − 1 − c, or c + 1 and 0 for the last",
    )
    pairs: list[tuple[_Class, _Class]] | None = Field(
        default=None, min_length=1, description="the only classes that are taken for others, as [[3, 8]]; instead of to"
    )

    @model_validator(mode="after")
    def _check_pairs(self) -> LabelFlip:
        if self.pairs is None:
            return self
        if self.to != "reverse":
            raise ValueError("give to or pairs, not both")
        often = [each for each, count in Counter(own for own, _ in self.pairs).items() if count > 1]
        if often:
            raise ValueError(f"pairs gives class {often[0]} more than once")
        return self

    @property
    def idle_fields(self) -> set[str]:
        return set() if self.pairs is None else {"to"}

    def mislabels(self, client: int, round: int, random: KeyedRandom) -> bool:
        return self.strikes_client(client, round, random)

    def new_classes(self, classes: int) -> NDArray[np.int64]:
        """Return the class that each class is taken for, [classes]. Raises `ValueError` if there are too few."""
        own = np.arange(classes)
        if self.pairs is None:
            return own[::-1].copy() if self.to == "reverse" else (own + 1) % classes
        for taken, other in self.pairs:
            if max(taken, other) >= classes:
                raise ValueError(f"pairs names class {max(taken, other)}; the task has the classes 0 to {classes - 1}")
            own[taken] = other
        return own
