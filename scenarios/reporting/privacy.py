"""What a run has spent of its clients' privacy: recomputed from its journal alone, as plain data, and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from seedbus.agents.journal.journal import Journal
from seedbus.agents.policies.participation import Participation
from seedbus.agents.privacy.accountant import Accountant
from seedbus.agents.privacy.settings import LEAST_DELTA, Privacy
from seedbus.bus.text import counted
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.report import SEEDED_NOISE
from seedbus.scenarios.run_folder import part_of
from seedbus.scenarios.schema.scenario import Scenario


def spent(run: Path, delta: float | None = None) -> dict[str, Any]:
    """Return ε of a run, and what it depends on.

    Args:
        run: the run's folder.
        delta: δ, for which ε is stated; None: the scenario's.

    Raises:
        RunFolderError, JournalDamaged: the run cannot be read.
        ScenarioError: the run is not private.
    """
    privacy = part_of(run, "privacy")
    if privacy is None:
        raise ScenarioError(str(run), ["its scenario has no privacy: its commits show the reports without noise"])
    if delta is not None:
        privacy = privacy.model_copy(update={"delta": delta})
    who = part_of(run, "participation")
    if privacy.cohorts == "secret" and who.selection.is_fixed_size and privacy.delta < LEAST_DELTA:
        raise ScenarioError(
            str(run), [f"privacy.delta={privacy.delta:g}: at least {LEAST_DELTA:g} is accepted for its cohorts"]
        )
    epsilons = list(epsilons_of(run, delta))
    is_virtual = part_of(run, "clock") == "virtual"
    return facts(privacy, who, epsilons[-1] if epsilons else 0.0, len(epsilons), is_virtual=is_virtual)


def facts(
    privacy: Privacy, participation: Participation, epsilon: float, rounds: int, *, is_virtual: bool
) -> dict[str, Any]:
    """Return ε after so many rounds, and what it depends on, as plain data."""
    return {
        "epsilon": epsilon,
        "delta": privacy.delta,
        "rounds": rounds,
        "mechanism": privacy.mechanism,
        "cohorts": privacy.cohorts,
        "selection": participation.selection.policy,
        "noise": privacy.noise_of(is_virtual=is_virtual),
    }


def in_words(found: Mapping[str, Any]) -> str:
    """Return the facts in words."""
    after = counted(found["rounds"], "round")
    return f"ε = {found['epsilon']:.6g} for δ = {found['delta']:g}, after {after} ({_terms(found)})"


def bases(scenarios: Mapping[str, Scenario]) -> list[str]:
    """Return what the ε of runs depend on, in sentences: those that differ in it are not of one kind.

    Args:
        scenarios: what the runs are called → the scenario.
    """
    alike: dict[str, list[str]] = {}
    for name, scenario in scenarios.items():
        if scenario.privacy is not None:
            found = facts(scenario.privacy, scenario.participation, 0.0, 0, is_virtual=scenario.clock == "virtual")
            alike.setdefault(f"ε is for δ = {found['delta']:g} ({_terms(found)})", []).append(name)
    return [words if len(alike) == 1 else f"{words}: {'; '.join(names)}" for words, names in alike.items()]


def _terms(found: Mapping[str, Any]) -> str:
    mark = f"; {SEEDED_NOISE}" if found["noise"] == "seeded" else ""
    is_poisson = found["cohorts"] == "secret" and found["selection"] == "poisson"  # of other neighbours than uniform
    cohorts = "secret Poisson cohorts" if is_poisson else f"{found['cohorts']} cohorts"
    return f"{found['mechanism']} noise, {cohorts}{mark}"


def epsilons_of(run: Path, delta: float | None = None) -> Iterator[float]:
    """Yield ε after each round of a private run. Raises what `run_folder.part_of` does."""
    privacy = part_of(run, "privacy")
    if privacy is None:
        return
    who = part_of(run, "participation")
    if delta is not None:
        privacy = privacy.model_copy(update={"delta": delta})
    accountant = Accountant(privacy, who)
    with closing(Journal.open(run, for_writing=False)) as journal:
        for stored in journal.rounds():
            reported = None if stored.commit is None else stored.reported
            yield accountant.closed(stored.round + 1, len(stored.cohort), reported)
