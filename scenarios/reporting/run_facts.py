"""What ran: the task, the algorithm, the clients and the machine, as rows of a page."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from typing import Any

from seedbus.scenarios.reporting.terminal import shown
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.versions import version

_SHORT = {"perturbations": "P", "local_steps": "K"}


@cache
def versions() -> Mapping[str, str]:
    """Return the versions of what computes: Python, and the libraries of arrays and of kernels."""
    return {"Python": platform.python_version()} | {name: version(name) for name in ("torch", "numpy", "numba")}


def rows(scenario: Scenario, summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what ran, as names and values that are safe to print."""
    resolved = scenario.resolved()
    task, algorithm, part = resolved["task"], resolved["algorithm"], scenario.participation
    settings = [
        f"{_SHORT.get(name, name.replace('_', ' '))} = {_setting(algorithm[name])}"
        for name in ("perturbations", "local_steps", "learning_rate", "momentum")
        if algorithm.get(name) is not None
    ]
    partition = resolved["partition"]
    alpha = f" (α = {partition['alpha']:g})" if isinstance(partition.get("alpha"), float) else ""
    asked = "at work at a time" if part.is_asynchronous else "asked each round"
    reports = "1 report" if part.quorum == 1 else f"{part.quorum:,} reports"
    commits = "each round makes a commit" if scenario.has_secret_cohorts else f"a commit needs {reports}"
    about = "" if part.selection.is_fixed_size else "about "
    rules = f", {about}{part.asked:,} {asked}, {commits}" if scenario.has_server else ""
    built = f"seedbus {summary['seedbus']}, " if "seedbus" in summary else ""
    dimension = summary["dimension"] if "dimension" in summary else scenario.dimension  # which may need the data
    found = [
        ("task", ", ".join([task["name"], *([str(task["model"])] if task.get("model") else [])])
         + f"; d = {dimension:,}"),
        ("algorithm", ", ".join([algorithm["name"], *settings])),
        ("clients", f"{part.clients:,}{rules}"),
        ("data", f"{partition['kind']}{alpha}"),
        ("faults", ", ".join(fault["fault"] for fault in resolved["faults"]) or "none"),
        ("ran with", f"{built}seed {scenario.seed}, transport {scenario.transport}"),
        ("versions", ", ".join(f"{name} {each}" for name, each in summary.get("versions", {}).items())),
        ("on", ", ".join(filter(None, (str(summary.get("device", "")), str(summary.get("processor", "")))))),
    ]  # fmt: skip
    return [(name, shown(value)) for name, value in found if value]


def _setting(value: Any) -> str:
    """Return a setting's value as text; a schedule as its values, each with its first round."""
    if isinstance(value, Mapping):
        return " and ".join(f"{each} from round {first}" for first, each in value.items())
    return str(value)
