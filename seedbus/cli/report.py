"""`seedbus report`: the closing table of a finished run."""

from __future__ import annotations

from seedbus.cli.options import Output, Plugins, RunFolder
from seedbus.scenarios.cli_errors import cli_errors
from seedbus.scenarios.reporting.terminal import note


def report(run: RunFolder, plugin: Plugins = None, output: Output = "text") -> None:
    """Show the closing table of a finished run again, and write its plots to RUN/report.html."""
    with cli_errors():
        from seedbus.scenarios.extras import missing
        from seedbus.scenarios.reporting.closing_table import show
        from seedbus.scenarios.reporting.page import PAGE, write_page
        from seedbus.scenarios.reporting.results import Results

        results = Results.read(run)
        try:
            if missing("plotly") is None:
                write_page(results)
        except OSError as error:  # the folder may be read-only; the table can be shown nevertheless
            note(f"{run / PAGE} cannot be written ({error.strerror})")
        show(results.summary, as_json=output == "json")
