"""Who sees what of a client in a scenario's runs: the algorithm's `Facts`, the evaluation, features and the seed shift.

Each client is taken to have a process of its own, and the server one with keys.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from seedbus.agents.sight import NEVER, Matter, Sight, Viewer
from seedbus.bus.text import counted
from seedbus.scenarios.schema.scenario import Scenario

SHIFTED = "clients shift the seeds by a secret that the server has not"
WITHOUT_KEYS = "without keys a stranger sees what the server sees"


def who_sees(scenario: Scenario) -> Sight:
    """Return who sees what of a client; a server that there is not is left out, and so is the wire to it."""
    sight = _unprotected(scenario)
    for feature in scenario.features:
        sight = feature.sees(sight)
    if scenario.seed_shift:
        for viewer in (Viewer.SERVER, Viewer.READER):
            sight[viewer] |= {Matter.GRADIENTS: "norms alone", Matter.MODEL: NEVER}
    return sight


def grid(sight: Mapping[str, Mapping[str, str]]) -> Table:
    """Return a table with a line for each matter and a column for each viewer."""
    table = Table()
    table.add_column("", style="bold")
    for viewer in sight:
        table.add_column(str(viewer))
    for matter in Matter:
        table.add_row(str(matter), *(cells[matter] for cells in sight.values()))
    return table


def number_told(scenario: Scenario) -> str:
    """Return how the number of a client's samples travels, words that follow "it travels"; "": it does not."""
    if told := scenario.algorithm.facts.tells_samples:
        return f", for {told}"
    return " only as the evaluation tells it" if scenario.evaluation.by == "clients" else ""


def _unprotected(scenario: Scenario) -> Sight:
    """Return who sees what if no feature changes it."""
    facts, part = scenario.algorithm.facts, scenario.participation
    own = scenario.evaluation.by == "clients"
    fewest = min(part.quorum, part.wanted)
    least = counted(fewest, "report")
    none = dict.fromkeys(Matter, NEVER)
    follower = none | {
        Matter.COMMITS: f"each, of {least} or more",
        Matter.GRADIENTS: "of a commit",
        Matter.MODEL: "yes",
    }
    other = follower | {Matter.REPORTS: "the other of two" if fewest == 2 else NEVER}  # a commit without its own
    if fewest == 1:
        follower |= {Matter.REPORTS: "a commit of one"}
        other |= {Matter.REPORTS: "a commit of one"}
    server = follower | {
        Matter.REPORTS: "each",
        Matter.GRADIENTS: "of each client",
        Matter.PRESENCE: "yes",
        Matter.COUNTS: "of each client" if number_told(scenario) else NEVER,
        Matter.LOSSES: "of each client, held out" if own else NEVER,
        Matter.MODEL: "yes" if facts.is_dense else "from commits",
    }
    reader = server | {
        Matter.REPORTS: "the last of each" if facts.keeps_reports else "if under way at the end",
        Matter.GRADIENTS: "of a commit",
        Matter.COUNTS: "the sum, held out" if own else NEVER,
        Matter.LOSSES: "mean, quantiles" if own else NEVER,
    }
    return {
        Viewer.SERVER: server,
        Viewer.CLIENT: other,
        Viewer.EVALUATOR: dict(follower),
        Viewer.READER: reader,
        Viewer.STRANGER: none | {Matter.PRESENCE: "sizes and times"},
    }
