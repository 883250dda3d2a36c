"""How long things take in simulated time: links with latency and bandwidth, and clients that compute.

Every duration is drawn by key (seed, what, who, round, …), so it is the same on every transport, and is rounded to
whole nanoseconds. Links of the evaluator and of hosts are ideal: they are instruments, not subjects.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from statistics import NormalDist
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seedbus.bus.draws import Key, uniform
from seedbus.bus.envelope import Kind

_NORMAL = NormalDist()
_LONGEST_S = 10**6  # a single draw: a heavy tail must not outrun the clock
_HIGHEST_EXPONENT = 700.0  # exp overflows above 709


class _Duration(BaseModel, ABC):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def quantile(self, u: float) -> float:
        """The duration in seconds at probability u in (0, 1), cut off at 10⁶ s."""
        return min(self._quantile(u), _LONGEST_S)

    @abstractmethod
    def _quantile(self, u: float) -> float: ...

    def draw_s(self, seed: int, *key: Key) -> float:
        """A duration in seconds, keyed."""
        return self.quantile(uniform(seed, *key))


class Constant(_Duration):
    """Always the same."""

    distribution: Literal["constant"] = "constant"
    value: float = Field(default=0.0, ge=0, le=_LONGEST_S, description="seconds")

    def _quantile(self, u: float) -> float:
        return self.value

    def draw_s(self, seed: int, *key: Key) -> float:
        return self.value  # whatever is drawn


class Uniform(_Duration):
    """Evenly spread between two bounds."""

    distribution: Literal["uniform"] = "uniform"
    low: float = Field(ge=0, le=_LONGEST_S, description="seconds")
    high: float = Field(ge=0, le=_LONGEST_S, description="seconds")

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.high < self.low:
            raise ValueError(f"high ({self.high}) is below low ({self.low})")
        return self

    def _quantile(self, u: float) -> float:
        return self.low + u * (self.high - self.low)


class Lognormal(_Duration):
    """Log-normal: most are near the median, a few are far above it."""

    distribution: Literal["lognormal"] = "lognormal"
    median: float = Field(gt=0, le=_LONGEST_S, description="seconds")
    sigma: float = Field(ge=0, le=10, description="standard deviation of the logarithm")

    def _quantile(self, u: float) -> float:
        return self.median * math.exp(self.sigma * _NORMAL.inv_cdf(u))


class Exponential(_Duration):
    """Memoryless, by its mean."""

    distribution: Literal["exponential"] = "exponential"
    mean: float = Field(gt=0, le=_LONGEST_S, description="seconds")

    def _quantile(self, u: float) -> float:
        return -self.mean * math.log1p(-u)


class Pareto(_Duration):
    """Heavy-tailed, from its smallest value."""

    distribution: Literal["pareto"] = "pareto"
    minimum: float = Field(gt=0, le=_LONGEST_S, description="seconds")
    shape: float = Field(gt=0, le=100, description="tail index; at 1 and below the mean is infinite")

    def _quantile(self, u: float) -> float:
        return self.minimum * math.exp(min(-math.log1p(-u) / self.shape, _HIGHEST_EXPONENT))


Duration = Annotated[Constant | Uniform | Lognormal | Exponential | Pareto, Field(discriminator="distribution")]


class Network(BaseModel):
    """The links between the server and its clients."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    latency: Duration = Field(default=Constant(), description="one way, drawn for every message")
    up_mbps: float | None = Field(default=None, ge=1e-6, description="a client's uplink in Mbit/s; none: unlimited")
    down_mbps: float | None = Field(default=None, ge=1e-6, description="a client's downlink in Mbit/s; none: unlimited")


class Compute(BaseModel):
    """How long a client's local work takes: its evaluations of f, times its own slowness."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    evaluation: Duration = Field(default=Constant(), description="seconds for one evaluation of f, drawn every round")
    slowness: Duration = Field(default=Constant(value=1.0), description="a client's own factor, drawn once")

    def time_ns(self, seed: int, client: int, round: int, evaluations: int) -> int:
        """Nanoseconds that `client` needs for `evaluations` evaluations in `round`."""
        each = self.evaluation.draw_s(seed, "evaluation", client, round)
        return round_ns(min(each * evaluations * self.slowness.draw_s(seed, "slowness", client), _LONGEST_S))


class Links:
    """The queues of every client's link: a message starts when those before it have left.

    `busy` maps (client, upward) to the nanosecond at which that direction is free again. It is part of a checkpoint.
    """

    def __init__(self, network: Network, seed: int) -> None:
        self.network, self.seed = network, seed
        self.busy: dict[tuple[int, bool], int] = {}

    def arrival_ns(self, kind: Kind, client: int, round: int, occurrence: int, size: int, departs_ns: int) -> int:
        """When a message of `size` bytes that departs at `departs_ns` arrives; its link is taken until it has left."""
        if client < 0:
            return departs_ns
        mbps = self.network.up_mbps if kind.is_upward else self.network.down_mbps
        if mbps is not None:
            link = (client, kind.is_upward)
            departs_ns = max(departs_ns, self.busy.get(link, 0)) + math.ceil(size * 8000 / mbps)
            self.busy[link] = departs_ns
        latency_s = self.network.latency.draw_s(self.seed, "latency", client, kind.name, round, occurrence)
        return departs_ns + round_ns(latency_s)

    def forget(self, now_ns: int) -> None:
        """Drop the queues that are empty by now."""
        self.busy = {link: free_ns for link, free_ns in self.busy.items() if free_ns > now_ns}


def round_ns(seconds: float) -> int:
    """Whole nanoseconds."""
    return round(seconds * 1e9)
