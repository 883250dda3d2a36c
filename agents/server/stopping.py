"""When a run is evaluated, and when it ends: after rounds, at a target, past a budget of bytes or of time, or diverged.

A target is met by the exponential moving average of a metric with parameter 0.9 per round, so that one lucky
measurement does not end a run; it is how FedACG counts rounds (arXiv:2201.03172, Table 1), which measures after every
round. Here a value that was measured r rounds after the previous one has weight 1 − 0.9^r, so that the average does not
lag further behind if measurements are rarer. **Ours**: it begins with x₀, whose weight after r rounds is 0.9^r. The
authors' code measures no x₀; its first average is the first round's value. So ours meets a target later, and in short
runs stays lower: from 10% it cannot be 80% before round 15, whatever the method. With `smoothed: false` the metric
itself meets the target.

Training has diverged if the loss of an evaluation is not finite, or if `BARREN` rounds in a row were barren: no commit,
and reports that were refused or declined because of their magnitude (`Mark.TOO_LARGE`), of as many clients as a quorum
and of more than had theirs accepted (of one node, without a server). A few reports may remain finite while the model is
of no use any more; without a commit they change nothing. The server does not wait for an evaluation before it opens the
next round, so a loss ends the run after one more round; in real time after as many as close before the evaluation
comes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from seedbus.agents.extensions import Spending
from seedbus.agents.messages import Evaluation
from seedbus.bus.records import Count, Number, Text
from seedbus.capabilities import Fact
from seedbus.settings import Settings

EMA = 0.9
"""Weight of the moving average's old value after one round."""
BARREN = 10
"""After so many barren rounds in a row training has diverged."""
MOST_ROUNDS = 2**32 - 1
TIMELESS = 10_000
"""After so many rounds in a row that took no time, a run that only time would end is given up."""
_LATEST_S = 10**7  # past the end of simulated time


def rounds_done(line: Mapping[str, Any], *, is_first: bool) -> int:
    """Return how many rounds were over when a line of metrics was measured.

    Args:
        line: its `round` is the last one before it, from 0; that of x₀ is 0 too.
        is_first: whether it is the run's first; x₀ is measured once, before everything else. A first round without a
            commit has the same round and version.
    """
    return int(line["round"]) + bool(line["version"] or line["round"] or not is_first)


