"""What a run has spent of its clients' privacy, as plain data and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seedbus.agents.extensions import SEEDED_NOISE
from seedbus.agents.policies.participation import Participation
from seedbus.agents.privacy.settings import Privacy
from seedbus.bus.text import counted


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


def basis(found: Mapping[str, Any]) -> str:
    """Return what ε depends on, in words."""
    return f"ε is for δ = {found['delta']:g} ({_terms(found)})"


def _terms(found: Mapping[str, Any]) -> str:
    mark = f"; {SEEDED_NOISE}" if found["noise"] == "seeded" else ""
    is_poisson = found["cohorts"] == "secret" and found["selection"] == "poisson"  # of other neighbours than uniform
    cohorts = "secret Poisson cohorts" if is_poisson else f"{found['cohorts']} cohorts"
    return f"{found['mechanism']} noise, {cohorts}{mark}"
