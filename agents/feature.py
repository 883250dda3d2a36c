"""What a section of a scenario adds to its runs, and what it tells outside of them.

Each feature has a room of its own, with one class here as its base; `FEATURES` in scenarios/schema/scenario.py lists
them by the field of their section. All others ask `Scenario.features`, and name none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from seedbus.agents.extensions import ClientPart, Noise, OpenExchange
from seedbus.agents.sight import Sight


class Feature:
    """One of a scenario's features. This one adds nothing, and has nothing to tell.

    Args:
        settings: the section.
        scenario: the `Scenario`.

    Attributes:
        has_server: whether its runs have a server.
        only_here: why its runs have all clients in one process, in words; "": they may have them anywhere.
        draws_secrets: whether clients draw secrets that no seed repeats, so that what they send differs each time.
        sends_replicas: whether clients may be sent all coordinates of a model that a scalar-only algorithm trains, so
            that messages grow with it, and a round may be over before a client has them.
        shows_sums_alone: whether the server learns sums over clients, and nothing of one of them.
        metrics: what its runs measure beside what all do.
        figures: what lines of metrics and rounds have of it, such as "epsilon".
        chance: of being in a random scenario.
        promises: what kind of promise to clients' owners it is, in a word or two; "": it is none.
        without: what an owner is told where a scenario lacks it.
    """

    has_server: ClassVar[bool] = True
    only_here: ClassVar[str] = ""
    draws_secrets: ClassVar[bool] = False
    sends_replicas: ClassVar[bool] = False
    shows_sums_alone: ClassVar[bool] = False
    metrics: ClassVar[Sequence[str]] = ()
    figures: ClassVar[Sequence[str]] = ()
    chance: ClassVar[float] = 0.0
    promises: ClassVar[str] = ""
    without: ClassVar[str] = ""

    def __init__(self, settings: Any, scenario: Any) -> None:
        self.settings = settings
        self.scenario = scenario

    @property
    def hides_cohorts(self) -> bool:
        """Whether nobody may learn whom rounds ask; then each round makes a commit."""
        return False

    @property
    def unrepeatable(self) -> str:
        """Why no rehearsal of its runs has their bits, in words; "": one has."""
        return ""

    @property
    def round_s(self) -> float | None:
        """How many simulated seconds each round takes; None: it depends on what happens in it."""
        return None

    # what it does in a run

    def exchange(self) -> OpenExchange | None:
        """Return what begins the questions of a round beside its reports; None: it asks none."""
        return None

    def budget(self) -> Any:
        """Return when clients get a whole replica, not the commits that they missed, a `Lag`; None: never."""
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

    def promise(self) -> str:
        """Return what a client's owner is told of it before she takes part: words of one line, under `promises`."""
        return ""

    def sees(self, sight: Sight) -> Sight:
        """Return who sees what of a client; sight: who sees what without the feature."""
        return sight

    @property
    def up_bytes(self) -> int:
        """About how many bytes a client sends in a round beside its report, at most."""
        return 0

    def foreseen(self) -> Foreseen | None:
        """Return what its rounds will spend, before they are run; None: nothing."""
        return None

    # what it tells after a run

    def summary(self) -> dict[str, Any]:
        """Return its fields of `results.json`."""
        return {}

    def of_rounds(self, rounds: Iterable[Any]) -> dict[str, list[float]]:
        """Return its figures after each of a journal's rounds, `StoredRound`s."""
        return {}

    def spent_by(self, client: int, reports: int, rounds: Sequence[Any]) -> Iterable[str]:
        """Return what taking part has cost a client, in sentences.

        Args:
            client: the client.
            reports: how many have left it, by its owner's own record.
            rounds: a journal's, `StoredRound`s; empty: there is no journal.
        """
        return ()

    def basis(self) -> str | None:
        """Return what its figures depend on, in words: those of runs that differ in it are not of one kind."""
        return None

    # what tests draw

    @staticmethod
    def drawn(choose: Any, clients: int) -> dict[str, Any]:
        """Return a section for a random scenario; choose: draws, a `Chooser` of studies/stress/draws.py."""
        raise NotImplementedError


class Foreseen(Protocol):
    """What rounds that are not run yet spend of what `stop.epsilon` limits, counted in commits."""

    def closed(self, reported: Iterable[int]) -> None:
        """Add a round; reported: the clients whose reports are in its commit, none if it makes none."""
        ...

    def is_known(self, scenario: Any, rounds: int) -> bool:
        """Whether it is known without a rehearsal what so many rounds spend."""
        ...

    def commits(self, rounds: int) -> float:
        """Return how many commits so many rounds cost whom they cost most."""
        ...

    def epsilon(self, commits: float, noise_multiplier: float | None = None) -> float:
        """Return ε after so many commits; noise_multiplier: another than the scenario's."""
        ...

    def rounds(self, stop: Any) -> int:
        """Return after how many rounds a run ends, as far as that depends on ε."""
        ...


def foreseen(scenario: Any) -> Foreseen | None:
    """Return what the rounds of a `Scenario` will spend; None: nothing."""
    return next((found for each in scenario.features if (found := each.foreseen()) is not None), None)


def bases(scenarios: Mapping[str, Any]) -> list[str]:
    """Return what the figures of runs depend on, in sentences.

    Args:
        scenarios: what the runs are called → the `Scenario`.
    """
    alike: dict[str, list[str]] = {}
    for name, scenario in scenarios.items():
        for words in (each.basis() for each in scenario.features):
            if words is not None:
                alike.setdefault(words, []).append(name)
    return [words if len(alike) == 1 else f"{words}: {'; '.join(names)}" for words, names in alike.items()]


Words = dict[str, list[str]]
"""Topic → sentences."""
