"""The plug-in that tests load, and forgetting what they loaded."""

from __future__ import annotations

from pathlib import Path

from seedbus.discovery import PLUGINS
from seedbus.scenarios.schema import plugins
from seedbus.scenarios.schema.scenario import Scenario

SIGNS = Path(__file__).parent / "plugins" / "signs.py"
MISTAKES = SIGNS.with_name("mistakes.py")


def forget() -> None:
    """Forget all plug-ins, as if this process had just begun."""
    if not PLUGINS:
        return  # the schema is as it was built
    PLUGINS.clear()
    plugins._rebuild(Scenario, set())
