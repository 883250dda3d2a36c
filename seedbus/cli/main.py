"""The command line: `seedbus run`, `server`, `client`, `init`, `check`, `check-plugin`, `explain`, `list`, `schema`,
`replay`, `analyse`, `privacy`, `report`, `verify`, `compare`, `partition`, `stress`, `study`, `top`, `runs`, `stop`.

Errors that the user can fix are one sentence on stderr and an exit code (`Exit`); a traceback is always a bug of ours.
Commands import heavy modules only when they need them. The docstring of a command is its help text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from seedbus.cli.analyse import analyse
from seedbus.cli.check_plugin import check_plugin
from seedbus.cli.client import client
from seedbus.cli.compare import compare
from seedbus.cli.explain import explain
from seedbus.cli.going_on import naming_command
from seedbus.cli.init import init
from seedbus.cli.keys import keys as keys_app
from seedbus.cli.keys import server_keys
from seedbus.cli.listing import list_command
from seedbus.cli.operations import runs, stop, top
from seedbus.cli.options import (
    Address,
    AnswerWithin,
    Devices,
    EvaluatorHost,
    Format,
    JoinWithin,
    Launch,
    LauncherName,
    Live,
    Log,
    LogName,
    Metrics,
    OtherDevice,
    Out,
    Output,
    Patience,
    Plugins,
    Quiet,
    Resume,
    RunFolder,
    Runnable,
    ScenarioArgument,
    ServerKeys,
    Set,
    Track,
    TransportName,
    WorkerCpus,
    WorkerGpus,
)
from seedbus.cli.partition import partition
from seedbus.cli.privacy import privacy
from seedbus.cli.report import report
from seedbus.cli.stress import stress
from seedbus.cli.study import study
from seedbus.cli.verify import verify
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import Exit, ScenarioError
from seedbus.scenarios.reporting.terminal import accept_all_text, note, say
from seedbus.scenarios.transports.placement import Placement
from seedbus.scenarios.transports.transports import TRANSPORTS, worker_transport

_UsageError: Any = typer.BadParameter.__base__  # click's class; typer contains click, or depends on it

app = typer.Typer(
    name="seedbus",
    help="Federated learning as messages: run a scenario, count every byte, replay the model.",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"seedbus {metadata.version('seedbus')}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of `seedbus` itself."""


app.command("analyse")(analyse)
app.command("check-plugin")(check_plugin)
app.command("compare")(compare)
app.command("explain")(explain)
app.command("init")(init)
app.command("partition")(partition)
app.command("privacy")(privacy)
app.command("stress")(stress)
app.command("study")(study)
app.command("top")(top)
app.command("runs")(runs)
app.command("stop")(stop)
app.add_typer(keys_app, name="keys")


@app.command("run")
def run_command(
    context: typer.Context,
    scenario: Runnable = None,
    settings: Set = None,
    out: Out = None,
    resume: Resume = None,
    transport: Annotated[
        TransportName | None,
        typer.Option(help="How bytes move; same bits on all. Default: what the scenario says."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=0, max=1024, help="Processes that share the clients; 0: all in this one, or as many as a cluster has."
        ),
    ] = 0,
    launcher: LauncherName = "local",
    address: Address = None,
    worker_cpus: WorkerCpus = None,
    worker_gpus: WorkerGpus = None,
    launch: Launch = None,
    patience: Patience = 60.0,
    join_within: JoinWithin = 300.0,
    device: Devices = "",
    other_device: OtherDevice = False,
    metrics: Metrics = None,
    live: Live = None,
    log: Log = None,
    track: Track = None,
    plugin: Plugins = None,
    output: Output = Format.text,
    quiet: Quiet = False,
) -> None:
    """Run a scenario to its end, or resume a run that stopped."""
    with cli_errors(), naming_command(context):
        requested = _requested("seedbus run", scenario, settings, out, resume, other_device)
        from seedbus.models.device import devices_of
        from seedbus.scenarios.launchers.named import launcher_of

        options = {"address": address, "worker_cpus": worker_cpus, "worker_gpus": worker_gpus}
        launches = launcher_of(launcher, options, launch or [])
        workers = workers or launches.workers(requested.participation.clients)
        name = requested.transport if transport is None else transport.value
        if workers and transport is None:
            name = worker_transport(name, launches.reaches_nodes)
        elif workers and not TRANSPORTS[name].reaches_processes:
            raise ScenarioError(f"--transport {name}", ["worker processes need ipc or tcp"])
        placement = Placement(
            name,
            workers,
            patience_s=patience,
            join_s=join_within,
            devices=devices_of(device, max(1, workers), are_here=not launches.reaches_nodes),
            other_device=other_device,
            launcher=launches,
        )
        _run(requested, out, resume, placement, metrics, live, log, track or [], output, quiet)


