"""When a run is measured and when it is over: after so many rounds, at a target, or past a budget of bytes.

A target is met by the exponential moving average of a metric, parameter 0.9 per evaluation, as the papers' tables
count rounds (FedACG, arXiv:2201.03172, §5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from seedbus.agents.messages import Evaluation

EMA = 0.9


def moved(average: float | None, value: float) -> float:
    """The exponential moving average once another value has come; None: it is the first."""
    return EMA * (value if average is None else average) + (1 - EMA) * value


class Target(BaseModel):
    """A metric's moving average that ends the run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    metric: str = Field(default="accuracy", description="a metric that the task reports")
    value: float = Field(description="the run ends once the 0.9 moving average reaches it")
    direction: str = Field(default="above", pattern="^(above|below)$", description="above or below")


class Stop(BaseModel):
    """The run ends at whichever comes first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(ge=1, lt=2**32, description="rounds attempted at most")
    target: Target | None = Field(default=None, description="a metric's moving average")
    bytes: int | None = Field(default=None, ge=1, description="bytes of plans and reports, both ways, all clients")

    def reason(self, rounds_done: int, progress: Progress) -> str | None:
        """Why a run that has come so far is over, or None."""
        if progress.is_target_met:
            assert self.target is not None
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
    averages: dict[str, float] = field(default_factory=dict)

    def measured(
        self, evaluation: Evaluation, stop: Stop, now_ns: int, bytes_up: int, bytes_down: int
    ) -> dict[str, Any]:
        """Take in an evaluation; returns its line of metrics."""
        self.awaited = max(0, self.awaited - 1)
        for name, value in evaluation.metrics.items():
            self.averages[name] = moved(self.averages.get(name), value)
        if stop.target is not None and stop.target.metric in self.averages:
            average, value = self.averages[stop.target.metric], stop.target.value
            met = average >= value if stop.target.direction == "above" else average <= value
            self.is_target_met = self.is_target_met or met
        watched = {"accuracy"} | ({stop.target.metric} if stop.target is not None else set())
        averages = {f"{name}_ema": self.averages[name] for name in sorted(watched & evaluation.metrics.keys())}
        when = {"round": evaluation.round, "version": evaluation.version, "time_s": now_ns / 1e9}
        # what the run itself knows comes last: no metric's name can take its place
        return when | evaluation.metrics | averages | when | {"bytes_up": bytes_up, "bytes_down": bytes_down}

    def pack(self) -> list[Any]:
        return [self.bytes, self.awaited, self.is_target_met, [list(pair) for pair in self.averages.items()]]

    @staticmethod
    def unpack(packed: list[Any]) -> Progress:
        return Progress(packed[0], packed[1], packed[2], {name: value for name, value in packed[3]})