def all_rounds_done(lines: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return how many rounds were over at each line of metrics, oldest first."""
    return [rounds_done(line, is_first=not index) for index, line in enumerate(lines)]


class Average(NamedTuple):
    """An exponential moving average.

    Attributes:
        value: the average.
        rounds: the number of rounds that were over at its newest measurement.
    """

    value: float
    rounds: int

    @staticmethod
    def updated(average: Average | None, value: float, rounds: int) -> Average:
        """Return the average with one more measurement.

        Args:
            average: the average before; None for the first measurement.
            value: the measurement.
            rounds: the number of rounds that were over when it was made.
        """
        if average is None:
            return Average(value, rounds)
        old_weight = EMA ** max(0, rounds - average.rounds)  # 1 if a later measurement has arrived before this one
        return Average(old_weight * average.value + (1 - old_weight) * value, max(rounds, average.rounds))


def averages(lines: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    """Return the moving average at each line of metrics, oldest first; NaN from the first non-finite value on."""
    average = None
    values = list[float]()
    for line, rounds in zip(lines, all_rounds_done(lines), strict=True):
        value = math.nan if line.get(metric) is None else float(line[metric])
        average = Average.updated(average, value, rounds)
        values.append(average.value)
    return values


def meets(value: float, target: float, *, is_rising: bool) -> bool:
    """Return whether a value meets a target; one that is not finite meets none."""
    return math.isfinite(value) and (value >= target if is_rising else value <= target)


class Target(Settings):
    """A metric's moving average, or the metric itself, that ends the run."""

    metric: str = Field(
        default="accuracy",
        description="a metric that the task reports; one of which smaller values are better needs a direction",
    )
    value: float = Field(description="the run ends once it is reached")
    direction: str = Field(default="above", pattern="^(above|below)$", description="above or below")
    smoothed: bool = Field(
        default=True,
        description="whether the moving average, 0.9 per round from the value at x₀ on, is to reach it, "
        "or else one evaluation",
    )

    @property
    def words(self) -> str:
        """What is to reach it."""
        return f"the moving average of {self.metric}" if self.smoothed else self.metric


class Stop(Settings):
    """The run ends at whichever comes first."""

    rounds: int | None = Field(
        default=None, ge=1, le=MOST_ROUNDS, description="rounds attempted at most; may be left out beside simulated_s"
    )
    target: Target | None = Field(default=None, description="a value of a metric")
    bytes: int | None = Field(default=None, ge=1, description="bytes of plans and reports, both ways, all clients")
    simulated_s: float | None = Field(
        default=None,
        gt=0,
        le=_LATEST_S,
        description="seconds of the run's clock, real ones with `clock: wall`: the round in progress is the last one",
    )
    epsilon: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="ε of `privacy`: the run ends before a commit that could exceed it",
    )
    diverged: Literal["end", "continue"] = Field(
        default="end", description="what follows when training has diverged: the run ends, or continues all the same"
    )

    @model_validator(mode="after")
    def _ends(self) -> Stop:
        if self.rounds is None and self.simulated_s is None:
            raise ValueError("rounds is missing, and simulated_s too; one of them is needed, so that the run ends")
        return self

    @property
    def most_rounds(self) -> int:
        """`rounds`; where only time ends the run, as many as any run can have."""
        return MOST_ROUNDS if self.rounds is None else self.rounds

    def reason(self, rounds_done: int, progress: Progress) -> str | None:
        """Return why a run with this progress is over; None if it is not."""
        if self.target is not None and progress.is_target_met:
            return f"{self.target.words} reached {self.target.value}"
        if (divergence := self.divergence(rounds_done, progress)) is not None:
            return divergence
        if rounds_done >= self.most_rounds:
            return "the one round is done" if self.rounds == 1 else f"all {self.most_rounds} rounds are done"
        if self.bytes is not None and progress.bytes >= self.bytes:
            return f"{progress.bytes:,} bytes were sent, the budget was {self.bytes:,}"
        if self.simulated_s is not None and progress.now_ns >= round(self.simulated_s * 1e9):
            return f"{progress.now_ns / 1e9:,.1f} s have passed, the limit was {self.simulated_s:,g} s"
        if self.epsilon is not None and progress.spent is not None:
            return progress.spent.exhausted(self.epsilon)
        return None

    def divergence(self, rounds_done: int, progress: Progress) -> str | None:
        """Return how training has diverged, if that ends the run; None otherwise."""
        if self.diverged == "continue":
            return None
        if progress.not_finite is not None:
            when = f"after round {progress.not_finite:,}" if progress.not_finite else "before the first round"
            return f"training diverged: the loss {when} is not a finite number"
        if progress.barren >= BARREN:
            first = rounds_done - progress.barren + 1
            which = f"rounds {first:,} to {rounds_done:,}"
            return f"training diverged: no commit in {which}, whose reports were refused as too large or not finite"
        return None


class Cadence(Settings):
    """How often the model is measured, on what, and who does it."""

    gives: ClassVar[tuple[tuple[Any, str], ...]] = ((Fact.MEASURED_BY_CLIENTS, "by"),)

    by: Literal["server", "clients"] = Field(
        default="server",
        description="server: its evaluator, on samples that it has; clients: each on samples of its own that it does "
        "not train on, whose sums and counts are added up",
    )
    every: int = Field(default=1, ge=1, description="evaluate after every so many rounds, and after the last")
    split: Literal["train", "validation", "test"] = Field(default="test", description="the samples that it measures on")

    @model_validator(mode="after")
    def _held_out(self) -> Self:
        if self.by == "clients" and self.split == "train":
            raise ValueError("split: train are the samples that clients train on; by: clients takes test or validation")
        return self


class Sent(NamedTuple):
    """Bytes of the algorithm so far, without digests for verification.

    Attributes:
        up: from clients.
        down: to clients.
    """

    up: Count = 0
    down: Count = 0


class ProgressState(NamedTuple):
    """What a checkpoint stores of `Progress`; in this order."""

    sent: Sent
    asked: list[tuple[Count, Count, Count, Count]]
    is_target_met: bool
    averages: list[tuple[Text, Number, Count]]
    barren: Count
    not_finite: Count | None
    spent: Any = None


