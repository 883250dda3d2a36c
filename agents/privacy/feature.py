"""Differential privacy as one of a scenario's features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from seedbus.agents.extensions import ClientPart
from seedbus.agents.feature import Feature, Words
from seedbus.agents.privacy.foreseen import Spending
from seedbus.agents.privacy.mechanism import Mechanism
from seedbus.agents.privacy.settings import Privacy
from seedbus.agents.privacy.spent import basis, facts, in_words
from seedbus.agents.sight import NEVER, Matter, Sight, Viewer
from seedbus.bus.fault_hooks import ByzantineHook


class PrivateReports(Feature):
    """Reports are clipped, and their sums have noise."""

    figures = ("epsilon",)
    chance = 0.35
    promises = "privacy"
    without = "none: no report is clipped, and no noise is added to what the server or the commits show"

    @property
    def hides_cohorts(self) -> bool:
        """ε counts on it that nobody learns whom rounds ask."""
        return bool(self.settings.cohorts == "secret")

    @property
    def unrepeatable(self) -> str:
        is_seeded = self.settings.is_seeded(is_virtual=self._is_virtual)
        return "" if is_seeded else "its noise comes from the operating system (privacy.noise)"

    @property
    def _is_virtual(self) -> bool:
        return bool(self.scenario.clock == "virtual")

    def noise(self) -> Mechanism:
        who, seed = self.scenario.participation, self.scenario.seed
        return Mechanism(self.settings, who, seed, is_virtual=self._is_virtual)

    def client_parts(self) -> Sequence[ClientPart]:
        return [self.noise()]

    def words(self, said: Words, settings: list[str]) -> Words:
        where = {"central": "by the server, to a round's sum", "distributed": "in shares, by clients, to their reports"}
        told = [f"reports are clipped, and noise is added {where[self.settings.mechanism]}", *settings]
        if self.settings.is_seeded(is_virtual=self._is_virtual):
            told.append("the noise is open: the scenario's seed keys it, so it protects nobody from those who know it")
        else:
            told.append("the noise comes from the operating system, and nothing repeats it")
        return said | {"privacy": [*said["privacy"], *told]}

    def sees(self, sight: Sight) -> Sight:
        noise = ", with open noise" if self.settings.is_seeded(is_virtual=self._is_virtual) else ", with noise"
        shown = {Matter.COMMITS, Matter.GRADIENTS, Matter.MODEL}
        found = {}
        for viewer, cells in sight.items():
            knows = self.settings.mechanism == "central" and viewer is Viewer.SERVER  # it adds the noise
            noisy = {Matter.MODEL} if knows else shown
            changed = {each: f"{cells[each]}{noise}" for each in noisy if cells[each] != NEVER}
            found[viewer] = cells | changed
        return found

    def promise(self) -> str:
        privacy: Privacy = self.settings
        stop = self.scenario.stop
        where = {
            "central": "the server adds noise to each round's sum, and nothing hides your report from the server",
            "distributed": "your process adds its share of the noise to your report, which masks hide",
        }
        bound = "no bound on ε: time alone ends the run"
        if stop.epsilon is not None:
            bound = f"ε ≤ {stop.epsilon:g} for δ = {privacy.delta:g}, or the run ends"
        elif stop.rounds is not None:
            spent = self.foreseen().epsilon(float(stop.rounds))
            bound = f"ε ≤ {spent:.3g} for δ = {privacy.delta:g}, if you report in all {stop.rounds:,} rounds"
        told = (
            f"reports are clipped to {privacy.clip:,} units, and {where[privacy.mechanism]}: σ = "
            f"{privacy.noise_multiplier:g} times the clip; {bound}"
        )
        seeded = "; the noise is keyed by the scenario's seed, and protects nobody from those who know it"
        return told + seeded * privacy.is_seeded(is_virtual=self._is_virtual)

    def caveats(self) -> Iterator[str]:
        """Yield what ε does not know of clients that put another report in the place of theirs with its noise."""
        if self.settings.mechanism == "distributed":
            for number, fault in enumerate(self.scenario.faults):
                if isinstance(fault, ByzantineHook):
                    yield (
                        f"faults.{number} replaces reports with their noise, and ε assumes that all added theirs; "
                        "where a fraction f of the clients lies, noise_multiplier times 1/√(1 − f) keeps what ε says"
                    )

    def foreseen(self) -> Spending:
        return Spending(self.scenario, self.settings)

    def summary(self) -> dict[str, Any]:
        return {"noise": self.settings.noise_of(is_virtual=self._is_virtual)}

    def of_rounds(self, rounds: Iterable[Any]) -> dict[str, list[float]]:
        account = self.noise().spending()
        parts = (
            (each.round + 1, len(each.cohort), each.reported if each.commit is not None else None) for each in rounds
        )
        epsilons = [account.closed(*each) for each in parts]
        return {"epsilon": epsilons} if epsilons else {}

    def spent_by(self, client: int, reports: int, rounds: Sequence[Any]) -> Iterator[str]:
        """Yield ε of a client's own reports, as if each counted in the smallest commit that there may be.

        With secret cohorts all rounds count, whomever they ask; without a journal only those are known that asked it.
        """
        if self.settings.cohorts == "secret" and rounds:
            reports = len(rounds)
        account = self.noise().spending()
        own = account.of_commits(reports)
        yield f"{in_words(self.facts(own, reports))}, if all that left it counted"
        if rounds:
            run = self.of_rounds(rounds)["epsilon"][-1]
            lost = "" if run >= own else ", which is less: reports are missing in it, that were lost or are concealed"
            yield f"by the journal the run has spent ε = {run:.6g}{lost}"

    def basis(self) -> str:
        return basis(self.facts(0.0, 0))

    def facts(self, epsilon: float, rounds: int) -> dict[str, Any]:
        """Return ε after so many rounds, and what it depends on, as plain data."""
        return facts(self.settings, self.scenario.participation, epsilon, rounds, is_virtual=self._is_virtual)

    @staticmethod
    def drawn(choose: Any, clients: int) -> dict[str, Any]:
        return {
            "mechanism": choose.one(("central", "distributed")),
            "clip": choose.whole(100, 2**20),
            "noise_multiplier": choose.scale(0.3, 10),
            "cohorts": choose.one(("public", "secret")),
        }
