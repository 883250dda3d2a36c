"""`seedbus report`: the closing table of a finished run, or the messages of any run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from seedbus.cli.options import Plugins, RunFolder
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.terminal import note


class ReportFormat(StrEnum):
    """Output formats of a report, and of messages."""

    text = "text"
    json = "json"
    table = "table"
    csv = "csv"
    jsonl = "jsonl"


_OF_RESULTS = (ReportFormat.text, ReportFormat.json)
_OF_MESSAGES = (ReportFormat.table, ReportFormat.csv, ReportFormat.jsonl)


def report(
    run: RunFolder,
    messages: Annotated[
        bool, typer.Option("--messages", help="Show every message instead, also of a run that is not finished.")
    ] = False,
    client: Annotated[int | None, typer.Option(help="With --messages: those that this client sends or gets.")] = None,
    kind: Annotated[str | None, typer.Option(help="With --messages: those of this kind, such as report.")] = None,
    round: Annotated[int | None, typer.Option(min=0, help="With --messages: those of this round, from 0.")] = None,
    plugin: Plugins = None,
    output: Annotated[
        ReportFormat | None,
        typer.Option("--format", help="text, or one JSON object; with --messages table, csv or jsonl."),
    ] = None,
) -> None:
    """Show the closing table of a finished run again, and write its plots to RUN/report.html.

    Or show its messages: when each was sent, by whom to whom, its bytes, and what became of it.
    """
    with cli_errors():
        *others, last = _OF_MESSAGES if messages else _OF_RESULTS
        output = output or others[0]
        if output not in (*others, last):
            expected = f"{', '.join(others)} or {last} {'with' if messages else 'without'} --messages"
            raise ScenarioError(f"--format {output}", [f"expected {expected}"])
        if messages:
            from seedbus.scenarios.reporting.messages import show_messages

            show_messages(run, output, client=client, kind=kind, round=round)
            return
        for name, given in (("client", client), ("kind", kind), ("round", round)):
            if given is not None:
                raise ScenarioError(f"--{name}", ["it chooses messages; give --messages, too"])
        from seedbus.scenarios.reporting.page import PAGE, write_page
        from seedbus.scenarios.reporting.report import show
        from seedbus.scenarios.reporting.results import Results

        results = Results.read(run)
        try:
            write_page(results)
        except OSError as error:  # the folder may be read-only; the table can be shown nevertheless
            note(f"{run / PAGE} cannot be written ({error.strerror})")
        show(results.summary, as_json=output is ReportFormat.json)