@dataclass(slots=True)
class Progress:
    """The progress of a run, as far as stopping depends on it.

    Attributes:
        sent: as of the newest closed round.
        asked: (round, version, what was sent until then) of each evaluation that was requested and not answered yet.
        is_target_met: whether the target has been met.
        averages: metric → its moving average.
        barren: number of barren rounds in a row, up to the newest closed one.
        not_finite: number of rounds that were over at the first evaluation whose loss is not finite; None: all are.
        spent: what the commits have spent; None: of nothing.
        now_ns: the run's clock when the newest closed round was published, or a wait after it was over; no checkpoint
            has it, since a run that goes on publishes that round again.
    """

    sent: Sent = field(default_factory=Sent)
    asked: list[tuple[int, int, Sent]] = field(default_factory=list)
    is_target_met: bool = False
    averages: dict[str, Average] = field(default_factory=dict)
    barren: int = 0
    not_finite: int | None = None
    spent: Spending | None = None
    now_ns: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the algorithm up to the newest closed round, both ways."""
        return sum(self.sent)

    @property
    def awaited(self) -> int:
        """The number of evaluations that were requested and not answered yet."""
        return len(self.asked)

    def answered(self, round: int | None = None, version: int | None = None) -> Sent:
        """Note that an evaluation has been answered, or refused.

        Args:
            round: the one that the answer is about; None, or one that was not asked: the oldest is answered.
            version: of the model that was evaluated.

        Returns:
            What was sent when that evaluation was asked.
        """
        if not self.asked:
            return self.sent
        places = (place for place, asked in enumerate(self.asked) if asked[:2] == (round, version))
        return self.asked.pop(next(places, 0))[2]

    def measured(self, evaluation: Evaluation, stop: Stop, now_ns: int) -> dict[str, Any]:
        """Update the averages with an evaluation and return its line of metrics.

        Its bytes are those until the round that it evaluates was closed: what the next round sends, which may have
        begun since, made no difference to this model.

        Args:
            evaluation: the evaluator's answer.
            stop: says which metric has a target.
            now_ns: the current time.
        """
        sent = self.answered(evaluation.round, evaluation.version)
        when = {"round": evaluation.round, "version": evaluation.version, "time_s": now_ns / 1e9}
        rounds = rounds_done(when, is_first=not self.averages)
        for name, value in evaluation.metrics.items():
            self.averages[name] = Average.updated(self.averages.get(name), value, rounds)
        if self.not_finite is None and not math.isfinite(evaluation.metrics.get("loss", 0.0)):
            self.not_finite = rounds
        target = stop.target
        if target is not None and target.metric in evaluation.metrics:
            value = self.averages[target.metric].value if target.smoothed else evaluation.metrics[target.metric]
            if meets(value, target.value, is_rising=target.direction == "above"):
                self.is_target_met = True
        watched = {"accuracy"} | ({target.metric} if target is not None else set())
        averages = {f"{name}_ema": self.averages[name].value for name in sorted(watched & evaluation.metrics.keys())}
        # The run's own values come last, so that a metric of the same name cannot replace them.
        spent = {} if self.spent is None else self.spent.measured(rounds)
        return when | evaluation.metrics | averages | spent | when | {"bytes_up": sent.up, "bytes_down": sent.down}

    def pack(self) -> Any:
        """Return what a checkpoint stores: a `ProgressState`; `spent` is left out where nothing is spent."""
        asked = [(round, version, *sent) for round, version, sent in self.asked]
        averages = [(name, *each) for name, each in self.averages.items()]
        state = ProgressState(self.sent, asked, self.is_target_met, averages, self.barren, self.not_finite)
        return state[:-1] if self.spent is None else state._replace(spent=self.spent.pack())

    @staticmethod
    def unpack(packed: Sequence[Any], spent: Spending | None = None) -> Progress:
        """Return the progress that `pack` stored; spent: goes on from what was stored."""
        state = ProgressState(*packed)
        if (spent is None) != (state.spent is None):
            raise ValueError("a run that spends something has stored what it has spent, and no other has")
        if spent is not None and state.spent is not None:
            spent.unpack(state.spent)
        asked = [(round, version, Sent(*until)) for round, version, *until in state.asked]
        averages = {name: Average(value, rounds) for name, value, rounds in state.averages}
        return Progress(state.sent, asked, state.is_target_met, averages, state.barren, state.not_finite, spent)
