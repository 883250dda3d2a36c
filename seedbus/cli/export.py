"""`seedbus export` on the command line: a run's model after any round, and its messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from seedbus.cli.options import Plugins, RunFolder, settings_of
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import say

What = Literal["model", "messages"]
Form = Literal["text", "json", "csv", "jsonl"]
_FORMS: dict[What, tuple[Form, ...]] = {"model": ("text", "json"), "messages": ("text", "csv", "jsonl")}


def export(
    run: RunFolder,
    what: Annotated[
        What,
        typer.Argument(metavar="model|messages", help="The model after a round, and its digest; or every message."),
    ] = "model",
    at: Annotated[
        int | None, typer.Option(metavar="ROUND", help="The model after so many rounds; default: the last.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE",
            help="Messages of this client, kind or round: client=7, kind=report, round=40; may be given again.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the messages here; or the model, as safetensors, with its preprocessing."),
    ] = None,
    plugin: Plugins = None,
    output: Annotated[
        Form, typer.Option("--format", help="text; of a model one JSON object; of messages csv or jsonl.")
    ] = "text",
) -> None:
    """Export a run's model after any round, with its digest; or the messages of the run.

    The model is rebuilt from the journal: with scalar-only algorithms that of any round, with dense ones the newest and
    every 50th (65 at most). Of a folder of `seedbus client --out` it is the model that its owner has kept. Messages,
    also of a run that is not finished: when each was sent, by whom to whom, its bytes, and what became of it.
    """
    with cli_errors():
        if output not in _FORMS[what]:
            *others, last = _FORMS[what]
            raise ScenarioError(f"--format {output}", [f"expected {', '.join(others)} or {last} of {what}"])
        if what == "messages":
            if at is not None:
                raise ScenarioError("--at", ["it is for the model; of messages expected --only round=ROUND"])
            from seedbus.scenarios.reporting.messages import Only, show_messages

            show_messages(run, output, settings_of(Only, "--only", only), out)
            return
        if only:
            raise ScenarioError("--only", ["it is for messages; expected `seedbus export RUN messages`"])
        from seedbus.scenarios.running.replay import replay

        model = replay(run, at)
        if out is not None:
            model.save(out)
        facts = {"round": model.round, "version": model.replica.version, "digest": model.digest, "chain": model.chain}
        if output == "json":
            typer.echo(json.dumps(facts | {"out": None if out is None else str(out)}))
        else:
            say(f"round {model.round}, version {model.replica.version}: digest {model.digest}")
            if out is not None:
                say(f"written to {out}")
