"""Options and arguments that several commands share.

One word means one thing in all commands: `--out` where something is written, `--format` how it is printed, `--set` a
field and its value, `--only` which parts, `--at` which point of a run, `--workers` the processes that share a run's
clients, `--jobs` those that each make runs, `--patience` how long to wait.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from seedbus.cli import completion
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError

if TYPE_CHECKING:
    from seedbus.scenarios.launchers.launcher import Launcher

Made = TypeVar("Made")


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer from one whose parameters may be dataclasses: their fields are its options."""
    signature = inspect.signature(command, eval_str=True)
    kinds: dict[str, Any] = {each.name: each.annotation for each in signature.parameters.values()}
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if dataclasses.is_dataclass(kind)}
    fields = {name: inspect.signature(kind, eval_str=True).parameters for name, kind in groups.items()}

    def flattened(**given: Any) -> None:
        made = {name: kind(**{each: given.pop(each) for each in fields[name]}) for name, kind in groups.items()}
        command(**given, **made)

    parameters = [
        part.replace(kind=part.KEYWORD_ONLY)
        for each in signature.parameters.values()
        for part in fields.get(each.name, {each.name: each}).values()
    ]
    flattened.__name__, flattened.__doc__ = command.__name__, command.__doc__
    flattened.__annotations__ = {each.name: each.annotation for each in parameters}
    flattened.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return flattened


def fields_of(option: str, given: list[str] | None) -> dict[str, str]:
    """Return the values by field of an option that is given as FIELD=VALUE, once or several times.

    Raises:
        ScenarioError: one of them has no `=`.
    """
    pairs = {}
    for each in given or ():
        field, equals, value = each.partition("=")
        if not equals:
            raise ScenarioError(f"{option} {each}", ["expected FIELD=VALUE"])
        pairs[field] = value
    return pairs


def settings_of(kind: type[Made], option: str, given: list[str] | None) -> Made:
    """Return a dataclass from an option that is given as FIELD=VALUE; a value that begins with { is YAML.

    Raises:
        ScenarioError: there is no such field, or its value is not accepted.
    """
    from pydantic import TypeAdapter, ValidationError

    from seedbus.scenarios.schema.yaml_text import NotPlain, parse
    from seedbus.scenarios.sentences import nearest, option_sentence

    known = [each.name for each in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for field, text in fields_of(option, given).items():
        if field not in known:
            raise ScenarioError(f"{option} {field}", [f"there is no such field; {nearest(field, known)}"])
        try:
            values[field] = parse(text) if text.startswith("{") else text
        except NotPlain as error:
            raise ScenarioError(f"{option} {field}={text}", [str(error)]) from None
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        raise ScenarioError(f"{option} {field}={values[field]}", [option_sentence(error)]) from None


def _load_plugins(paths: list[Path] | None) -> list[Path] | None:
    """Load the plug-ins of this process before a command begins."""
    from importlib import metadata

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
Own = Annotated[
    str,
    typer.Option(
        "--own",
        metavar="PLACE",
        help="With `partition: own`, the client's own file or folder; of several clients a pattern in quotes, in the "
        "order of their numbers.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Change a field, e.g. algorithm.momentum=0.5.",
        autocompletion=completion.settings,
    ),
]
Output = Annotated[Literal["text", "json"], typer.Option("--format", help="text, or one JSON object on stdout.")]
TableOutput = Annotated[
    Literal["text", "markdown", "json"],
    typer.Option("--format", help="text, tables in Markdown, or one JSON object on stdout."),
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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the results.")]
Patience = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long the other side may be away before this one gives up. Before a run begins, its server waits.",
    ),
]
JoinWithin = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="How long a process may take to join.")]
At = Annotated[
    str, typer.Option(metavar="ROUNDS", help="The models after so many rounds, e.g. 0,100,500; default: the last.")
]
KEYS = "SEEDBUS_KEYS"
KeysFolder = Annotated[
    Path | None,
    typer.Option("--keys", metavar="FOLDER", help=f"Where keys are; default: ${KEYS}, or ~/.config/seedbus/keys."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, e.g. runs/quickstart-1.")]


@dataclass(frozen=True)
class WorkerOptions:
    """Options about the processes that share the clients of a run."""

    workers: Annotated[
        int,
        typer.Option(
            min=0, max=1024, help="Processes that share a run's clients; 0: none but its own, or what suits a cluster."
        ),
    ] = 0
    launcher: Annotated[
        str, typer.Option("--launcher", metavar="NAME", help="What starts the workers: local, ray or slurm.")
    ] = "local"
    launch: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="A field of the launcher, e.g. address=HOST:PORT, worker_cpus=2, worker_gpus=0.25 or partition=long; "
            "may be given again.",
        ),
    ] = None

    def launches(self) -> Launcher:
        """Return what starts them. Raises `ScenarioError` if there is none of that name, or a field is wrong."""
        from seedbus.scenarios.launchers.named import launcher_of

        return launcher_of(self.launcher, fields_of("--launch", self.launch))
