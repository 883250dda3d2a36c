"""New texts, and what an exported model of owners' texts says of them: the answers' scores, or the classes' logits.

Such a file has the trained tensors and the task's settings. The weights beside them are read on this machine, and must
be those that the tensors were trained with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from seedbus.models.data.roots import Roots, own_roots
from seedbus.models.errors import DataError, NotAllowed
from seedbus.models.partitions.own import Own
from seedbus.models.preprocessing import Preprocessing
from seedbus.models.task import TASKS
from seedbus.models.text.files import Sample
from seedbus.models.text.published import PUBLISHED
from seedbus.models.text.stated import StatedTexts, cell_of, rows_of
from seedbus.models.text.task import TextTask

WRITTEN = "a model that `seedbus export RUN --out FILE` has written of owners' texts"


def outputs_of(
    file: Path, about: Preprocessing, tensors: Mapping[str, Tensor], rows: Path | Sequence[str | Mapping[str, Any]]
) -> NDArray[np.float64]:
    """Return an output for each new text and class, [n, classes].

    Args:
        file: the model's, for sentences.
        about: what it says of itself.
        tensors: those in it.
        rows: a file such as owners have, without need of a target; or mappings from columns to cells; or, of one
            column, texts.

    Raises:
        DataError: a row does not fit, or the model and what this machine has do not belong together.
    """
    task = _task(file, about)
    coordinates = sum(tensor.numel() for tensor in tensors.values())
    if (about.classes, about.number, coordinates) != (task.stated.labels, None, task.dimension):
        raise DataError(file, "classes or tensors that are not those of its settings", WRITTEN)
    samples = [Sample(fields, 0) for fields in _fields(task.stated, rows)]
    problem: Any = task.bind(seed=0, clients=1, partition=Own())
    if problem.identity().hex() != about.frozen:
        found = f"a model trained beside other weights, or another tokenizer or configuration, than {task.model} has"
        raise DataError(file, found, "the folder of the model that the training began with")
    with problem.trained.at(problem.vector_of(tensors)):
        outputs: NDArray[np.float64] = problem.outputs(samples)
    return outputs


def _task(file: Path, about: Preprocessing) -> Any:
    kind = TASKS.all().get(about.task)
    if kind is None or not issubclass(kind, TextTask):
        raise DataError(file, f"a model of task {about.task}", WRITTEN)
    try:
        return kind.model_validate(about.settings, context={"roots": Roots(own_roots(), PUBLISHED)})
    except NotAllowed as error:
        raise DataError(file, f"a model that began with {error.asked}", "its folder inside SEEDBUS_DATA") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise DataError(file, f"settings that are not accepted ({first['msg']})", WRITTEN) from None


def _fields(stated: StatedTexts, rows: Path | Sequence[str | Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the texts of each row by column. Raises `DataError`."""
    columns = stated.shown
    if isinstance(rows, Path):
        return [fields for _, fields in rows_of(rows, columns)]
    if len(columns) == 1:
        rows = [{columns[0]: row} if isinstance(row, str) else row for row in rows]
    found = []
    for number, row in enumerate(rows, 1):
        where = f"row {number}"
        if isinstance(row, str):
            raise DataError(where, "a text", f"a mapping with {', '.join(columns)}")
        found.append({name: cell_of(row, name, where) for name in columns})
    return found
