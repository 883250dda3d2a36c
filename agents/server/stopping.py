"""When a run is measured and when it is over: after so many rounds, at a target, or past a budget of bytes.

A target is met by the exponential moving average of a metric, parameter 0.9 per round, as the papers' tables count
rounds (FedACG, arXiv:2201.03172, §5). They measure after every round; a value that was measured after r more weighs
1 − 0.9^r, so that the average of a run that is measured more seldom lags no further behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from seedbus.agents.messages import Evaluation

EMA = 0.9


def rounds_done(line: Mapping[str, Any]) -> int:
    """How many rounds were over when a line of metrics was measured; 0 at x₀."""
    return int(line["round"]) + bool(line["version"] or line["round"])


class Average(NamedTuple):
    """An exponential moving average and after how many rounds it was brought up to date."""

    value: float
    rounds: int

    @staticmethod
    def moved(average: Average | None, value: float, rounds: int) -> Average:
        """The average with a value that was measured after so many rounds; None: it is the first."""
        if average is None:
            return Average(value, rounds)
        kept = EMA ** max(0, rounds - average.rounds)  # one that was overtaken by a later one weighs nothing
        return Average(kept * average.value + (1 - kept) * value, max(rounds, average.rounds))


def averages(lines: Iterable[Mapping[str, Any]], metric: str) -> list[float]:
    """The moving average at each line of metrics, oldest first; NaN from the first value on that is not finite."""
    average, found = None, list[float]()
    for line in lines:
        value = math.nan if line.get(metric) is None else float(line[metric])
        average = Average.moved(average, value, rounds_done(line))
        found.append(average.value)
    return found


class Target(BaseModel):
    """A metric's moving average that ends the run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    metric: str = Field(default="accuracy", description="a metric that the task reports")
    value: float = Field(description="the run ends once the moving average, 0.9 per round, reaches it")
    direction: str = Field(default="above", pattern="^(above|below)$", description="above or below")


class Stop(BaseModel):
    """The run ends at whichever comes first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(ge=1, lt=2**32, description="rounds attempted at most")
    target: Target | None = Field(default=None, description="a metric's moving average")
    bytes: int | None = Field(default=None, ge=1, description="bytes of plans and reports, both ways, all clients")

    def reason(self, rounds_done: int, progress: Progress) -> str | None:
        """Why a run that has come so far is over, or None."""
        if self.target is not None and progress.is_target_met:
            return f"the moving average of {self.target.metric} reached {self.target.value}"
        if rounds_done >= self.rounds:
            return f"all {self.rounds} rounds are done"
        if self.bytes is not None and progress.bytes >= self.bytes:
            return f"{progress.bytes:,} bytes were sent, the budget was {self.bytes:,}"
        return None


class Cadence(BaseModel):
    """How often the evaluator measures, and on what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: int = Field(default=1, ge=1, description="evaluate after every so many rounds, and after the last")
    split: str = Field(default="test", pattern="^(test|validation)$", description="test or validation")


@dataclass(slots=True)
class Progress:
    """How far a run has come, as far as stopping depends on it. awaited: evaluations asked for and not answered."""

    bytes: int = 0
    awaited: int = 0
    is_target_met: bool = False
    averages: dict[str, Average] = field(default_factory=dict)

    def answered(self) -> None:
        """An evaluation that was asked for is not awaited any more."""
        self.awaited = max(0, self.awaited - 1)

    def measured(
        self, evaluation: Evaluation, stop: Stop, now_ns: int, bytes_up: int, bytes_down: int
    ) -> dict[str, Any]:
        """Take in an evaluation; returns its line of metrics."""
        self.answered()
        when = {"round": evaluation.round, "version": evaluation.version, "time_s": now_ns / 1e9}
        for name, value in evaluation.metrics.items():
            self.averages[name] = Average.moved(self.averages.get(name), value, rounds_done(when))
        if stop.target is not None and stop.target.metric in self.averages:
            average, value = self.averages[stop.target.metric].value, stop.target.value
            met = average >= value if stop.target.direction == "above" else average <= value
            self.is_target_met = self.is_target_met or met
        watched = {"accuracy"} | ({stop.target.metric} if stop.target is not None else set())
        averages = {f"{name}_ema": self.averages[name].value for name in sorted(watched & evaluation.metrics.keys())}
        # what the run itself knows comes last: no metric's name can take its place
        return when | evaluation.metrics | averages | when | {"bytes_up": bytes_up, "bytes_down": bytes_down}

    def pack(self) -> list[Any]:
        return [self.bytes, self.awaited, self.is_target_met, [[name, *each] for name, each in self.averages.items()]]

    @staticmethod
    def unpack(packed: list[Any]) -> Progress:
        sent, awaited, is_target_met, averages = packed
        return Progress(sent, awaited, is_target_met, {name: Average(*each) for name, *each in averages})
