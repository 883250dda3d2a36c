"""`seedbus run` and `seedbus server` on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seedbus.cli import completion
from seedbus.cli.going_on import naming_command
from seedbus.cli.keys import server_keys
from seedbus.cli.options import (
    Devices,
    JoinWithin,
    Live,
    Output,
    Own,
    Patience,
    Plugins,
    Quiet,
    Set,
    Track,
    WorkerOptions,
)
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.reporting.terminal import note, say
from seedbus.scenarios.transports.placement import Placement
from seedbus.scenarios.transports.transports import TRANSPORTS, worker_transport

TransportName = Enum("TransportName", {name: name for name in TRANSPORTS}, type=str)  # type: ignore[misc]
Runnable = Annotated[
    str | None,
    typer.Argument(
        metavar="SCENARIO",
        help="A scenario file, or a name from `seedbus list`; not needed with --resume.",
        autocompletion=completion.scenarios,
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """Options of a run, wherever its clients are."""

    settings: Set = None
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: runs/NAME-1, -2, …")] = None
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Go on with the run in this folder; --set stop.rounds=N: for N rounds in all."
        ),
    ] = None
    patience: Patience = 60.0
    join_within: JoinWithin = 300.0
    device: Devices = ""
    other_device: Annotated[
        bool,
        typer.Option("--other-device", help="With --resume: accept another device than that on which the run began."),
    ] = False
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT", help="Serve metrics and health over HTTP there; without HOST on this machine only."
        ),
    ] = None
    live: Live = None
    log: Annotated[
        Literal["messages"] | None,
        typer.Option("--log", help="messages: a line of RUN/log.jsonl for each message, as it arrives or is lost."),
    ] = None
    track: Track = None
    plugin: Plugins = None
    output: Output = "text"
    quiet: Quiet = False

    def requested(self, command: str, scenario: str | None) -> Any:
        """Return the scenario that is to be run. Raises `ScenarioError` if the options contradict each other."""
        if self.resume is None and scenario is None:
            raise ScenarioError(command, ["name a scenario (`seedbus list` shows them), or --resume RUN"])
        if self.resume is not None and self.out is not None:
            raise ScenarioError(command, ["give --out for a new run or --resume for an old one, not both"])
        if self.resume is None and self.other_device:
            raise ScenarioError(command, ["--other-device is for a run that goes on; give it with --resume RUN"])
        from seedbus.scenarios.run_folder import scenario_of
        from seedbus.scenarios.schema.loading import load

        if self.resume is not None and scenario is None:
            kept = scenario_of(self.resume)
            return load(kept.resolved(), self.settings) if self.settings else kept
        return load(str(scenario), self.settings, needs_task=True)


@dataclass(frozen=True)
class ServerOptions:
    """Options of a server whose clients others start."""

    bind: Annotated[str, typer.Option(help="Where clients connect to.")] = "tcp://127.0.0.1:5555"
    workers: Annotated[
        int, typer.Option(min=1, help="Processes that share the clients, where they don't say how many they take.")
    ] = 1
    answer_within: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="How long a process may owe an answer before it counts as gone; default: --patience.",
        ),
    ] = None
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The server's keys, and those that it lets in; on by default beyond this machine."
        ),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No keys, though other machines can reach this server.")
    ] = False
    evaluator: Annotated[
        Literal["own", "keys"],
        typer.Option(help="The process that evaluates: this server's own, or one whose key is authorised for it."),
    ] = "own"


def run(
    context: typer.Context,
    scenario: Runnable = None,
    *,
    options: RunOptions,
    workers: WorkerOptions,
    transport: Annotated[
        TransportName | None,
        typer.Option(help="How bytes move; same bits on all. Default: what the scenario says."),
    ] = None,
    own: Own = "",
    as_run: Annotated[
        Path | None,
        typer.Option(
            "--as",
            metavar="RUN",
            help="Rehearse this run: its journal says whom rounds asked and which reports counted. Ends with its "
            "digest, or says what differs.",
        ),
    ] = None,
) -> None:
    """Run a scenario to its end, or resume a run that stopped."""
    with cli_errors(), naming_command(context):
        requested = options.requested("seedbus run", scenario)
        from seedbus.models.device import devices_of

        launches = workers.launches()
        count = workers.workers or launches.workers(requested.participation.clients)
        name = requested.transport if transport is None else transport.value
        if count and transport is None:
            name = worker_transport(name, launches.reaches_nodes)
        elif count and not TRANSPORTS[name].reaches_processes:
            raise ScenarioError(f"--transport {name}", ["worker processes need ipc or tcp"])
        placement = Placement(
            name,
            count,
            patience_s=options.patience,
            join_s=options.join_within,
            devices=devices_of(options.device, max(1, count), are_here=not launches.reaches_nodes),
            other_device=options.other_device,
            launcher=launches,
            own=own,
        )
        _run(requested, placement, options, as_run)


def server(context: typer.Context, scenario: Runnable = None, *, listening: ServerOptions, options: RunOptions) -> None:
    """Run a scenario's server; clients come from other terminals, by `seedbus client`.

    Where other machines can reach it, only authorised keys are let in (`seedbus keys`).
    """
    with cli_errors(), naming_command(context):
        from seedbus.models.device import devices_of

        requested = options.requested("seedbus server", scenario)
        placement = Placement(
            "tcp",
            bind=listening.bind,
            expect=listening.workers,
            patience_s=options.patience,
            join_s=options.join_within,
            answer_s=listening.answer_within,
            keys=server_keys(listening.bind, listening.keys, listening.insecure),
            evaluator=listening.evaluator,
            devices=devices_of(options.device),
            other_device=options.other_device,
        )
        _run(requested, placement, options)


def _run(scenario: Any, placement: Placement, options: RunOptions, as_run: Path | None = None) -> None:
    from seedbus.agents.observer import Observers
    from seedbus.scenarios.operations.endpoint import served
    from seedbus.scenarios.reporting.closing_table import show
    from seedbus.scenarios.reporting.progress import Quiet, watching
    from seedbus.scenarios.running.run import run as run_scenario

    note_caveats(scenario)
    with (
        served(options.metrics, computes_here=placement.is_here) as endpoint,
        _live(scenario, options.resume, options.live) as (watcher, page),
        nullcontext(Quiet()) if options.quiet else watching(scenario) as progress,
    ):
        if endpoint is not None:
            note(f"metrics are at {endpoint.url}")
        results = run_scenario(
            scenario,
            options.resume or options.out,
            resume=options.resume is not None,
            observer=Observers([progress, watcher]),
            placement=placement,
            monitor=endpoint,
            track=options.track or [],
            log=options.log,
            as_run=as_run,
        )
        if page is not None:
            page.last = lambda: watcher.ended(results)
    show(results.summary, as_json=options.output == "json")
    _end(results)


def _end(results: Any) -> None:
    """Say what the run has missed, and end with the exit code of what has become of it."""
    from seedbus.scenarios.reporting.closing_table import found_and_expected

    for name in results.missed:
        missed = found_and_expected(results.expectations[name])
        say(f"seedbus: the run missed what its scenario expects: {name} is {missed}", to_stderr=True)
    if "diverged" in results.summary["refusals"]:
        raise typer.Exit(Exit.DIVERGED)
    if results.training_diverged:
        raise typer.Exit(Exit.TRAINING_DIVERGED)
    if results.summary["rounds"] and not results.summary["version"]:
        raise typer.Exit(Exit.NO_COMMIT)
    if results.missed:
        raise typer.Exit(Exit.MISSED)


def note_caveats(scenario: Any) -> None:
    """Print what of a scenario has no effect, a note each."""
    from seedbus.scenarios.schema.without_effect import all_caveats

    for sentence in all_caveats(scenario):
        note(sentence)


@contextmanager
def _live(scenario: Any, resume: Path | None, port: str | None) -> Iterator[tuple[Any, Any]]:
    """Yield the observer for the live page, and the page; an observer that does nothing, and None, without a port."""
    from seedbus.agents.observer import NullObserver

    if port is None:
        yield NullObserver(), None
        return
    from seedbus.agents.errors import AgentError
    from seedbus.agents.journal.journal import Journal
    from seedbus.scenarios.operations.live_page import LiveRun, live

    lines: list[dict[str, Any]] = []
    if resume is not None:
        with (
            suppress(AgentError),
            closing(Journal.open(resume, for_writing=False)) as journal,
        ):  # the run says what is wrong
            lines = journal.metrics()
    watcher = LiveRun(scenario, lines)
    with live(watcher, port) as page:
        note(f"the live page is at {page.url}")
        yield watcher, page
