"""A fault of your own: for a while every day the network is crowded, and messages take longer.

    python examples/rush_hour.py

The same file is a plug-in; in a scenario: `faults: [{fault: rush-hour, mean_s: 5}]`.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

import seedbus
from seedbus.plugin import PASS, MessageSelector, Passage, Verdict, load_plugin


class RushHour(MessageSelector):
    """Delay the selected messages while the network is crowded, by an exponentially distributed time."""

    fault: Literal["rush-hour"] = "rush-hour"
    day_s: float = Field(default=60.0, gt=0, description="simulated seconds of a day")
    crowded_s: float = Field(default=20.0, gt=0, description="for how many of them the network is crowded")
    mean_s: float = Field(default=1.0, gt=0, description="mean delay, in simulated seconds")

    def judge(self, passage: Passage) -> Verdict:
        is_crowded = passage.now_ns / 1e9 % self.day_s < self.crowded_s
        if not (is_crowded and self.strikes(passage)):
            return PASS
        # A draw is keyed by the message, so it is the same on every transport, whatever else happens.
        return Verdict(delay_ns=round(-math.log(passage.draw("delay")) * self.mean_s * 1e9))


def main() -> None:
    load_plugin(__file__)
    print(f"{'mean delay':<12}{'delayed':>9}{'late reports':>14}{'seconds a round':>17}")
    for mean_s in (0.0, 0.5, 2.0, 8.0):
        fault = {"fault": "rush-hour", "mean_s": mean_s or 1.0, "probability": float(mean_s > 0)}
        settings = ["participation.deadline_s=6", "participation.cohort=5", "stop.rounds=100"]
        scenario = seedbus.load("quickstart", [*settings, f"faults=[{fault}]"])
        summary = seedbus.run(scenario).summary
        delayed, late = summary["faults"][0].get("delayed", 0), sum(summary["refusals"].get("late", {}).values())
        seconds = summary["simulated_s"] / summary["rounds"]
        print(f"{mean_s:>8.1f} s  {delayed:>9}{late:>14}{seconds:>17.2f}")


if __name__ == "__main__":
    main()
