"""Running a scenario: from a file to a folder with a journal, a ledger, metrics and results."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from seedbus.agents.client.client_state import ClientStateStore
from seedbus.agents.client.forging import Forging, forges
from seedbus.agents.client.tampering import Tampering
from seedbus.agents.client.worker import Followers, build_facts, prove
from seedbus.agents.journal.journal import Journal
from seedbus.agents.launcher import MESSAGES, Outcome, Setup, check_build
from seedbus.agents.launcher import run as run_agents
from seedbus.agents.observer import NullObserver, Observer
from seedbus.algorithms.directions.warm import warm
from seedbus.bus import Follower, Offer, Recruit, ledger_hash, read_ledger
from seedbus.bus.clock import cpu_seconds, wall_seconds
from seedbus.bus.envelope import SHORT
from seedbus.bus.errors import BadEndpoint, LedgerDamaged, TooFewFiles
from seedbus.bus.files import check_folder
from seedbus.bus.ledger import Columns
from seedbus.models.task import Note, Prepares, Problem
from seedbus.scenarios.errors import Interrupted, ScenarioError, WorkerFailed
from seedbus.scenarios.reporting.accounting import account
from seedbus.scenarios.reporting.page import PAGE, page
from seedbus.scenarios.reporting.results import RESULTS, Results, strict, write
from seedbus.scenarios.reporting.round_table import RoundTable
from seedbus.scenarios.reporting.statistics import ArrivedReports, clients_table, describe, replay_time
from seedbus.scenarios.run_folder import (
    check_name,
    journal_in,
    lost_rounds,
    next_folder,
    refuse_another,
    scenario_of,
    writable,
)
from seedbus.scenarios.running.cluster import Placement, placed
from seedbus.scenarios.running.memory_hints import memory_hints
from seedbus.scenarios.running.recording import Recorder
from seedbus.scenarios.schema.expectations import judged
from seedbus.scenarios.schema.scenario import Scenario

MEMORY = "clients"


def run(
    scenario: Scenario,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    observer: Observer | None = None,
    placement: Placement | None = None,
) -> Results:
    """Run a scenario to its end and return its results.

    out: the run's folder; by default runs/NAME-1, runs/NAME-2, … resume: go on with the run in `out`. A finished run
    is not run again, only held to what this scenario expects. placement: where the clients are; by default in this
    process. In a notebook, where an asyncio loop is running already, the run has its own and that one waits.
    Raises `ScenarioError`, `DataError`, `RunFolderError`, `JournalDamaged`, `Unfinishable`, `WorkerFailed`,
    `BadEndpoint`, `TooFewFiles`; on Ctrl-C `Interrupted`, with every closed round kept.
    """
    if out is not None:
        check_name(Path(out))
    if resume:
        if out is None:
            raise ScenarioError("resume", ["out is missing; expected the folder of the run to go on with"])
        refuse_another(scenario, scenario_of(Path(out)), Path(out))
        if (Path(out) / RESULTS).exists():
            return _judged_anew(Results.read(Path(out)), scenario)
    where = placement or Placement(scenario.transport)
    where.check(scenario)
    files = scenario.check()
    with memory_hints(scenario):
        return _in_folder(scenario, where, out, resume, observer or NullObserver(), files)


def _in_folder(
    scenario: Scenario,
    where: Placement,
    out: str | Path | None,
    resume: bool,
    observer: Observer,
    files: dict[str, str],
) -> Results:
    """files: the digests of what the scenario names."""
    # the data comes first: a scenario that cannot run leaves no folder behind
    problem = None
    if where.is_here:
        problem = hosted(scenario, observer.noted)
    elif scenario.algorithm.is_dense:  # its server begins with x₀
        problem = bind(scenario)
    folder = Path(out) if out is not None else next_folder(scenario.name)
    is_void, lost = False, lost_rounds(folder, scenario) if resume else {}
    try:
        with closing(journal_in(folder, scenario, files, resume=resume)) as journal, _own_loop():
            try:
                return _run(scenario, where, problem, folder, journal, observer, lost)
            except KeyboardInterrupt:
                raise Interrupted(folder, where.command) from None
            except (BadEndpoint, TooFewFiles, WorkerFailed):
                is_void = not resume and journal.checkpoint() is None
                raise
    finally:
        if is_void:  # it was new, and nothing has come of it
            shutil.rmtree(folder, ignore_errors=True)


def bind(scenario: Scenario) -> Problem:
    """The scenario's task with its data. Raises `DataError`."""
    problem = scenario.task.bind(
        seed=scenario.seed, clients=scenario.participation.clients, partition=scenario.partition
    )
    torch = sys.modules.get("torch")  # only a task that needs it has imported it
    if torch is not None:
        torch.set_num_threads(1)  # on tensors this small a second thread makes everything 30 to 100 times slower
    if scenario.evaluation.split != "test":
        problem.evaluate(problem.x0(), scenario.evaluation.split)  # worth a measurement: a split may be empty
    return problem


def hosted(scenario: Scenario, note: Note) -> Problem:
    """The scenario's task with its data, ready for clients. Raises `DataError`, `ScenarioError`."""
    problem = bind(scenario)
    if isinstance(problem, Prepares):
        problem.prepare(note)
    warm(lambda: note("kernels", compiling="once on this machine"))
    return problem


