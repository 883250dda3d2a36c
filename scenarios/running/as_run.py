"""A rehearsal of a run that others made: their journal says which reports counted, and the owners' data the rest."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import check_build
from seedbus.agents.server.played import Decisions
from seedbus.scenarios.errors import Differs, ScenarioError
from seedbus.scenarios.run_folder import refuse_another, scenario_of
from seedbus.scenarios.running.open_run import REHEARSES
from seedbus.scenarios.running.prepare import Prepared, build_of
from seedbus.scenarios.schema.scenario import Scenario


@dataclass(frozen=True)
class OtherRun:
    """The run that is rehearsed, as far as it has gone.

    Attributes:
        folder: its folder.
        decisions: those that its journal has, verified.
        facts: what its journal says of the program and the model that it began with.
    """

    folder: Path
    decisions: Decisions
    facts: dict[str, str]

    @staticmethod
    def read(folder: Path, scenario: Scenario) -> OtherRun:
        """Return the run in a folder.

        Raises:
            RunFolderError: there is none, it is of another scenario, it has no round, or its journal was pruned.
            JournalDamaged: its journal cannot be read.
            ScenarioError: no server has decided in it.
        """
        if not scenario.has_server:
            what = "nodes without a server decide nothing that a journal has; expected a scenario with a server"
            raise ScenarioError(f"--as {folder}", [what])
        for feature in scenario.features:
            if feature.unrepeatable:
                raise ScenarioError(f"--as {folder}", [f"{feature.unrepeatable}, so no rehearsal has its bits"])
        refuse_another(scenario, scenario_of(folder), folder)
        with closing(Journal.open(folder, for_writing=False)) as journal:
            if journal.base() is not None:
                raise RunFolderError(folder, "its journal was pruned; expected a run with all of its commits")
            decisions, facts = _decisions(journal), journal.facts()
        if not decisions.rounds:
            raise RunFolderError(folder, "it has no round that could be rehearsed; expected one at least")
        return OtherRun(folder, decisions, facts)

    def rehearsed(self, prepared: Prepared) -> Prepared:
        """Return a run as its rehearsal.

        Raises:
            RunFolderError: this program, or the model that it begins with, is another than the run's.
        """
        if prepared.problem is not None:
            check_build(self.folder, self.facts, build_of(prepared.scenario, prepared.problem))
        files = prepared.files | {REHEARSES: self.facts.get("run", "a run")}
        return replace(prepared, plays=self.decisions.played, files=files)

    def compare(self, folder: Path, journal: Journal) -> None:
        """Raise `Differs` if a rehearsal is not as the run; folder: the rehearsal's."""
        found = self.decisions.difference(_decisions(journal))
        if found is not None:
            raise Differs(f"{folder} is a rehearsal of {self.folder}, and differs from it: {found}")


def _decisions(journal: Journal) -> Decisions:
    rounds = list(journal.rounds())
    found = journal.evaluations()
    return Decisions(rounds, [each for each in found if each[0]["round"] < len(rounds)])  # the run may be going on
