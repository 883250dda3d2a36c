"""Options and arguments that several commands share."""

from __future__ import annotations

import os
from enum import Enum, StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.transports.transports import TRANSPORTS

TransportName = Enum("TransportName", {name: name for name in TRANSPORTS}, type=str)  # type: ignore[misc]


class EvaluatorHost(StrEnum):
    """The process that hosts the evaluator of `seedbus server`: one of its own, or one with an authorised key."""

    own = "own"
    keys = "keys"


class Format(StrEnum):
    """Output formats of results."""

    text = "text"
    json = "json"


class LogName(StrEnum):
    """What the log of a run may have beside its events."""

    messages = "messages"


class TableFormat(StrEnum):
    """Output formats of a table."""

    text = "text"
    markdown = "markdown"
    json = "json"


def _load_plugins(paths: list[Path] | None) -> list[Path] | None:
    """Load the plug-ins of this process before a command begins."""
    if paths or os.environ.get("SEEDBUS_PLUGINS") or metadata.entry_points(group="seedbus.plugins"):
        with cli_errors():
            from seedbus.scenarios.schema.plugins import load_plugins

            load_plugins(paths or [])
    return paths


Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        callback=_load_plugins,
        is_eager=True,
        help="A Python file with algorithms, tasks, faults, … of your own; may be given again.",
    ),
]
Devices = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="Where networks and vectors lie: cpu, cuda, cuda:1, mps; worker processes take several (cuda:0,cuda:1) in "
        "turn. Default: SEEDBUS_DEVICE, or cpu.",
    ),
]
OtherDevice = Annotated[
    bool, typer.Option("--other-device", help="With --resume: accept another device than that on which the run began.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field, e.g. algorithm.momentum=0.5.")
]
Output = Annotated[Format, typer.Option("--format", help="text, or one JSON object on stdout.")]
Resume = Annotated[
    Path | None,
    typer.Option(metavar="RUN", help="Go on with the run in this folder; --set stop.rounds=N: for N rounds in all."),
]
Out = Annotated[Path | None, typer.Option(help="The run's folder; default: runs/NAME-1, -2, …")]
Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT", help="Serve metrics and health over HTTP there; without HOST on this machine only."
    ),
]
Live = Annotated[
    str | None,
    typer.Option(metavar="PORT", help="Serve the report as a live page to browsers of this machine; 0: any free port."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Send the run to a tracker: tensorboard, mlflow or wandb (`seedbus list trackers`); may be given again.",
    ),
]
Log = Annotated[
    LogName | None,
    typer.Option("--log", help="messages: a line of RUN/log.jsonl for each message, as it arrives or is lost."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the results.")]
LauncherName = Annotated[
    str, typer.Option("--launcher", metavar="NAME", help="What starts the workers: local, ray or slurm.")
]
Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Ray: the cluster's head; default: auto. Slurm: how nodes reach this one."),
]
WorkerCpus = Annotated[
    float | None, typer.Option(metavar="COUNT", help="On a cluster: CPUs of each worker; default: 1.")
]
WorkerGpus = Annotated[
    float | None,
    typer.Option(metavar="COUNT", help="On a cluster: GPUs of each worker; with Ray a fraction too; default: none."),
]
Launch = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE", help="Another field of the launcher, e.g. partition=long; may be given again."),
]
Patience = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long the other side may be away before this one gives up. Before a run begins, its server waits.",
    ),
]
JoinWithin = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="How long a process may take to join.")]
AnswerWithin = Annotated[
    float | None,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="How long a process may owe an answer before it counts as gone; default: --patience.",
    ),
]
KEYS = "SEEDBUS_KEYS"
ServerKeys = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="The server's keys, and those that it lets in; on by default beyond this machine."
    ),
]
KeysFolder = Annotated[
    Path | None,
    typer.Option("--keys", metavar="FOLDER", help=f"Where keys are; default: ${KEYS}, or ~/.config/seedbus/keys."),
]
Runnable = Annotated[
    str | None, typer.Argument(help="A scenario file, or a name from `seedbus list`; not needed with --resume.")
]
ScenarioArgument = Annotated[str, typer.Argument(help="A scenario file, or a name from `seedbus list`.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, e.g. runs/quickstart-1.")]
