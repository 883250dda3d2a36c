"""What a section of a scenario adds to its runs, and what it tells outside of them.

Each feature has a room of its own, with one class here as its base; `FEATURES` in scenarios/schema/scenario.py lists
them by the field of their section. All others ask `Scenario.features`, and name none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from seedbus.agents.extensions import ClientPart, Noise, OpenExchange


class Feature:
    """One of a scenario's features. This one adds nothing, and has nothing to tell.

    Args:
        settings: the section.
        scenario: the `Scenario`.

    Attributes:
        has_server: whether its runs have a server.
    """

    has_server: ClassVar[bool] = True

    def __init__(self, settings: Any, scenario: Any) -> None:
        self.settings = settings
        self.scenario = scenario

    # what it does in a run

    def exchange(self) -> OpenExchange | None:
        """Return what begins the questions of a round beside its reports; None: it asks none."""
        return None

    def noise(self) -> Noise | None:
        """Return what is added to the sum of a round's reports; None: nothing is."""
        return None

    def run(self, *run: Any) -> Any:
        """Execute a run that has no server, and return its `launcher.Outcome`.

        Args:
            run: its `RunSpec`, problem, journal, observer and stop request, and what places its vectors.
        """
        raise NotImplementedError

    def client_parts(self) -> Sequence[ClientPart]:
        """Return what extends the work of a process's clients."""
        return ()
