"""`report.html`: a self-contained page with a run's closing table, its plots, tables, and what its analysis found."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.journal.metrics import WHEN
from seedbus.agents.server.stopping import all_rounds_done
from seedbus.bus.ledger import Columns
from seedbus.scenarios.reporting import client_groups
from seedbus.scenarios.reporting.axes import MAX_POINTS, byte_unit, metric_axis, sample_indices
from seedbus.scenarios.reporting.client_names import named
from seedbus.scenarios.reporting.closing_table import grouped, groups, title
from seedbus.scenarios.reporting.document import document, key_row, section, table, with_plots
from seedbus.scenarios.reporting.fault_effects import HEADS, NOTE, effects, marks
from seedbus.scenarios.reporting.figures import bars, layers, lines
from seedbus.scenarios.reporting.findings import Finding, kept
from seedbus.scenarios.reporting.key_figures import key_figures
from seedbus.scenarios.reporting.looks import NO_MARKS, Line, Marks
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.results import Results, write
from seedbus.scenarios.reporting.round_table import RoundTable
from seedbus.scenarios.reporting.run_facts import rows
from seedbus.scenarios.reporting.statistics import NS, ArrivedReports, Table, histogram
from seedbus.scenarios.reporting.terminal import shown
from seedbus.scenarios.reporting.timeline import absences, fates, timeline
from seedbus.scenarios.reporting.waiting_time import PARTS, Waits
from seedbus.scenarios.run_folder import scenario_of
from seedbus.scenarios.schema.scenario import Scenario

PAGE = "report.html"
_FIRST = ("accuracy", "loss")  # of the metrics, where there are both
_SEGMENTS = 100  # of a plot over many rounds
_LISTED = 10  # clients in a table
_PATH = (
    "Along the way of each round's last report in time; the legend has the sums. Before the plan: waits for clients at "
    "work, snapshots, keys of secure sums, plans that were lost. After the report: waits for late reports and those "
    "that never came, unmasking."
)
_LAG = {
    True: "commits that a client had missed when it was asked",
    False: "commits that a node lacked when the round closed",
}
"""What lag is, by whether the run has a server."""
_HESSIAN = {
    "H over rounds": ("mean of H", {"hessian_mean": "mean"}),
    "Spread of H over rounds": (
        "standard deviation / mean",
        {"hessian_cv": "H", "hessian_cv_null": "an H that has learned nothing"},
    ),
}


class Finished(NamedTuple):
    """What the page of a finished run is made of.

    Attributes:
        scenario: the run's.
        summary: the content of `results.json`.
        measured: the lines of `metrics.jsonl`, oldest first.
        history: all rounds.
        arrived: the reports that arrived.
        table: the columns of `statistics.clients_table`.
        waits: where the time of rounds went.
        findings: those of its analysis; none if it was not analysed.
    """

    scenario: Scenario
    summary: Mapping[str, Any]
    measured: Sequence[Mapping[str, Any]]
    history: RoundTable
    arrived: ArrivedReports
    table: Table
    waits: Waits
    findings: Sequence[Finding]

    @staticmethod
    def of(results: Results) -> Finished:
        """Read all from a run's folder.

        Raises:
            RunFolderError, JournalDamaged, LedgerDamaged: the run cannot be read.
        """
        scenario = scenario_of(results.folder)  # first: what is wrong with it is said of it, and not of rounds
        found = results.lines, results.columns, results.history, results.arrived, results.table
        return Finished.found(scenario, results.summary, *found, kept(results.folder))

    @staticmethod
    def found(
        scenario: Scenario,
        summary: Mapping[str, Any],
        measured: Sequence[Mapping[str, Any]],
        columns: Columns,
        history: RoundTable,
        arrived: ArrivedReports,
        table: Table,
        findings: Sequence[Finding],
    ) -> Finished:
        """Add where the time of rounds went, of the ledger's columns."""
        waits = Waits.of(columns, history, arrived, is_asynchronous=scenario.participation.is_asynchronous)
        return Finished(scenario, summary, measured, history, arrived, table, waits, findings)


def page(run: Finished) -> bytes:
    """Return the page as HTML in UTF-8."""
    return document(title(run.summary), content(run))


def content(run: Finished) -> str:
    """Return what is on the page below its title."""
    summary, history, has_server = run.summary, run.history, run.scenario.has_server
    names = summary.get("client_names", ())
    took_s = (history.closed_ns - history.opened_ns) / NS
    marked = marks(run.scenario, history)
    by_number = marked.moved(-0.5)
    what = fates(history, run.arrived, absences(run.scenario, history))
    failed = [row for group in groups(summary) for row in group if row[0].startswith("✗")]
    above = with_plots(
        key_row(key_figures(summary)) + (grouped([failed]) if failed else ""),
        [
            *metric_plots(run.measured, marked),
            timeline(history, what, by_number, names),
            round_plot(took_s, is_simulated=summary["clock"] == "virtual", marked=by_number),
            *_parts(run.waits, by_number),
            *_clients(history, run.table, has_server=has_server),
            _traffic(summary),
        ],
    )
    of_groups = list(client_groups.rows(summary))
    return above + "".join(
        [
            grouped([*groups(summary), rows(run.scenario, summary)]),
            section("Groups of clients", client_groups.heads(has_server=has_server), of_groups, client_groups.NOTE),
            section("Faults and their effect", HEADS, effects(run.scenario, summary, history), NOTE),
            section("The clients that rounds waited for longest", *_waited(run.waits, names)) if has_server else "",
            section("The clients that lagged most", *_lagging(run.table, names, has_server=has_server)),
            f"<details><summary>The scenario with all its defaults</summary>\n<pre>"
            f"{escape(str(run.scenario))}</pre></details>\n",
            *map(_found, run.findings),
        ]
    )


