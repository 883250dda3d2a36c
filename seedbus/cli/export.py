"""`seedbus export` on the command line: a run's model after any round, its messages, or the run for other places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from seedbus.cli.options import Plugins, RunFolder, settings_of
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import say

What = Literal["model", "messages", "zip", "flower"]
Form = Literal["text", "json", "csv", "jsonl"]
_FORMS: dict[What, tuple[Form, ...]] = {
    "model": ("text", "json"),
    "messages": ("text", "csv", "jsonl"),
    "zip": ("text",),
    "flower": ("text",),
}


def export(
    run: RunFolder,
    what: Annotated[
        What,
        typer.Argument(
            metavar="WHAT",
            help="model after a round, and its digest; messages, all of them; zip: a finished run as an archive; "
            "flower: its scenario as an app of Flower.",
        ),
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
        typer.Option(
            help="Write the messages, the archive or the app's folder here; or the model, as safetensors, with its "
            "preprocessing."
        ),
    ] = None,
    plugin: Plugins = None,
    output: Annotated[
        Form, typer.Option("--format", help="text; of a model one JSON object; of messages csv or jsonl.")
    ] = "text",
) -> None:
    """Export a run's model after any round, with its digest; its messages; or the run for other places.

    The model is rebuilt from the journal: with scalar-only algorithms that of any round, with dense ones the newest and
    every 50th (65 at most). Of a folder of `seedbus client --out` it is the model that its owner has kept. Messages,
    also of a run that is not finished: when each was sent, by whom to whom, its bytes, and what became of it. zip is an
    RO-Crate, which seedbus verify reads. An app of Flower trains as the scenario does, on the same data, with the dense
    algorithms that Flower has a strategy for.
    """
    with cli_errors():
        if output not in _FORMS[what]:
            *others, last = _FORMS[what]
            accepted = f"{', '.join(others)} or {last}" if others else last
            raise ScenarioError(f"--format {output}", [f"expected {accepted} of {what}"])
        if what != "model" and at is not None:
            raise ScenarioError("--at", ["it is for the model; of messages expected --only round=ROUND"])
        if out is not None and out.exists() and run.resolve() in out.resolve().parents:
            raise ScenarioError("--out", [f"{out} is a file of the run; expected another name"])
        if what == "messages":
            from seedbus.scenarios.reporting.messages import Only, show_messages

            show_messages(run, output, settings_of(Only, "--only", only), out)
            return
        if only:
            raise ScenarioError("--only", ["it is for messages; expected `seedbus export RUN messages`"])
        if what in ("zip", "flower"):
            _whole(run, what, out)
            return
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


def _whole(run: Path, what: What, out: Path | None) -> None:
    """Write a run for other places. Raises `ScenarioError` if there is no place for it."""
    if out is None:
        raise ScenarioError("--out", [f"missing; expected {'a file' if what == 'zip' else 'a new folder'}"])
    if what == "zip":
        from seedbus.scenarios.exporting.archive import write_archive

        say(f"written to {out}: {write_archive(run, out):,} files; `seedbus verify` reads them there")
        return
    from seedbus.scenarios.exporting.flower import write_app

    for sentence in write_app(run, out):
        say(sentence)
