"""Execute a prepared run in its open folder."""

from __future__ import annotations

from dataclasses import replace

from seedbus.agents import launcher
from seedbus.agents.extensions import no_exchange
from seedbus.agents.launcher import Outcome
from seedbus.agents.monitor import Monitor
from seedbus.agents.server.collusion import collusions
from seedbus.agents.server.run_spec import RunSpec
from seedbus.bus.envelope import SHORT
from seedbus.bus.files import check_folder
from seedbus.models.device import placed_beside
from seedbus.scenarios.reporting.messages import Words
from seedbus.scenarios.run_folder import MEMORY
from seedbus.scenarios.running.gpu_admission import Measure, measuring
from seedbus.scenarios.running.limits import offered_scenario, replica_bytes
from seedbus.scenarios.running.open_run import OpenRun
from seedbus.scenarios.running.prepare import Prepared, recruit
from seedbus.scenarios.running.recording import LOG
from seedbus.scenarios.schema.plugin_use import proof
from seedbus.scenarios.transports import transports
from seedbus.scenarios.transports.contract import Hosting


def execute(
    prepared: Prepared,
    run: OpenRun,
    measure: Measure,
    monitor: Monitor | None = None,
    *,
    logs_messages: bool = False,
) -> Outcome:
    """Run the scenario's server, or its nodes, until the run is over, with clients where the placement puts them.

    Args:
        prepared: the checked scenario with its data.
        run: the open folder of the run.
        measure: is given the first round, if the clients are in this process.
        monitor: takes readings of the server; None: nobody does.
        logs_messages: whether the log has a line for each message.

    Raises:
        RunFolderError: the run in the folder was begun by another build.
        Unfinishable, WorkerFailed, BadEndpoint, TooFewFiles: the run cannot go on.
    """
    scenario, problem = prepared.scenario, prepared.problem
    memory = run.folder / MEMORY
    check_folder(memory)  # refuses links; the files in it are checked when they are opened
    ended = launcher.outcome_in(run.journal)
    if ended is not None:
        return ended
    keeps_state = scenario.algorithm.facts.remembers
    on_row = run.recorder.messages(Words(scenario.faults)) if logs_messages else None
    spec = prepared.plays(replace(_spec(prepared), memory=memory if keeps_state else None, on_row=on_row))
    for feature in scenario.features:
        if not feature.has_server and problem is not None:
            outcome: Outcome = feature.run(spec, problem, run.journal, run.recorder, run.stop, placed_beside(problem))
            return outcome
    followers = None
    if problem is not None and prepared.placement.is_here:
        followers = measuring(recruit(scenario, problem, run.recorder, memory), scenario, measure)
    hosting = Hosting(
        spec,
        replace(prepared.placement, memory=memory),
        recruit=followers,
        observer=run.recorder,
        log=run.folder / LOG,
        keeps_state=keeps_state,
    )
    with transports.connected(hosting) as connect:
        return launcher.run(spec, run.folder, run.journal, run.recorder, connect, run.stop, monitor)


def _spec(prepared: Prepared) -> RunSpec:
    scenario, problem = prepared.scenario, prepared.problem
    return RunSpec(
        seed=scenario.seed,
        algorithm=scenario.algorithm.sized(scenario.dimension),
        participation=scenario.participation,
        stop=scenario.stop,
        evaluation=scenario.evaluation,
        metrics=scenario.metrics,
        measured_by_clients=scenario.task.metrics if scenario.evaluation.by == "clients" else (),
        measures_in_sums=scenario.shows_sums_alone,
        network=scenario.network,
        compute=scenario.compute,
        faults=scenario.faults,
        verify_every=scenario.verify_every if scenario.verify else 0,
        is_virtual=scenario.clock == "virtual",
        scenario=offered_scenario(scenario),
        processes=prepared.placement.expect,
        lag=next((budget for each in scenario.features if (budget := each.budget())), None),
        replica_bytes=replica_bytes(scenario),
        x0=None if problem is None else problem.x0,
        report_limit=SHORT + scenario.algorithm.sizes(scenario.dimension, 1).report,
        plugins=proof(scenario.plugins),
        open_exchange=next((asks for each in scenario.features if (asks := each.exchange())), no_exchange),
        filters=collusions(scenario.faults, scenario.seed, scenario.participation.clients),
        noise=next((noise for each in scenario.features if (noise := each.noise())), None),
    )