@app.command("server")
def server_command(
    context: typer.Context,
    scenario: Runnable = None,
    bind: Annotated[str, typer.Option(help="Where clients connect to.")] = "tcp://127.0.0.1:5555",
    expect_workers: Annotated[
        int, typer.Option(min=1, help="Processes that share the clients, where they don't say how many they take.")
    ] = 1,
    settings: Set = None,
    out: Out = None,
    resume: Resume = None,
    patience: Patience = 60.0,
    join_within: JoinWithin = 300.0,
    answer_within: AnswerWithin = None,
    keys: ServerKeys = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No keys, though other machines can reach this server.")
    ] = False,
    evaluator: Annotated[
        EvaluatorHost,
        typer.Option(help="The process that evaluates: this server's own, or one whose key is authorised for it."),
    ] = EvaluatorHost.own,
    device: Devices = "",
    other_device: OtherDevice = False,
    metrics: Metrics = None,
    live: Live = None,
    log: Log = None,
    track: Track = None,
    plugin: Plugins = None,
    output: Output = Format.text,
    quiet: Quiet = False,
) -> None:
    """Run a scenario's server; clients come from other terminals, by `seedbus client`.

    Where other machines can reach it, only authorised keys are let in (`seedbus keys`).
    """
    with cli_errors(), naming_command(context):
        from seedbus.models.device import devices_of

        requested = _requested("seedbus server", scenario, settings, out, resume, other_device)
        placement = Placement(
            "tcp",
            bind=bind,
            expect=expect_workers,
            patience_s=patience,
            join_s=join_within,
            answer_s=answer_within,
            keys=server_keys(bind, keys, insecure),
            evaluator=evaluator.value,
            devices=devices_of(device),
            other_device=other_device,
        )
        _run(requested, out, resume, placement, metrics, live, log, track or [], output, quiet)


app.command("client")(client)


@app.command("check")
def check_command(
    scenario: ScenarioArgument, settings: Set = None, plugin: Plugins = None, output: Output = Format.text
) -> None:
    """Check a scenario without running it, and show it with every default filled in."""
    with cli_errors():
        from seedbus.scenarios.running.possible import refuse_impossible
        from seedbus.scenarios.schema.loading import load

        loaded = load(scenario, settings, needs_task=True)
        loaded.check()
        refuse_impossible(loaded)
        _print_caveats(loaded)
        typer.echo(json.dumps(loaded.resolved()) if output is Format.json else str(loaded).rstrip())


app.command("list")(list_command)


@app.command("schema")
def schema_command(plugin: Plugins = None) -> None:
    """Print the JSON Schema of scenario files, for editors."""
    with cli_errors():
        from seedbus.scenarios.schema.scenario import json_schema

        typer.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@app.command("replay")