def recruit(scenario: Scenario, problem: Problem, observer: Observer, memory: Path | None = None) -> Recruit:
    """What makes a scenario's followers, out of its task with its data.

    memory: the folder of what clients remember; None: this process remembers, for as long as it lives.
    """
    own = ClientStateStore()
    faults, seed, clients = scenario.faults, scenario.seed, scenario.participation.clients
    tampering = Tampering(faults, seed, clients)
    verify_every = scenario.verify_every if scenario.verify else 0

    def followers(offer: Offer) -> Follower:
        good = Followers(
            offer,
            scenario.algorithm.sized(problem.dimension),
            problem,
            split=scenario.evaluation.split,
            verify_every=verify_every,
            observer=observer,
            tampering=tampering,
            memories=own if memory is None else ClientStateStore(memory),
            gathers=scenario.clock == "virtual",
        )
        if not forges(faults):
            return good
        return Forging(good, faults, seed=seed, clients=clients, verify_every=verify_every)

    return followers


def _setup(scenario: Scenario, processes: int, problem: Problem | None) -> Setup:
    return Setup(
        seed=scenario.seed,
        algorithm=scenario.algorithm.sized(scenario.task.dimension),
        participation=scenario.participation,
        stop=scenario.stop,
        evaluation=scenario.evaluation,
        metrics=scenario.metrics,
        network=scenario.network,
        compute=scenario.compute,
        faults=scenario.faults,
        verify_every=scenario.verify_every if scenario.verify else 0,
        is_virtual=scenario.clock == "virtual",
        scenario=json.dumps(scenario.resolved()).encode(),
        processes=processes,
        lag=None if scenario.lag is None else scenario.lag.commits(scenario.replay_s),
        x0=None if problem is None else problem.x0,
        report_limit=SHORT + scenario.algorithm.report_bytes(scenario.task.dimension),
    )


@contextmanager
def _own_loop() -> Iterator[None]:
    """Lets a run have its loop in a thread where one is running, a notebook's; that one waits, as for any call."""
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(outer)


def _run(
    scenario: Scenario,
    where: Placement,
    problem: Problem | None,
    folder: Path,
    journal: Journal,
    observer: Observer,
    lost: dict[str, str],
) -> Results:
    """lost: event → what a resumed run has lost."""
    checkpoint = journal.checkpoint()  # a damaged one is refused before anything is written
    lines = checkpoint.metrics if checkpoint is not None else journal.metrics()
    began = wall_seconds(), cpu_seconds()
    with writable(folder), closing(Recorder(folder, lines, observer)) as recorder:
        for event, what in lost.items():
            recorder.noted(event, what=what)
        made = None
        check_folder(folder / MEMORY)  # its own files are checked as they are opened, wherever a user lets it be
        if problem is not None:
            check_build(folder, journal.facts(), build_facts(prove(scenario.algorithm, problem)))
        if problem is not None and where.is_here:
            made = recruit(scenario, problem, recorder, folder / MEMORY)
        setup, where = _setup(scenario, where.expect, problem), replace(where, memory=folder / MEMORY)
        with placed(where, scenario, made, recorder, setup.report_limit) as connect:
            outcome = run_agents(setup, folder, journal, recorder, connect)
        lines, columns = journal.metrics(), _messages(folder / MESSAGES, journal)
        history = RoundTable.of(journal.rounds(), scenario.participation.clients)
        arrived = ArrivedReports(columns, history)
        table = clients_table(columns, history, arrived, replay_time(scenario.compute, scenario.seed))
        summary = _summary(scenario, folder, columns, lines, outcome)
        summary = strict(summary | describe(history, arrived, table, outcome.simulated_s))
        # null where a figure is not finite, as in the files that a finished run is judged by again
        summary["expectations"] = judged(scenario.expect, summary, [strict(line) for line in lines])
        summary["wall_s"], summary["cpu_s"] = wall_seconds() - began[0], cpu_seconds() - began[1]
        summary["was_resumed"] = checkpoint is not None
        recorder.sync()
        write(folder / PAGE, page(summary, lines, history, table))
        write(folder / RESULTS, json.dumps(summary, indent=2))
    return Results(folder, summary)


def _judged_anew(results: Results, scenario: Scenario) -> Results:
    """A finished run, held to what is expected now."""
    found = judged(scenario.expect, results.summary, results.lines if scenario.expect else [])
    if found == results.expectations:
        return results
    summary = results.summary | {"expectations": found}
    with writable(results.folder):
        write(results.folder / RESULTS, json.dumps(summary, indent=2))
    return Results(results.folder, summary)


def _summary(
    scenario: Scenario, folder: Path, columns: Columns, lines: list[dict[str, Any]], outcome: Outcome
) -> dict[str, Any]:
    names = [fault["fault"] for fault in scenario.resolved()["faults"]]
    last = {name: value for name, value in lines[-1].items() if name not in ("bytes_up", "bytes_down")} if lines else {}
    return {
        "run": str(folder),
        "scenario": scenario.name,
        "algorithm": scenario.resolved()["algorithm"]["name"],
        "reason": outcome.reason,
        "rounds": outcome.rounds,
        "version": outcome.version,
        "dimension": scenario.task.dimension,
        "digest": outcome.digest,
        "ledger_hash": ledger_hash(columns),
        "metrics": last,
        "clock": scenario.clock,
        "simulated_s": outcome.simulated_s,
        "traffic": account(columns, scenario, outcome.rounds, scenario.task.dimension),
        "refusals": outcome.refusals,
        "faults": [{"fault": name} | did for name, did in zip(names, outcome.faults, strict=True)],
    }


def _messages(folder: Path, journal: Journal) -> Columns:
    """All rows of the ledger, if it has as many segments as the journal vouches for. Raises `LedgerDamaged`."""
    checkpoint = journal.checkpoint()
    segments, found = checkpoint.segments if checkpoint else 0, len(list(folder.glob("*.parquet")))
    if found < segments:
        raise LedgerDamaged(str(folder), f"{found} of its {segments} segments are there")
    return read_ledger(folder)
