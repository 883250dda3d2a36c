"""What `seedbus explain … privacy` says: ε of a run, or the least noise with which a run spends no more than an ε."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any

from seedbus.agents.feature import Foreseen
from seedbus.agents.privacy.feature import PrivateReports
from seedbus.agents.privacy.foreseen import Spending
from seedbus.agents.privacy.settings import LEAST_DELTA, Privacy
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.run_folder import features_of, figures_of, part_of
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.explain.forecast import is_spending_known, traffic
from seedbus.studies.explain.rehearsal import rehearse

REHEARSAL_S = 60.0
"""Processor seconds after which a rehearsal ends sooner."""
MULTIPLIERS = range(12 * 900)
"""The numbers of three digits from 1e-6 to 9.99e5, in order."""


def spent(run: Path, delta: float | None = None) -> dict[str, Any]:
    """Return ε of a run, from its journal alone, and what it depends on.

    Args:
        run: the run's folder.
        delta: δ, for which ε is stated; None: the scenario's.

    Raises:
        RunFolderError, JournalDamaged: the run cannot be read.
        ScenarioError: the run is not private.
    """
    feature = next((each for each in features_of(run) if isinstance(each, PrivateReports)), None)
    if feature is None:
        raise ScenarioError(str(run), ["its scenario has no privacy: its commits show the reports without noise"])
    if delta is not None:
        feature.settings = feature.settings.model_copy(update={"delta": delta})
    privacy, selection = feature.settings, part_of(run, "participation").selection
    if privacy.cohorts == "secret" and selection.is_fixed_size and privacy.delta < LEAST_DELTA:
        raise ScenarioError(
            str(run), [f"privacy.delta={privacy.delta:g}: at least {LEAST_DELTA:g} is accepted for its cohorts"]
        )
    epsilons = figures_of(run, [feature]).get("epsilon", [])
    return feature.facts(epsilons[-1] if epsilons else 0.0, len(epsilons))


def least_noise(scenario: Scenario, source: str, epsilon: float) -> dict[str, Any]:
    """Return the least noise multiplier of three digits with which a run spends ε at most, and what it spends then.

    Args:
        scenario: the run's; its own noise multiplier does not matter.
        source: how messages name it.
        epsilon: the most that its commits may spend.

    Returns:
        `noise_multiplier`, what `seedbus explain RUN privacy` will say of the run, and `is_exact` of `forecast.Spent`.

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
    found = PrivateReports(privacy, scenario).facts(spending.epsilon(most, z), rounds)
    return {"noise_multiplier": z} | found | {"is_exact": is_exact}


def _spending(scenario: Scenario, privacy: Privacy) -> tuple[Foreseen, int, bool]:
    """Return what the rounds of a run spend, after how many it ends, and whether both are known exactly."""
    stop, spending = scenario.stop, Spending(scenario, privacy)
    if spending.is_known(scenario, stop.most_rounds) and stop.bytes is None and stop.simulated_s is None:
        return spending, stop.most_rounds, True
    free = scenario.model_copy(update={"stop": stop.model_copy(update={"epsilon": None})})
    rehearsal = rehearse(free, REHEARSAL_S)
    found = traffic(free, rehearsal)
    rehearsed = rehearsal.course.spending or spending
    return rehearsed, found.rounds, is_spending_known(scenario, found, rehearsed)


def _multiplier(place: int) -> float:
    return float(f"{100 + place % 900}e{place // 900 - 8}")
