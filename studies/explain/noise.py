"""The least noise with which a scenario's run spends no more than a given ε: `seedbus privacy SCENARIO --epsilon`."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from seedbus.agents.privacy.settings import Privacy
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.privacy import facts
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.explain.forecast import is_spending_known, traffic
from seedbus.studies.explain.rehearsal import rehearse
from seedbus.studies.explain.spending import Spending

REHEARSAL_S = 60.0
"""Processor seconds after which a rehearsal ends sooner."""
MULTIPLIERS = range(12 * 900)
"""The numbers of three digits from 1e-6 to 9.99e5, in order."""


def least_noise(scenario: Scenario, source: str, epsilon: float) -> dict[str, Any]:
    """Return the least noise multiplier of three digits with which a run spends ε at most, and what it spends then.

    Args:
        scenario: the run's; its own noise multiplier does not matter.
        source: how messages name it.
        epsilon: the most that its commits may spend.

    Returns:
        `noise_multiplier`, what `seedbus privacy` will say of the run, and `is_exact`, see `forecast.Spent`.

    Raises:
        ScenarioError: the scenario is not private, `stop.epsilon` is less, or no noise is enough.
    """
    privacy, stop = scenario.privacy, scenario.stop
    if privacy is None:
        what = "a clip, and any noise_multiplier, which --target then replaces"
        raise ScenarioError(
            source, [f"--target epsilon={epsilon:g} is for a private scenario; give the field privacy, with {what}"]
        )
    if stop.epsilon is not None and stop.epsilon < epsilon:
        problem = f"stop.epsilon is {stop.epsilon:g}, so no run spends {epsilon:g}; at least {epsilon:g} is accepted"
        raise ScenarioError(source, [problem])
    spending, rounds, is_exact = _spending(scenario, privacy)
    most, last = spending.commits(rounds), spending.commits(rounds - 1) + 1

    def is_enough(place: int) -> bool:
        z = _multiplier(place)
        lasts = stop.epsilon is None or spending.epsilon(last, z) <= stop.epsilon  # or the run ends before `rounds`
        return lasts and spending.epsilon(most, z) <= epsilon

    place = bisect_left(MULTIPLIERS, True, key=is_enough)
    if place == len(MULTIPLIERS):
        least = spending.epsilon(most, _multiplier(place - 1))
        leaves = f"the most noise leaves ε = {least:.3g} after {rounds:,} rounds"
        problem = f"--target epsilon={epsilon:g} is out of reach: {leaves}"
        raise ScenarioError(source, [problem])
    z = _multiplier(place)
    who = scenario.participation
    found = facts(privacy, who, spending.epsilon(most, z), rounds, is_virtual=scenario.clock == "virtual")
    return {"noise_multiplier": z} | found | {"is_exact": is_exact}


def _spending(scenario: Scenario, privacy: Privacy) -> tuple[Spending, int, bool]:
    """Return what the rounds of a run spend, after how many it ends, and whether both are known exactly."""
    stop, spending = scenario.stop, Spending(scenario, privacy)
    if spending.is_known(scenario, stop.most_rounds) and stop.bytes is None and stop.simulated_s is None:
        return spending, stop.most_rounds, True
    free = scenario.model_copy(update={"stop": stop.model_copy(update={"epsilon": None})})
    rehearsal = rehearse(free, REHEARSAL_S)
    found = traffic(free, rehearsal)
    spending = rehearsal.course.spending or spending
    return spending, found.rounds, is_spending_known(scenario, found, spending)


def _multiplier(place: int) -> float:
    return float(f"{100 + place % 900}e{place // 900 - 8}")
