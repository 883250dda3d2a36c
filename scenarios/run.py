"""Running a scenario: from a file to a folder with a journal, a ledger, metrics and results."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import yaml

from seedbus.agents.errors import RunFolderError
from seedbus.agents.journal import FILE, Journal
from seedbus.agents.launcher import MESSAGES, Outcome, Setup
from seedbus.agents.launcher import run as run_agents
from seedbus.agents.observer import Nobody, Observer
from seedbus.bus import ledger_hash, read_ledger
from seedbus.bus.clock import cpu_seconds, wall_seconds
from seedbus.models.task import Problem
from seedbus.scenarios.accounting import account
from seedbus.scenarios.loading import validate
from seedbus.scenarios.recording import Recorder
from seedbus.scenarios.results import RESULTS, Results
from seedbus.scenarios.schema import Scenario

RUNS = Path("runs")
SCENARIO = "scenario.yaml"


def run(
    scenario: Scenario, out: Path | None = None, *, resume: bool = False, observer: Observer | None = None
) -> Results:
    """Run a scenario to its end and return its results.

    out: the run's folder; by default runs/NAME-1, runs/NAME-2, … resume: go on with the run in `out`. A finished run
    is not run again. Raises `ScenarioError`, `DataError`, `RunFolderError`, `JournalDamaged`, `Unfinishable`;
    on Ctrl-C `KeyboardInterrupt`, with all rounds kept.
    """
    if resume and out is not None and (out / RESULTS).exists():
        return Results.read(out)
    # the data comes first: a scenario that cannot run leaves no folder behind
    setup = _setup(scenario)
    folder = out if out is not None else _next_folder(scenario.name)
    journal = _journal(folder, scenario, resume=resume)
    try:
        return _run(scenario, setup, folder, journal, observer or Nobody())
    finally:
        journal.close()


def scenario_of(folder: Path) -> Scenario:
    """The scenario that a run's journal holds. Raises `RunFolderError`, `JournalDamaged`."""
    journal = Journal.open(folder, for_writing=False)
    try:
        facts = journal.facts()
    finally:
        journal.close()
    if "scenario" not in facts:
        raise RunFolderError(folder / FILE, "the journal does not say which scenario it belongs to")
    return validate(json.loads(facts["scenario"]), str(folder / FILE))


def bind(scenario: Scenario) -> Problem:
    """The scenario's task with its data. Raises `DataError`."""
    problem = scenario.task.bind(
        seed=scenario.seed, clients=scenario.participation.clients, partition=scenario.partition
    )
    torch = sys.modules.get("torch")  # only a task that needs it has imported it
    if torch is not None:
        torch.set_num_threads(1)  # on tensors this small a second thread makes everything 30 to 100 times slower
    return problem


def _setup(scenario: Scenario) -> Setup:
    return Setup(
        seed=scenario.seed,
        algorithm=scenario.algorithm,
        problem=bind(scenario),
        participation=scenario.participation,
        stop=scenario.stop,
        evaluation=scenario.evaluation,
        network=scenario.network,
        compute=scenario.compute,
        rules=scenario.faults,
        verify_every=scenario.verify_every if scenario.verify else 0,
    )


def _next_folder(name: str) -> Path:
    """The first free one of runs/NAME-1, -2, …; made at once, so that two runs cannot take the same."""
    for number in itertools.count(1):
        folder = RUNS / f"{name}-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunFolderError(folder, f"the run's folder cannot be made ({error.strerror})") from None
        return folder
    raise AssertionError("there is always another number")


def _journal(folder: Path, scenario: Scenario, *, resume: bool) -> Journal:
    resolved = scenario.resolved()
    if resume:
        journal = Journal.open(folder)
        before = json.loads(journal.facts().get("scenario", "{}"))
        if before != resolved:
            journal.close()
            raise RunFolderError(folder, f"it holds another scenario's run: {_first_difference(before, resolved)}")
        return journal
    from importlib.metadata import version

    journal = Journal.create(folder, {"scenario": json.dumps(resolved), "seedbus": version("seedbus"), "format": "1"})
    text = yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True)
    (folder / SCENARIO).write_text(text, encoding="utf-8")
    return journal


def _first_difference(before: Any, now: Any, path: str = "") -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *now]:
            if before.get(key) != now.get(key):
                return _first_difference(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    return f"{path} is {json.dumps(before)} there and {json.dumps(now)} here"


def _run(scenario: Scenario, setup: Setup, folder: Path, journal: Journal, observer: Observer) -> Results:
    checkpoint = journal.checkpoint()
    try:
        recorder = Recorder(folder, checkpoint.metrics if checkpoint else [], observer)
    except OSError as error:
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None
    began = wall_seconds(), cpu_seconds()
    try:
        outcome = run_agents(setup, folder, journal, recorder)
        summary = _summary(scenario, setup, folder, journal, outcome)
        summary["wall_s"], summary["cpu_s"] = wall_seconds() - began[0], cpu_seconds() - began[1]
        _write(folder / RESULTS, json.dumps(summary, indent=2))
    except OSError as error:
        raise RunFolderError(folder, f"the run's folder cannot be written ({error.strerror})") from None
    finally:
        recorder.close()
    return Results(folder, summary)


def _summary(scenario: Scenario, setup: Setup, folder: Path, journal: Journal, outcome: Outcome) -> dict[str, Any]:
    columns = read_ledger(folder / MESSAGES)
    lines = journal.metrics()
    last = {name: value for name, value in lines[-1].items() if name not in ("bytes_up", "bytes_down")} if lines else {}
    return {
        "run": str(folder),
        "scenario": scenario.name,
        "algorithm": scenario.resolved()["algorithm"]["name"],
        "reason": outcome.reason,
        "rounds": outcome.rounds,
        "version": outcome.version,
        "dimension": setup.problem.dimension,
        "digest": outcome.digest,
        "ledger_hash": ledger_hash(columns),
        "metrics": last,
        "simulated_s": outcome.simulated_s,
        "traffic": account(columns, scenario, outcome.rounds, setup.problem.dimension),
        "refusals": outcome.refusals,
    }


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
