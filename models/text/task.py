"""What tasks on labelled text have in common: their fields, and which samples are used for what.

The invariant: which samples are held out depends on the set and the fraction and not on the seed, so a learning rate
tuned on the validation split with one seed was never tuned on samples that another seed trains on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from seedbus.models.data.roots import Roots
from seedbus.models.streams import stream
from seedbus.models.task import Task
from seedbus.models.text.files import Sample, read
from seedbus.models.text.weights import look


class TextTask(Task, frozen=True):
    """What tasks on labelled text have in common: which samples are used, and how they are held out."""

    data: str | None = Field(
        None, description="a folder with the set's own files; none: $SEEDBUS_DATA/<dataset>, or the hub"
    )
    batch_size: int = Field(32, ge=1, description="samples a local step uses; a client with fewer uses all it has")
    shots: int | None = Field(
        None, ge=1, description="training samples per class, drawn by key (SQuAD: in all); none: all there are"
    )
    validation: float = Field(0.1, ge=0, le=0.5, description="fraction of the training samples held out for tuning")
    evaluated: int = Field(1000, ge=1, description="samples of a split that are measured, at most, the same every time")

    if TYPE_CHECKING:  # fields of the subclasses, which say what they accept
        dataset: str
        model: str

    def stored(self) -> int:
        """See `task.Task`. Raises `DataError`."""
        return look(self.model).size

    @field_validator("model", "data", check_fields=False)
    @classmethod
    def _placed(cls, value: str | None, info: ValidationInfo) -> str | None:
        """A folder beside the scenario's file is that folder, wherever the command is run.

        Where the scenario is a server's, and not this process's own, the context holds the `roots` that folders lie in.
        Raises `NotAllowed`.
        """
        roots: Roots | None = (info.context or {}).get("roots")
        if roots is not None and value is not None:
            if info.field_name == "model":
                return roots.model(value)
            found = roots.locate(value)
            if found is None:
                raise ValueError(f"there is no such folder in {', '.join(map(str, roots.folders))}")
            return str(found)
        folder = (info.context or {}).get("folder")
        beside = None if folder is None or value is None else Path(folder, value)
        return str(beside.absolute()) if beside is not None and os.path.isdir(beside) else value

    def splits(self, seed: int) -> dict[str, list[Sample]]:
        """train, validation and test. What is held out depends on set and fraction alone, not on the seed."""
        learned, tested = read(self.dataset, self.data)
        count = round(self.validation * len(learned))
        order = stream("validation", self.dataset).permutation(len(learned))
        held, kept = np.sort(order[:count]), np.sort(order[count:])
        if self.shots is not None:
            kept = self._few(learned, kept, seed)
        return {
            "train": [learned[index] for index in kept],
            "validation": [learned[index] for index in held],
            "test": tested,
        }

    def _few(self, samples: list[Sample], kept: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """So many of each class; of a class with fewer, all. The articles of SQuAD are no classes."""
        labels = np.array([0 if self.dataset == "squad" else samples[index].label for index in kept])
        shuffled = stream("shots", self.dataset, seed).permutation(kept.size)
        chosen = [shuffled[labels[shuffled] == label][: self.shots] for label in np.unique(labels)]
        return np.sort(kept[np.concatenate(chosen)]) if chosen else kept

    def measured(self, count: int) -> NDArray[np.int64]:
        """Which of a split's samples are measured."""
        return np.sort(stream("evaluated", self.dataset).permutation(count)[: self.evaluated])
