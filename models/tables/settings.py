"""The settings of a task on a table: the fields of `task:`, and where its files are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from seedbus.models.data.roots import find, locate, public_or_none
from seedbus.models.errors import DataError
from seedbus.models.images.task import ClassifierTask
from seedbus.models.own_code.metric_settings import METRICS
from seedbus.models.own_code.named import function_or
from seedbus.models.tables.stated_columns import Stated, check_columns

Width = Annotated[int, Field(ge=1, le=2**20)]
_PLACES = "beside the scenario's file, or in a directory that SEEDBUS_DATA names"


class TableSettings(ClassifierTask, frozen=True):
    """The fields of a task that learns one column of a table from others."""

    public_files: ClassVar[tuple[str, ...]] = ("test_file",)

    file: str | None = Field(
        None,
        min_length=1,
        description="CSV or Parquet: beside the scenario's file, or in a directory of SEEDBUS_DATA; none: `columns`",
    )
    target: str = Field(min_length=1, description="the column that is learnt")
    columns: dict[str, Stated] | None = Field(
        None,
        description="for `partition: own`, in the place of a file: the target and the columns that it is learnt from, "
        "each with its texts, or with the mean and deviation of its numbers",
    )
    features: tuple[str, ...] | None = Field(
        None, min_length=1, description="the columns that it is learnt from; none: all but target and owner"
    )
    categorical: tuple[str, ...] = Field((), description="columns of numbers whose cells are taken as texts")
    owner: str | None = Field(None, description="the column with the owner of each row, for `partition: natural`")
    kind: Literal["classification", "regression"] | None = Field(
        None,
        description="none: classification if the target is texts, or at most 20 different whole numbers; otherwise "
        "regression",
    )
    test: float = Field(
        0.2, gt=0, lt=1, description="fraction of the rows that are the test set, for any seed the same"
    )
    test_file: str | None = Field(
        None, min_length=1, description="a file whose rows are the test set, instead of `test`"
    )
    separator: str = Field(",", min_length=1, max_length=1, description="the character between the cells of CSV")
    model: Annotated[Any, *function_or("perceptron")] = Field(
        "perceptron", description="a perceptron of the widths `hidden`, or your own network"
    )
    hidden: tuple[Width, ...] = Field(
        (64, 32), description="widths of the perceptron's hidden layers with ReLU; []: softmax or linear regression"
    )
    own_metrics: dict[str, Annotated[Any, *function_or("accuracy", "mae")]] | None = Field(
        None, alias="metrics", description=METRICS
    )

    @field_validator("file", "test_file")
    @classmethod
    def _locate(cls, value: str | None, info: ValidationInfo) -> str | None:
        """Make the path of a file beside the scenario's file absolute. Raises as `roots.locate` does."""
        if value is None or info.data.get("columns") is None:
            return None if value is None else locate(value, info.context, os.path.isfile)
        return public_or_none(value, info.context, os.path.isfile)

    @model_validator(mode="after")
    def _check_stated(self) -> Self:
        if self.columns is None:
            if self.file is None:
                raise ValueError("file is missing; expected a table, or columns for `partition: own`")
            return self
        for field in ("file", "features", "categorical", "owner", "kind"):
            if field in self.model_fields_set and getattr(self, field):
                raise ValueError(f"columns states what owners' tables have, and {field} is of one table; leave one out")
        check_columns(self.columns, self.target)
        return self

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        for field, name in (("target", self.target), ("owner", self.owner)):
            if name is not None and self.features is not None and name in self.features:
                raise ValueError(f"features has {name}, which is the {field}; leave it out of features")
        if self.owner == self.target:
            raise ValueError(f"owner is {self.owner}, which is the target; expected another column")
        return self

    @model_validator(mode="after")
    def _check_network(self) -> Self:
        if self.own_network is not None and "hidden" in self.model_fields_set:
            raise ValueError("hidden is for the perceptron, and model is a network of your own; expected one of both")
        return self

    def named_files(self) -> list[Path]:
        """See `task.Task`: the file and, if there is one, the test file. Raises `DataError`."""
        paths = []
        for field, named in (("file", self.file), ("test_file", self.test_file)):
            path = None if named is None else find(named, os.path.isfile)
            if named is not None and path is None:
                raise DataError(f"task.{field}", f"no file {named}", f"a CSV or Parquet file {_PLACES}")
            paths += [] if path is None else [path]
        return paths
