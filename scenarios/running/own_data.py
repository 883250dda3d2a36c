"""What this process's user gives it of owners' data, `--own`, put beside a scenario, which cannot name it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from seedbus.models.errors import DataError
from seedbus.models.partitions.own import Own, OwnData
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement


def with_own(scenario: Scenario, own: str, clients: Sequence[int], *, evaluates: bool) -> Scenario:
    """Return a scenario as it is in a process that has been given the data of its clients' owners.

    Args:
        scenario: the run's scenario.
        own: a file or folder, or a pattern of several, as the process's user gave it; "": nothing.
        clients: the clients that the process hosts, ascending.
        evaluates: whether it hosts the evaluator too.

    Raises:
        ScenarioError: the scenario does not take data so.
        DataError: there is not a file or folder for each client.
    """
    partition = scenario.partition
    if not isinstance(partition, Own):
        if own:
            what = f"the scenario's partition is {partition.kind}, which divides what all processes have"
            raise ScenarioError(f"--own {own}", [f"{what}; expected partition: own"])
        return scenario
    given = OwnData(
        _places(own, clients, scenario.participation.clients),
        evaluates=evaluates,
        holds_out=scenario.evaluation.by == "clients",
        tells_sizes=scenario.algorithm.facts.weighs_samples,
    )
    return scenario.model_copy(update={"partition": partition.placed(given)})


def with_specimens(scenario: Scenario) -> Scenario:
    """Return a scenario whose clients have samples that are nobody's, for a trial of what a run costs."""
    partition = scenario.partition
    if not isinstance(partition, Own):
        return scenario
    given = OwnData(dict.fromkeys(range(scenario.participation.clients)), evaluates=True, holds_out=True)
    return scenario.model_copy(update={"partition": partition.placed(given)})


def refuse_without(scenario: Scenario, placement: Placement) -> None:
    """Raise `ScenarioError` where this process or those that it starts have no data for a scenario's clients."""
    if isinstance(scenario.partition, Own) and placement.bind is None and not placement.own:
        owners = "here, all owners' files or folders by --own 'PATTERN'"
        what = f"its clients bring samples of their own; expected, {owners}, or their processes with seedbus server"
        raise ScenarioError("partition: own", [what])


def _places(own: str, clients: Sequence[int], of_run: int) -> dict[int, Path]:
    """Return the file or folder of each client. Raises `DataError`."""
    if not clients:
        return {}
    if not own:
        raise DataError("partition own", f"no samples of client {clients[0]}", "its file or folder, by --own")
    found = _found(own)
    if len(found) == len(clients):
        return dict(zip(clients, found, strict=True))
    if len(found) == of_run:
        return {client: found[client] for client in clients}
    what = f"{len(found)} files and folders for {len(clients)} clients"
    raise DataError(f"--own {own}", what, "one for each client, in the order of their numbers")


def _found(own: str) -> list[Path]:
    """Return what a pattern names, sorted by name, and by number where names differ in numbers. Raises `DataError`."""
    if Path(own).exists():
        return [Path(own)]
    found = sorted(
        glob(own), key=lambda path: [(len(part), part) if part.isdigit() else (0, part) for part in _parts(path)]
    )
    if not found:
        raise DataError(f"--own {own}", "nothing of that name", "a file or folder, or a pattern of several in quotes")
    return [Path(path) for path in found]


def _parts(path: str) -> list[str]:
    return re.split(r"([0-9]+)", path)
