"""`report.html`: a self-contained page with a run's closing table and plots, and what its analysis has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.server.stopping import rounds_done
from seedbus.scenarios.reporting.axes import MAX_POINTS, byte_unit, metric_axis, sample_indices
from seedbus.scenarios.reporting.figures import COLOURS, DARK, NO_MARKS, Line, Marks, bars, lines
from seedbus.scenarios.reporting.findings import Finding, kept
from seedbus.scenarios.reporting.ran import marks, rows
from seedbus.scenarios.reporting.report import grouped, groups, title
from seedbus.scenarios.reporting.results import Results, write
from seedbus.scenarios.reporting.round_table import RoundTable
from seedbus.scenarios.reporting.statistics import ArrivedReports, Table, histogram
from seedbus.scenarios.reporting.timeline import timeline
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.schema.scenario import Scenario

PAGE = "report.html"
_SHOWN = ("accuracy", "loss", "gap")
_SEGMENTS = 100  # of a plot over many rounds
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #3c4654; --paper: #fff; --rule: #d5dae1; --grid: #dfe3e9; }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 75rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin-bottom: .2rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; }
td { padding: .15rem .8rem .15rem 0; vertical-align: top; }
th { padding: .15rem .8rem .3rem 0; text-align: left; vertical-align: bottom; }
td:first-child { font-weight: 600; white-space: nowrap; }
tbody tr:first-child td { border-top: 1px solid var(--rule); padding-top: .4rem; }
thead th, thead + tbody td:not(:first-child) { overflow-wrap: normal; white-space: nowrap; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(30rem, 100%), 1fr)); gap: 1.5rem; }
.table { overflow-x: auto; } figure { margin: 0; min-width: 0; } figcaption { font-weight: 600; }
figure > svg { width: 100%; height: auto; fill: var(--soft); } .name { font-size: 13px; } .grid { stroke: var(--grid); }
.legend { margin: .2rem 0 0; font-size: 13px; } .legend span { margin-right: 1rem; display: inline-block; }
@media (max-width: 40rem) { body { margin: 1rem auto; } .name { font-size: 17px; }
  .tick { font-size: 16px; } .bars .tick { font-size: 13px; } }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #b6bfcb; --paper: #14181f; --rule: #39414d; --grid: #2b323c; }
  LOOKS
}
""".replace(
    "LOOKS",
    "\n  ".join(
        f'[stroke="{light}"] {{ stroke: {dark}; }} [fill="{light}"] {{ fill: {dark}; }}'
        for light, dark in zip(COLOURS, DARK, strict=True)
    ),
)


class Finished(NamedTuple):
    """What the page of a finished run is made of.

    Attributes:
        scenario: the run's.
        summary: the content of `results.json`.
        measured: the lines of `metrics.jsonl`, oldest first.
        history: all rounds.
        arrived: the reports that arrived.
        table: the columns of `statistics.clients_table`.
        findings: those of its analysis; none if it was not analysed.
    """

    scenario: Scenario
    summary: Mapping[str, Any]
    measured: Sequence[Mapping[str, Any]]
    history: RoundTable
    arrived: ArrivedReports
    table: Table
    findings: Sequence[Finding]

    @staticmethod
    def of(results: Results) -> Finished:
        """Read all from a run's folder.

        Raises:
            RunFolderError, JournalDamaged, LedgerDamaged: the run cannot be read.
        """
        scenario, found = scenario_of(results.folder), kept(results.folder)
        return Finished(
            scenario, results.summary, results.lines, results.history, results.arrived, results.table, found
        )


def page(run: Finished) -> str:
    """Return the page as HTML."""
    return document(title(run.summary), content(run))


def content(run: Finished) -> str:
    """Return what is on the page below its title."""
    summary, history = run.summary, run.history
    took_s = (history.closed_ns - history.opened_ns) / 1e9
    marked = marks(run.scenario, history)
    about_run = with_plots(
        grouped([rows(run.scenario, summary), *groups(summary)]),
        [
            *metric_plots(run.measured, marked),
            timeline(history, run.arrived, marked),
            round_plot(took_s, is_simulated=summary["clock"] == "virtual", marked=marked.moved(-0.5)),
            *_clients(history, run.table),
            _traffic(summary),
        ],
    )
    return about_run + "".join(map(_section, run.findings))


def _section(finding: Finding) -> str:
    """Return what an instrument has found, as HTML: its table, its sentences and its plots."""
    head = "".join(f"<th>{escape(each)}</th>" for each in finding.heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>\n" for row in finding.rows)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n" if finding.rows else ""
    notes = "".join(f"<p>{escape(note)}</p>\n" for note in finding.notes)
    title = f'<h2 id="{escape(finding.name, quote=True)}">{escape(finding.title)}</h2>\n'
    return title + with_plots(table + notes, [plot.figure for plot in finding.plots])


def document(title: str, content: str, script: str = "") -> str:
    """Return an HTML page.

    Args:
        title: plain text.
        content: HTML of what is below the title.
        script: JavaScript that runs once all is there; "": none.
    """
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n{content}"
        f"{f'<script>{script}</script>' if script else ''}</body>\n</html>\n"
    )


