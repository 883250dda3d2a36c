"""The fields of a task whose metrics may be functions of the user, and the names of the functions that it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from seedbus.models.own_code.named import METRICS_FIELD, check_named, function_or, is_own, plugin_of
from seedbus.models.task import RISING, Task

TAKEN = ("bytes_down", "bytes_up", "epsilon", "loss", "round", "time_s", "version")
"""Columns that an evaluation has without metrics."""
METRICS = (
    "name → accuracy, or plugin:function of the outputs and targets of all evaluated samples that returns a number; "
    "nothing: accuracy of a classifier, mae of a table's number"
)
"""What is said of the field `metrics`."""
_METRIC = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


class OwnMetrics(Task, frozen=True):
    """The fields of a task that has metrics of the user's own beside its loss."""

    own_metrics: dict[str, Annotated[Any, *function_or("accuracy")]] | None = Field(
        None, alias="metrics", description=METRICS
    )
    metrics_by: Literal["samples", "batches"] = Field(
        "samples",
        description="samples: a function of yours is called once, with all samples; batches: with each batch of 128 at "
        "most, and its values are averaged, which is right for means alone and needs little memory",
    )
    larger_is_better: list[str] = Field(
        [], description="those of its metrics, besides accuracy, of which larger values are better"
    )

    @field_validator("own_metrics")
    @classmethod
    def _check_metric_names(cls, metrics: dict[str, Any] | None) -> dict[str, Any] | None:
        for name in metrics or ():
            if not _METRIC.fullmatch(name) or name in TAKEN or name.endswith("_ema"):
                raise ValueError(f"no metric may be called {name!r}; expected a letter, then letters, digits, _ and -")
        return metrics

    @model_validator(mode="after")
    def _check_larger(self) -> Self:
        for name in self.larger_is_better:
            if name not in self.functions:
                known = ", ".join(self.functions) or "none"
                raise ValueError(f"larger_is_better names {name!r}; the metrics beside the loss are {known}")
        return self

    @property
    def usual_metrics(self) -> Mapping[str, str]:
        """Its metrics beside the loss if the user names none. May raise `DataError`."""
        return {"accuracy": "accuracy"}

    @property
    def functions(self) -> Mapping[str, Any]:
        """The metrics beside the loss: name → a word of ours, a function, or its name."""
        return self.usual_metrics if self.own_metrics is None else self.own_metrics

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]  # a class variable of Task; here a field decides
        """The names of the metrics of an evaluation."""
        return ("loss", *self.functions)

    @property
    def averaged(self) -> Sequence[str]:
        """See `Task.averaged`."""
        is_mean = self.metrics_by == "batches"
        return ("loss", *(name for name, metric in self.functions.items() if is_mean or not is_own(metric)))

    @property
    def rising(self) -> Sequence[str]:
        """See `Task.rising`."""
        return (*RISING, *self.larger_is_better)

    @property
    def plugin_names(self) -> list[str]:
        """The plug-ins that its functions are from."""
        return sorted({name for _, value in self.named() if (name := plugin_of(value)) is not None})

    def check_elsewhere(self) -> None:
        """See `Task.check_elsewhere`. Raises `DataError`."""
        check_named(self.named())

    def named(self) -> Iterator[tuple[str, Any]]:
        """Yield the fields that hold functions or objects of the user, with their values."""
        for name, metric in (self.own_metrics or {}).items():
            if is_own(metric):
                yield f"{METRICS_FIELD}.{name}", metric
