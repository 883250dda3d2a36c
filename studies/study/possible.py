"""Which rows of a study can never run, as far as that is known before data and weights are loaded."""

from __future__ import annotations

from collections.abc import Iterator

from seedbus.models.errors import DataError
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import shown
from seedbus.scenarios.running.possible import refuse_impossible
from seedbus.scenarios.running.seed_secret import read_secret
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.scenarios.transports.transports import worker_transport
from seedbus.studies.study.cells import Cell, Plan
from seedbus.studies.study.remarks import some


def refuse_impossible_rows(plan: Plan, workers: int = 0) -> None:
    """Raise `ScenarioError` if there are rows that can never run; the arguments are those of `impossible_rows`."""
    found = impossible_rows(plan, workers)
    if not found:
        return
    is_one, (row, why) = len(found) == 1, next(iter(found.items()))
    which = f"row {shown(row)} cannot run" if is_one else f"{len(found)} rows cannot run ({some([*found])}); the first"
    raise ScenarioError(plan.source, [f"{which}: {why}; or leave {'it' if is_one else 'them'} out of the study"])


def impossible_rows(plan: Plan, workers: int = 0) -> dict[str, str]:
    """Return row → why no run of it can begin, or be measured, as far as that is known from the study alone.

    Args:
        plan: the study.
        workers: the processes that share the clients of each run; 0: none.
    """
    found = {}
    for cell in plan.cells:
        place = Placement(worker_transport(cell.scenario.transport, False), workers) if workers else None
        try:
            for scenario in _measured(plan, cell):
                refuse_impossible(scenario, place)
            if place is None and cell.scenario.seed_shift:
                read_secret()
        except ScenarioError as error:
            told = error.problems if error.source == cell.scenario.name else error.sentences
            found[cell.name] = "; ".join(told)
        except DataError as error:
            found[cell.name] = str(error)
    return found


def _measured(plan: Plan, cell: Cell) -> Iterator[Scenario]:
    """Yield a row's scenario, measured as in its runs, in its trials, and as `ask.splits` says."""
    yield cell.scenario
    if cell.tune or "validation" in plan.study.ask.splits:
        yield cell.scenario.model_copy(
            update={"evaluation": cell.scenario.evaluation.model_copy(update={"split": "validation"})}
        )