def with_plots(above: str, plots: Sequence[str]) -> str:
    """Return the content of a page: HTML of a table, and of each figure."""
    return f'<div class="table">{above}</div>\n<main>\n{"".join(plots)}</main>\n'


def write_page(results: Results) -> None:
    """Write `report.html` into the run's folder.

    Raises:
        OSError: the page cannot be written.
        RunFolderError, JournalDamaged, LedgerDamaged: the run cannot be read.
    """
    write(results.folder / PAGE, page(Finished.of(results)))


def metric_plots(measured: Sequence[Mapping[str, Any]], marked: Marks = NO_MARKS) -> list[str]:
    """Plot each metric over rounds, with marks there, and over bytes."""
    sample = [measured[index] for index in sample_indices(len(measured)).tolist()] if measured else []
    rounds = [rounds_done(line) for line in sample]
    sent = [line["bytes_up"] + line["bytes_down"] for line in sample]
    unit, unit_name = byte_unit(max(sent, default=0))
    plots = []
    for name in [each for each in _SHOWN if sample and each in sample[-1]]:
        drawn = [each for each in (name, f"{name}_ema") if each in sample[-1]]
        labels = {name: name, f"{name}_ema": "moving average"}
        y_name, scale = metric_axis(name)
        values = {each: [scale * _finite(line.get(each)) for line in sample] for each in drawn}
        axes = (
            ("rounds", "rounds", rounds),
            ("bytes", f"plans and reports sent, all clients ({unit_name})", [each / unit for each in sent]),
        )
        for over, x_name, x in axes:
            drawn_lines = [Line(labels[each], x, values[each]) for each in drawn]
            here = marked if over == "rounds" else NO_MARKS
            plots.append(lines(f"{name.capitalize()} over {over}", x_name, y_name, drawn_lines, marks=here))
    return plots


def round_plot(took_s: NDArray[np.float64], *, is_simulated: bool, marked: Marks = NO_MARKS) -> str:
    """Plot the duration of every round; with many rounds, the median and the maximum of each of 100 segments."""
    clock = "simulated" if is_simulated else "real"
    if took_s.size <= MAX_POINTS:
        drawn = [Line("each round", np.arange(took_s.size), took_s, is_dotted=True)]
    else:
        segments = np.array_split(took_s, _SEGMENTS)
        middle = [float(part.mean()) for part in np.array_split(np.arange(took_s.size), _SEGMENTS)]
        size = f"of {took_s.size / _SEGMENTS:.0f} rounds"
        drawn = [
            Line(f"median {size}", middle, [float(np.median(part)) for part in segments]),
            Line(f"longest {size}", middle, [float(part.max()) for part in segments]),
        ]
    return lines("How long rounds took", "round", f"seconds ({clock})", drawn, marks=marked)


def _clients(history: RoundTable, table: Table) -> list[str]:
    """Plot participation, lag and staleness."""
    ranks = sample_indices(history.clients)
    drawn = [Line(name, ranks + 1, np.sort(table[name])[::-1][ranks]) for name in ("asked", "answered", "counted")]
    plots = [
        lines("Participation per client", "clients, each line with its most active first", "rounds", drawn),
        bars("Lag", "commits that a client had missed when it was asked", "times", histogram(history.lags)),
    ]
    if history.staleness.size:
        ages = np.concatenate([np.zeros(int(history.is_counted.sum()), np.int64), history.staleness])
        plots.append(bars("Staleness", "commits made since a counted report started", "reports", histogram(ages)))
    return plots


def _traffic(summary: Mapping[str, Any]) -> str:
    """Plot the bytes of each kind of message; the missed commits in plans are a bar of their own."""
    kinds = {name: each["bytes"] for name, each in summary["traffic"]["by_kind"].items()}
    catch_up = summary["traffic"]["catchup_bytes"]
    if catch_up:
        kinds = {"catch-up": catch_up} | kinds | {"plan": kinds.get("plan", 0) - catch_up}
    unit, unit_name = byte_unit(max(kinds.values(), default=0))
    scaled = {name: size / unit for name, size in sorted(kinds.items(), key=lambda pair: -pair[1])}
    return bars("Bytes by kind of message", "kind of message", f"headers and payloads ({unit_name})", scaled)


def _finite(value: Any) -> float:
    return float("nan") if value is None else float(value)