def replay_command(
    run: RunFolder,
    round: Annotated[int | None, typer.Option(help="The model after so many rounds; default: the last.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the model here, as safetensors, with its preprocessing.")
    ] = None,
    plugin: Plugins = None,
    output: Output = Format.text,
) -> None:
    """Rebuild a model from a run's journal, and print its digest: with scalar-only algorithms that of any round,
    with dense ones the newest and every 50th; of their other models the journal has digests alone."""
    with cli_errors():
        from seedbus.scenarios.running.replay import replay

        model = replay(run, round)
        if out is not None:
            model.save(out)
        facts = {"round": model.round, "version": model.replica.version, "digest": model.digest}
        if output is Format.json:
            typer.echo(json.dumps(facts | {"out": None if out is None else str(out)}))
        else:
            say(f"round {model.round}, version {model.replica.version}: digest {model.digest}")
            if out is not None:
                say(f"written to {out}")


app.command("report")(report)
app.command("verify")(verify)


def main() -> None:
    """Run the command line and exit with its code."""
    accept_all_text()
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="seedbus", standalone_mode=False)
    except _UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "seedbus"
        say(f"seedbus: {_usage_sentence(error).rstrip('.')}; see `{command} --help`", to_stderr=True)
        code = Exit.USAGE
    except typer.Abort:  # Ctrl-C outside of a command's function; some versions of typer return the exit code instead
        code = Exit.INTERRUPTED
    sys.exit(code)


def _usage_sentence(error: Any) -> str:
    """Return what is wrong with the arguments of a command; where pydantic read them, in our words."""
    from pydantic import ValidationError

    from seedbus.scenarios.sentences import option_sentence

    text: str = error.format_message()
    if not isinstance(error.__cause__, ValidationError):
        return text
    return f"{text.partition(': ')[0]}: {option_sentence(error.__cause__)}"


def _requested(
    command: str,
    scenario: str | None,
    settings: list[str] | None,
    out: Path | None,
    resume: Path | None,
    other_device: bool,
) -> Any:
    """Return the scenario that a command's arguments name. Raises `ScenarioError` if the arguments contradict."""
    if resume is None and scenario is None:
        raise ScenarioError(command, ["name a scenario (`seedbus list` shows them), or --resume RUN"])
    if resume is not None and out is not None:
        raise ScenarioError(command, ["give --out for a new run or --resume for an old one, not both"])
    if resume is None and other_device:
        raise ScenarioError(command, ["--other-device is for a run that goes on; give it with --resume RUN"])
    from seedbus.scenarios.run_folder import scenario_of
    from seedbus.scenarios.schema.loading import load

    if resume is not None and scenario is None:
        kept = scenario_of(resume)
        return load(kept.resolved(), settings) if settings else kept
    return load(str(scenario), settings, needs_task=True)


def _run(
    scenario: Any,
    out: Path | None,
    resume: Path | None,
    placement: Placement,
    metrics: str | None,
    live: str | None,
    log: LogName | None,
    track: list[str],
    output: Format,
    quiet: bool,
) -> None:
    from seedbus.agents.observer import Observers
    from seedbus.scenarios.operations.endpoint import served
    from seedbus.scenarios.reporting.progress import Quiet
    from seedbus.scenarios.reporting.report import found_and_expected, show
    from seedbus.scenarios.reporting.watching import watching
    from seedbus.scenarios.running.run import run

    _print_caveats(scenario)
    with (
        served(metrics, computes_here=placement.is_here) as endpoint,
        _live(scenario, resume, live) as (watcher, page),
        nullcontext(Quiet()) if quiet else watching(scenario) as progress,
    ):
        if endpoint is not None:
            note(f"metrics are at {endpoint.url}")
        results = run(
            scenario,
            resume or out,
            resume=resume is not None,
            observer=Observers([progress, watcher]),
            placement=placement,
            monitor=endpoint,
            track=track,
            log=None if log is None else "messages",
        )
        if page is not None:
            page.last = lambda: watcher.ended(results)
    show(results.summary, as_json=output is Format.json)
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


def _print_caveats(scenario: Any) -> None:
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
