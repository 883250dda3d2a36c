"""What a section of a scenario adds to its runs, and what it tells outside of them.

Each feature has a room of its own, with one class here as its base; `FEATURES` in scenarios/schema/scenario.py lists
them by the field of their section. All others ask `Scenario.features`, and name none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from seedbus.agents.extensions import ClientPart, Noise, OpenExchange


class Feature:
    """One of a scenario's features. This one adds nothing, and has nothing to tell.

    Args:
        settings: the section.
        scenario: the `Scenario`.

    Attributes:
        has_server: whether its runs have a server.
        hides_cohorts: whether nobody may learn whom rounds ask; then each round makes a commit.
        round_s: how many simulated seconds each round takes; None: it depends on what happens in it.
        draws_secrets: whether clients draw secrets that no seed repeats, so that what they send differs each time.
        metrics: what its runs measure beside what all do.
        chance: of being in a random scenario.
    """

    has_server: ClassVar[bool] = True
    draws_secrets: ClassVar[bool] = False
    metrics: ClassVar[Sequence[str]] = ()
    chance: ClassVar[float] = 0.0
    hides_cohorts: bool = False
    round_s: float | None = None

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

    # what it tells before a run

    def words(self, said: Words, settings: list[str]) -> Words:
        """Return what `seedbus explain` says of a scenario.

        Args:
            said: what it says without the feature.
            settings: which settings of the section are set, and which have their defaults.
        """
        return said

    def idle(self) -> Iterable[tuple[str, str]]:
        """Return settings without effect: path, and why, words of a sentence."""
        return ()

    def caveats(self) -> Iterable[str]:
        """Return sentences on what the reader of a scenario is to know."""
        return ()

    @staticmethod
    def drawn(choose: Any, clients: int) -> dict[str, Any]:
        """Return a section for a random scenario; choose: draws, a `Chooser` of studies/stress/draws.py."""
        raise NotImplementedError


Words = dict[str, list[str]]
"""Topic → sentences."""
