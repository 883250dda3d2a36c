"""Mean and deviation of numbers that their owners keep: a run of one round, whose result a `table` task then states.

See `tables/moments.py` for what travels. Where reports are masked, the server sees the sum of all owners alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from seedbus.capabilities import Fact, RulesOut, Statement
from seedbus.models.errors import DataError
from seedbus.models.partition import Partition
from seedbus.models.partitions.own import Own
from seedbus.models.tables.moments import MomentsProblem, Range, metrics_of
from seedbus.models.task import Problem, Task

_STEP = {"name": "fedavg", "learning_rate": 1, "local_steps": 1, "weighting": "uniform"}


class Moments(Task, frozen=True):
    """Mean and deviation of columns of owners' tables, by one round of FedAvg."""

    has_layers: ClassVar[bool] = False
    has_slopes: ClassVar[bool] = False
    uses_device: ClassVar[bool] = False
    has_stated: ClassVar[bool] = True
    averaged: ClassVar[Sequence[str]] = ()

    name: Literal["moments"] = "moments"
    columns: dict[str, Range] = Field(min_length=1, max_length=1000, description="the columns, each with its range")
    rows: int = Field(ge=1, le=10**9, description="how many rows an owner has at most")
    fewest: int = Field(3, ge=2, description="refused with a smaller participation.quorum: of how many owners a sum is")
    separator: str = Field(",", min_length=1, max_length=1, description="the character between the cells of CSV")

    @property
    def metrics(self) -> tuple[str, ...]:  # type: ignore[override]  # a class variable of Task; here the columns decide
        """See `task.Task`."""
        return metrics_of([*self.columns])

    @property
    def dimension(self) -> int:
        return 1 + 2 * len(self.columns)

    @property
    def may_hold_out(self) -> bool:
        """See `Task`."""
        return False

    def capabilities(self) -> Iterator[Statement]:
        yield from super().capabilities()
        yield RulesOut(Fact.COMMON, "adds up what owners have")

    def check_beside(self, scenario: Any) -> None:
        algorithm, who = scenario.algorithm, scenario.participation
        given = algorithm.model_dump(exclude_defaults=True, exclude={"compression"}) | {"name": algorithm.name}
        compression = getattr(algorithm, "compression", None)
        if given != _STEP or (compression is not None and compression.kind != "fixed-point"):
            expected = "name: fedavg, learning_rate: 1, local_steps: 1, weighting: uniform"
            raise ValueError(f"algorithm is not that of task moments; expected {expected}, perhaps with fixed-point")
        if who.size != who.clients or scenario.stop.most_rounds != 1:
            raise ValueError(
                "task moments adds up once, over all owners; expected stop.rounds: 1, and all in the cohort"
            )
        if who.quorum < self.fewest:
            raise ValueError(
                f"participation.quorum is {who.quorum}; expected {self.fewest} at least, as task.fewest says"
            )

    def bind(self, *, seed: int, clients: int, partition: Partition) -> Problem:
        """Read the tables of this process's owners. Raises `DataError`."""
        if not isinstance(partition, Own):
            raise DataError(f"partition {partition.kind}", "tables that their owners have", "partition own")
        return MomentsProblem(self.columns, self.rows, self.separator, seed=seed, clients=clients, partition=partition)
