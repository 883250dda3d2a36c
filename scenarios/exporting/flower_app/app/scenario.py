"""The scenario, whose data, division and local steps are Seedbus's own; settings of the run change its fields."""

from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import Context

from seedbus.scenarios.exporting.federation import Federation


def part(context: Context, name: str) -> dict[str, Any]:
    """Return the settings of one section of [tool.flwr.app.config], by their names in it."""
    given, prefix = context.run_config, f"{name}."
    return {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}


def federation(context: Context) -> Federation:
    """Return the scenario with its data, which a process loads once."""
    return _federation(tuple(part(context, "scenario").items()))


@cache
def _federation(settings: tuple[tuple[str, Any], ...]) -> Federation:
    return Federation(Path(__file__).with_name("scenario.yaml"), dict(settings))
