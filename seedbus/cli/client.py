"""`seedbus client` on the command line."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from seedbus.cli.keys import identity, secret_key
from seedbus.cli.options import Devices, Own, Patience, Plugins, Quiet
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.reporting.terminal import say


@dataclass(frozen=True)
class HostOptions:
    """Options about which clients a process hosts, of which server, and how."""

    connect: Annotated[str, typer.Option(help="Where the server is, e.g. tcp://host:5555.")]
    clients: Annotated[
        str,
        typer.Option(
            help="How many clients to host (25: any 25), which by number (0-24,40; 7-7: number 7 alone), or none; "
            "default: its share."
        ),
    ] = ""
    evaluator: Annotated[
        bool,
        typer.Option("--evaluator", help="Host the evaluator too, if this process's key is authorised for it."),
    ] = False
    server_key: Annotated[
        str,
        typer.Option(
            metavar="KEY",
            help="The server's public key, or its file, which is read again for each connection: without it nothing "
            "is encrypted.",
        ),
    ] = ""
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="This process's secret key; default: the one of `seedbus keys`.")
    ] = None
    patience: Patience = 60.0
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the model, and for what clients answer, measure and remember; default: lost when the "
            "process ends."
        ),
    ] = None
    seed_secret: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The clients' secret, for a scenario with seed_shift; other scenarios are refused then. Default: "
            "$SEEDBUS_SEED_SECRET.",
        ),
    ] = None
    device: Devices = ""
    own: Own = ""
    threads: Annotated[
        int,
        typer.Option(
            min=1,
            max=1024,
            metavar="N",
            help="Threads that replay what clients missed; losses take one. Same bits with any number.",
        ),
    ] = 1
    nice: Annotated[
        int,
        typer.Option(
            min=0,
            max=19,
            metavar="N",
            help="How much the owner's other programs go before this one: 0, not at all; 19, the most.",
        ),
    ] = 10
    parent_pipe: Annotated[bool, typer.Option("--parent-pipe", hidden=True)] = False


@dataclass(frozen=True)
class Consent:
    """Options about what the owner of this process's clients has agreed to, and when they take part."""

    show: Annotated[
        bool, typer.Option("--show", help="Say in ten lines what the server's scenario asks for, and join nothing.")
    ] = False
    accept: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Join only if the scenario has the terms in this file, which --show --accept FILE writes.",
        ),
    ] = None
    hours: Annotated[
        str, typer.Option(metavar="FROM-TO", help="When to take part, local time, like 22-6; default: always.")
    ] = ""
    bytes_a_day: Annotated[
        str,
        typer.Option(
            metavar="BYTES",
            help="What this process may send and receive in a day, like 20MB (100 kB at least); heartbeats take 1.3 "
            "MB, or 3.8 MB with keys; those of today before it count too, which are kept in --out, or beside --key; "
            "default: any.",
        ),
    ] = ""
    while_: Annotated[
        str,
        typer.Option(
            "--while",
            metavar="COMMAND",
            help="Take part while this command, which runs once a minute and without a shell, ends with status 0.",
        ),
    ] = ""


@dataclass(frozen=True)
class Allowed:
    """Options about what the server's scenario may ask of this process."""

    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="ROOT",
            help="A directory in which data and models lie, beside those of SEEDBUS_DATA; may be given again. The "
            "server's scenario cannot name a folder outside of these.",
        ),
    ] = None
    tasks: Annotated[
        str, typer.Option(metavar="NAMES", help="Tasks that the server may name, like digits,mnist; default: all.")
    ] = ""
    max_dimension: Annotated[
        int | None, typer.Option(min=1, help="Coordinates that the model may have; default: as memory allows.")
    ] = None
    max_memory: Annotated[
        str,
        typer.Option(
            metavar="BYTES",
            help="Memory that this process may take, like 4GiB: of an estimate before anything is loaded, and then by "
            "the system (RLIMIT_DATA); default: an estimate of at most the machine's memory.",
        ),
    ] = ""
    max_clients: Annotated[
        int, typer.Option(min=1, max=2**24, help="Clients that a share may have, where --clients does not say.")
    ] = 1_000_000

    def limits(self, accept: Path | None) -> Any:
        """Return them as `Limits`; accept: the file of accepted terms. Raises `ScenarioError` for a wrong value."""
        from seedbus.scenarios.consent.terms import Accepted
        from seedbus.scenarios.running.limits import Limits, bytes_of, tasks_of

        memory = bytes_of(self.max_memory, "--max-memory") if self.max_memory else None
        return Limits(
            tasks=tasks_of(self.tasks),
            max_dimension=self.max_dimension,
            max_memory=memory,
            max_clients=self.max_clients,
            accepted=None if accept is None else Accepted.read(accept),
        )