def _found(finding: Finding) -> str:
    """Return what an instrument has found, as HTML: its table, its sentences and its plots."""
    title = f'<h2 id="{escape(finding.name, quote=True)}">{escape(finding.title)}</h2>\n'
    notes = "".join(f"<p>{escape(note)}</p>\n" for note in finding.notes)
    above = (table(finding.heads, finding.rows) if finding.rows else "") + notes
    return title + with_plots(above, [plot.figure for plot in finding.plots])


def write_page(results: Results) -> None:
    """Write `report.html` into the run's folder.

    Raises:
        OSError: the page cannot be written.
        RunFolderError, JournalDamaged, LedgerDamaged: the run cannot be read.
    """
    write(results.folder / PAGE, page(Finished.of(results)))


def metric_plots(measured: Sequence[Mapping[str, Any]], marked: Marks = NO_MARKS) -> list[str]:
    """Plot each metric over rounds, with marks there, and over bytes."""
    chosen = sample_indices(len(measured)).tolist() if measured else []
    sample, done = [measured[index] for index in chosen], all_rounds_done(measured)
    rounds = [done[index] for index in chosen]
    sent = [line["bytes_up"] + line["bytes_down"] for line in sample]
    unit, unit_name = byte_unit(max(sent, default=0))
    plots = []
    for name in _metrics(sample[-1] if sample else ()):
        drawn = [each for each in (name, f"{name}_ema") if each in sample[-1]]
        title = shown(name.replace("_", " "))
        labels = {name: title, f"{name}_ema": "moving average"}
        y_name, scale = metric_axis(title)
        values = {each: [scale * _finite(line.get(each)) for line in sample] for each in drawn}
        axes = (
            ("rounds", "rounds", rounds),
            ("bytes", f"plans and reports sent, all clients ({unit_name})", [each / unit for each in sent]),
        )
        for over, x_name, x in axes:
            drawn_lines = [Line(labels[each], x, values[each]) for each in drawn]
            here = marked if over == "rounds" else NO_MARKS
            plots.append(lines(f"{title[:1].upper()}{title[1:]} over {over}", x_name, y_name, drawn_lines, marks=here))
    for heading, (y_name, names) in _HESSIAN.items():
        drawn_lines = [
            Line(label, rounds, [_finite(line.get(name)) for line in sample])
            for name, label in names.items()
            if sample and name in sample[-1]
        ]
        if drawn_lines:
            plots.append(lines(heading, "rounds", y_name, drawn_lines, marks=marked))
    return plots


def _metrics(names: Collection[str]) -> list[str]:
    """Return the metrics among the names of an evaluation's values, but for those with plots of their own."""
    others = {*WHEN, *(f"{name}_ema" for name in names), *(name for _, drawn in _HESSIAN.values() for name in drawn)}
    return sorted((name for name in names if name not in others), key=lambda name: (*_FIRST, name).index(name))


def round_plot(took_s: NDArray[np.float64], *, is_simulated: bool, first: int = 0, marked: Marks = NO_MARKS) -> str:
    """Plot the duration of every round from `first` on; of many, the median and the maximum of each of 100 segments."""
    clock, rounds = "simulated" if is_simulated else "real", first + np.arange(took_s.size)
    if took_s.size <= MAX_POINTS:
        drawn = [Line("each round", rounds, took_s, is_dotted=True)]
    else:
        segments = np.array_split(took_s, _SEGMENTS)
        middle = [float(part.mean()) for part in np.array_split(rounds, _SEGMENTS)]
        size = f"of {took_s.size / _SEGMENTS:.0f} rounds"
        drawn = [
            Line(f"median {size}", middle, [float(np.median(part)) for part in segments]),
            Line(f"longest {size}", middle, [float(part.max()) for part in segments]),
        ]
    return lines("How long rounds took", "round", f"seconds ({clock})", drawn, marks=marked)


