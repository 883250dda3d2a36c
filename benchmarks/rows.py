"""A row of the table that `bench.py` prints: a figure, its baseline in the same run, and a lower limit for both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Measure = Literal["faster", "dearer", "most", "near"]
SIGNS = {"faster": "≥ {}× faster", "dearer": "≤ {}×", "most": "≤ {}", "near": "≤ {}× the limit"}


@dataclass(frozen=True)
class Row:
    """One figure of the table. Less is better in every unit.

    Attributes:
        name: what is measured.
        unit: unit of all figures of the row.
        ours: the figure of Seedbus.
        plain: the baseline's figure in the same run.
        against: name of the baseline.
        limit: lower limit for any program that does this work, measured in the same run.
        bound: name of the limit.
        measure: what the aim is about: `faster`, plain ÷ ours at least; `dearer`, ours ÷ plain at most; `most`, ours at
            most; `near`, ours ÷ limit at most.
        aim: the aim; None: none was set.
    """

    name: str
    unit: str
    ours: float
    plain: float | None = None
    against: str = ""
    limit: float | None = None
    bound: str = ""
    measure: Measure = "dearer"
    aim: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times faster than the baseline, or how many times its cost, by `measure`."""
        if self.plain is None:
            return None
        return self.plain / self.ours if self.measure == "faster" else self.ours / self.plain

    @property
    def reached(self) -> float | None:
        """The limit as a share of the figure; 1 is optimal."""
        return None if self.limit is None or not self.ours else self.limit / self.ours

    @property
    def is_met(self) -> bool | None:
        if self.aim is None:
            return None
        if self.measure == "most":
            return self.ours <= self.aim
        if self.measure == "near":
            assert self.limit is not None, f"{self.name}: an aim that is near a limit needs one"
            return self.ours <= self.aim * self.limit
        assert self.ratio is not None, f"{self.name}: an aim beside a baseline needs one"
        return self.ratio >= self.aim if self.measure == "faster" else self.ratio <= self.aim

    def cells(self) -> list[str]:
        """Return the cells of the table, in the order of HEADS."""
        plain = "" if self.plain is None else f"{number(self.plain)} {self.unit} {self.against}"
        ratio = "" if self.ratio is None else f"{number(self.ratio)}×{' faster' if self.measure == 'faster' else ''}"
        limit = "" if self.limit is None else f"{number(self.limit)} {self.unit} {self.bound}"
        reached = "" if self.reached is None else f"{self.reached:.0%}"
        aim = "–" if self.aim is None else SIGNS[self.measure].format(f"{self.aim:g}")
        aim += f" {self.unit}" if self.measure == "most" and self.aim is not None else ""
        met = {None: "", True: "yes", False: "no"}[self.is_met]
        return [self.name, f"{number(self.ours)} {self.unit}", plain, ratio, limit, reached, aim, met]

    def told(self) -> dict[str, Any]:
        """Return all fields and derived figures, for programs."""
        return asdict(self) | {"ratio": self.ratio, "reached": self.reached, "is_met": self.is_met}


HEADS = ("figure", "Seedbus", "plain baseline", "ratio", "limit", "reached", "aim", "met")


@dataclass(frozen=True)
class Skip:
    """Rows that could not be measured here, with the reason as a sentence."""

    why: str


def number(value: float) -> str:
    """Format a figure with three significant digits; from 100 on, as an integer."""
    if value and abs(value) < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}"