def client(host: HostOptions, consent: Consent, allowed: Allowed, plugin: Plugins = None, quiet: Quiet = False) -> None:
    """Host clients of a server that another terminal runs, until its run is over.

    The server is not trusted: what its scenario asks for beyond --data, --tasks and the --max options, or other terms
    than those of --accept, is refused before anything is loaded, with exit code 9, and the server learns no more than
    that. Outside of --hours, --bytes-a-day and --while the clients are away: they leave, and come back.
    """
    with cli_errors():
        from seedbus.bus import HostRequest
        from seedbus.bus.zeromq import Joining
        from seedbus.models.device import devices_of
        from seedbus.scenarios.consent.owner_limits import OwnerLimits, file_of_today
        from seedbus.scenarios.reporting.rate_limit import CLIENT_BURST, RateLimit
        from seedbus.scenarios.running.limits import folders_of
        from seedbus.scenarios.running.seed_secret import VARIABLE as SEED_SECRET
        from seedbus.scenarios.running.seed_secret import read_secret
        from seedbus.scenarios.running.worker import serve, spans_of

        limit = RateLimit({}, CLIENT_BURST)
        (own_device,) = devices_of(host.device)

        def note(event: str, **facts: Any) -> None:
            if not quiet:
                for name, values in limit.admitted(event, facts):
                    details = ", ".join(f"{key} {value}" for key, value in values.items())
                    say(str(values.get("what") or (f"{name}: {details}" if details else name)), to_stderr=True)
            elif event == "no-mean":  # it is of the run, and only the process that evaluates finds it out
                say(f"seedbus: note: {facts['what']}", to_stderr=True)

        if allowed.data:  # tasks also look for their files in these folders
            roots = [*map(str, folders_of(allowed.data)), *filter(None, [os.environ.get("SEEDBUS_DATA")])]
            os.environ["SEEDBUS_DATA"] = os.pathsep.join(roots)
        if host.seed_secret is not None:
            os.environ[SEED_SECRET] = str(host.seed_secret)
            read_secret()  # its user's mistake, of which no server is told
        limits = allowed.limits(None if consent.show else consent.accept)
        request = HostRequest(*spans_of(host.clients), host.evaluator)
        joining = Joining(host.connect, request, host.patience, note, identity=identity(host.server_key, host.key))
        if consent.show:
            _show(joining, limits, host.out, consent.accept)
            return
        if not host.parent_pipe:
            os.nice(max(0, host.nice - os.nice(0)))  # threads that begin later have it too
        today = file_of_today(host.out, secret_key(host.key) if host.server_key else None)
        with closing(OwnerLimits(consent.hours, consent.bytes_a_day, consent.while_, today)) as owner:
            if owner.forgets:
                note("the bytes of this day are lost with this process", keep="them by --out FOLDER")
            serve(
                replace(joining, why_away=owner.why_away if owner.are_any else None),
                memory=host.out,
                parent_pipe=host.parent_pipe,
                limits=None if host.parent_pipe else limits,  # a process that the server itself started trusts it
                device=own_device,
                own=host.own,
                threads=host.threads,
            )
        if not quiet:
            say("the run is over", to_stderr=True)


def _show(joining: Any, limits: Any, out: Path | None, accept: Path | None) -> None:
    """Print the ten lines of the scenario that a server offers, and write its terms if a file is named."""
    from seedbus.scenarios.consent.sentences import consent
    from seedbus.scenarios.consent.terms import write_terms
    from seedbus.scenarios.running.worker import offered

    scenario = offered(joining, limits)
    lines = consent(scenario, "" if out is None else str(out))
    for topic, sentence in lines.items():
        say(f"{topic:<12}{sentence}")
    if accept is not None:
        write_terms(accept, scenario, [f"{topic}: {sentence}" for topic, sentence in lines.items()])
    how = "--accept FILE beside --show writes these terms" if accept is None else f"the terms are in {accept}"
    say(f"{how}; without --show, --accept {accept or 'FILE'} joins with no others", to_stderr=True)