def _parts(waits: Waits, marked: Marks) -> Iterator[str]:
    """Plot what the rounds' time went into; with many rounds, the mean of each of 100 segments.

    Nothing is plotted of a run in which no report came in time, or that has no server.
    """
    rounds = len(waits.parts_ns)
    if not waits.parts_ns[:, :-1].any():
        return
    count = rounds if rounds <= 2 * _SEGMENTS else _SEGMENTS
    starts = np.linspace(0, rounds, count + 1).astype(np.int64)[:-1]
    sizes = np.diff(np.append(starts, rounds))
    seconds = np.add.reduceat(waits.parts_ns, starts, axis=0) / sizes[:, None] / NS
    total = waits.total_ns
    heights = {f"{name}, {total[name] / NS:,.3g} s": seconds[:, at] for at, name in enumerate(PARTS) if total[name]}
    y_name = "seconds" if count == rounds else f"seconds, mean of {rounds / count:.0f} rounds"
    middles = np.linspace(0, rounds, 2 * count + 1)[1::2] - 0.5
    yield layers("Where the time went", "round", y_name, middles, heights, marked, _PATH)


def _waited(waits: Waits, names: Sequence[str]) -> tuple[Sequence[str], Sequence[Sequence[str]], str]:
    """Return the table of the clients that rounds waited for: headings, rows and what is said of it."""
    heads = ("client", "rounds it ended", "waited for it alone", "rounds that missed it", "waited in vain")
    found = [
        [named(client, names), f"{waits.ended[client]:,}", f"{waits.alone_ns[client] / NS:,.3g} s",
         f"{waits.missed[client]:,}", f"{waits.missed_ns[client] / NS:,.3g} s"]
        for client in waits.most(_LISTED).tolist()
    ]  # fmt: skip
    return heads, found, "Several clients may be waited for at the same time, so the last column has no sum."


def _lagging(
    table: Table, names: Sequence[str], *, has_server: bool
) -> tuple[Sequence[str], Sequence[Sequence[str]], str]:
    """Return the table of the clients that lagged most: headings, rows and what is said of it.

    Nodes without a server begin steps, get the commits that they lack in floods, and report to nobody.
    """
    heads = ["client", "lag, at most", "lag, mean", "asked" if has_server else "steps begun", "catch-up that arrived"]
    order = np.lexsort((-table["lag_mean"], -table["lag_max"]))[:_LISTED]
    clients = order[table["lag_max"][order] > 0].tolist()
    found = [
        [named(client, names), f"{table['lag_max'][client]:,}", f"{table['lag_mean'][client]:.3g}",
         f"{table['asked'][client]:,}", readable(int(table["catchup_bytes"][client]))]
        for client in clients
    ]  # fmt: skip
    if has_server:
        heads += ["commits replayed", "last heard"]
        for client, row in zip(clients, found, strict=True):
            heard_s = table["last_heard_s"][client]
            replayed = table["replayed"][client]
            row += [
                "not known" if replayed < 0 else f"{replayed:,}",
                "never" if np.isnan(heard_s) else f"{heard_s:,.1f} s",
            ]
    return heads, found, f"Lag is counted in {_LAG[has_server]}."


def _clients(history: RoundTable, table: Table, *, has_server: bool) -> list[str]:
    """Plot participation, lag, what it cost to catch up, and staleness; without a server nobody answers one."""
    drawn = {name: table[name] for name in ("asked", "answered", "counted") if has_server or name != "answered"}
    lags = {name: np.maximum(table[column], 0) for name, column in (("at most", "lag_max"), ("mean", "lag_mean"))}
    plots = [
        _ranked("Participation per client", "most active", "rounds", drawn),
        _ranked("Lag per client", "most lagging", "commits", lags),
        bars("Lag", _LAG[has_server], "times", histogram(history.lags)),
    ]
    if table["catchup_bytes"].any():
        unit, name = byte_unit(float(table["catchup_bytes"].max()))
        sizes = {"catch-up": table["catchup_bytes"] / unit}
        plots.append(
            _ranked("Catch-up per client", "most expensive", f"bytes that arrived and brought commits ({name})", sizes)
        )
    if history.staleness.size:
        ages = np.concatenate([np.zeros(int(history.is_counted.sum()), np.int64), history.staleness])
        plots.append(bars("Staleness", "commits made since a counted report started", "reports", histogram(ages)))
    return plots


def _ranked(title: str, first: str, y_name: str, values: Mapping[str, NDArray[Any]]) -> str:
    """Plot quantities of all clients [N], each in descending order; `first`: what its first clients are."""
    ranks = sample_indices(len(next(iter(values.values()))))
    drawn = [Line(name, ranks + 1, np.sort(each)[::-1][ranks]) for name, each in values.items()]
    return lines(title, f"clients, each line with its {first} first", y_name, drawn)


def _traffic(summary: Mapping[str, Any]) -> str:
    """Plot the bytes of each kind of message; what in them brings missed commits is a bar of its own."""
    by_kind, catch_up = summary["traffic"]["by_kind"], summary["traffic"]["catchup_bytes"]
    kinds = {name: each["bytes"] - each["catchup_bytes"] for name, each in by_kind.items()}
    if catch_up:
        kinds["catch-up"] = catch_up
    unit, unit_name = byte_unit(max(kinds.values(), default=0))
    scaled = {name: size / unit for name, size in sorted(kinds.items(), key=lambda pair: -pair[1])}
    return bars("Bytes by kind of message", "kind of message", f"headers and payloads ({unit_name})", scaled)


def _finite(value: Any) -> float:
    return float("nan") if value is None else float(value)
