"""The closing table of a run, in groups: metrics, expectations, rounds, clients, bytes, faults and refusals."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from seedbus.agents.extensions import SEEDED_NOISE
from seedbus.bus.text import counted
from seedbus.scenarios.extras import missing
from seedbus.scenarios.reporting.axes import is_share
from seedbus.scenarios.reporting.client_names import with_names
from seedbus.scenarios.reporting.document import scrolling
from seedbus.scenarios.reporting.looks import number_text
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.results_digest import WARNING
from seedbus.scenarios.reporting.terminal import console, shown, titled

Rows = list[tuple[str, str]]
Summary = Mapping[str, Any]


def show(summary: Summary, *, as_json: bool) -> None:
    """Print the closing table, or the summary as one JSON object, to stdout."""
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        _print(summary, console(width=_width()))


def as_text(summary: Summary) -> str:
    """Return what `show` prints, as wide as it would be there, without colours."""
    file = io.StringIO()
    # Without `force_jupyter` a notebook would be shown the table now, and the text be empty.
    _print(summary, console(file=file, width=_width(), color_system=None, force_jupyter=False))
    return file.getvalue().rstrip("\n")


def _print(summary: Summary, out: Console) -> None:
    out.print(titled(title(summary), closing_table(summary)))


def _width() -> int | None:
    return None if sys.stdout.isatty() else 100


def closing_table(summary: Summary) -> Table:
    """Return the table of what a run cost and reached, with the byte counts by the papers' conventions."""
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for group in groups(summary):
        for name, value in group:
            table.add_row(name, value)
        table.add_section()
    return table


def grouped(rows_by_group: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Return groups of rows, each a name and a value in plain text, as a table."""
    parts = []
    for group in rows_by_group:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>\n" for name, value in group)
        parts.append(f"<tbody>\n{rows}</tbody>\n")
    return scrolling(f"<table>\n{''.join(parts)}</table>")


def title(summary: Summary) -> str:
    """Return the scenario's name and the reason for which the run ended."""
    return shown(f"{summary['scenario']}: {summary['reason']}")


def groups(summary: Summary) -> list[Rows]:
    """Return the table's groups of rows; no group is empty. All texts are safe to print, even of a foreign summary."""
    parts = (
        _warning, _metrics, _shortcomings, _expectations, _rounds, _clients,
        _bytes, _conventions, _groups, _failures, _end,
    )  # fmt: skip
    return [[(shown(name), shown(value)) for name, value in rows] for part in parts if (rows := part(summary))]


def _warning(summary: Summary) -> Rows:
    return [("✗ warning", summary[WARNING])] if WARNING in summary else []


def _metrics(summary: Summary) -> Rows:
    metrics = summary["metrics"].items()
    mark = {"epsilon": f" ({SEEDED_NOISE})"} if summary.get("noise") == "seeded" else {}
    return [
        (name.replace("_", " "), metric_text(name, value) + mark.get(name, ""))
        for name, value in metrics
        if name not in _TIMES
    ]


def _shortcomings(summary: Summary) -> Rows:
    return [("✗ training", sentence) for sentence in summary.get("shortcomings", ())]


def _expectations(summary: Summary) -> Rows:
    return [
        (f"{'✓' if each['is_met'] else '✗'} {name}", found_and_expected(each))
        for name, each in summary["expectations"].items()
    ]


def found_and_expected(expectation: Mapping[str, Any]) -> str:
    """Return the value that was found for an expectation, and its bounds, in words."""
    bounds = ((sign, expectation[bound]) for bound, sign in (("at_least", "≥"), ("at_most", "≤")))
    accepted = " and ".join(f"{sign} {_plain(bound)}" for sign, bound in bounds if bound is not None)
    found = "not a finite number" if expectation["found"] is None else _plain(expectation["found"])
    return f"{found}, expected {accepted}"


def _rounds(summary: Summary) -> Rows:
    times = summary["round_times"]
    commits = f"{summary['version']:,} {'commits of nodes' if is_between(summary) else 'of them with a commit'}"
    closed = f"; {times['at_deadline']:,} closed by their deadline" if times["at_deadline"] else ""
    rows = [
        ("rounds", f"{summary['rounds']:,}, {commits}{closed}"),
        ("a round takes", f"{_seconds(times['median_s'])} (median), {_seconds(times['p95_s'])} (p95)"),
    ]
    for name, label in (("stragglers", "lost to stragglers"), ("in_vain", "waited in vain")):
        if times.get(f"{name}_s"):  # of an earlier version's run it is not known how much was in vain
            share = f"{times[f'{name}_share']:.1%} of the time"
            rows.append((label, f"{_seconds(times[f'{name}_s'])} in all, {share}"))
    return rows


def _clients(summary: Summary) -> Rows:
    participation, lag, staleness = summary["participation"], summary["lag"], summary["staleness"]
    lacked = f"median {number_text(lag['median'])}, p95 {lag['p95']:,}, at most {counted(lag['max'], 'commit')}"
    heard = participation["counted"]
    middle = number_text(heard["median"])
    commits = f"{heard['total']:,}; {heard['min']:,} to {heard['max']:,} per {_member(summary)}, median {middle}"
    if heard.get("none"):
        commits += f"; none from {counted(heard['none'], _member(summary))}"
    if is_between(summary):
        return [("rounds with commits", commits), ("lacking when it closed", lacked)]
    rows = [
        ("clients heard", f"{participation['heard']:,} of {participation['clients']:,}"),
        ("reports counted", commits),
        ("lag when asked", lacked),
    ]
    if staleness["late"]:
        late = f"{staleness['late']:,} ({staleness['late_share']:.1%} of those counted)"
        rows.append(("late reports", f"{late}, up to {counted(staleness['max'], 'commit')} old"))
    return rows


def is_between(summary: Summary) -> bool:
    """Whether nodes sent messages to each other, without a server."""
    return "links" in summary["traffic"]


def _member(summary: Summary) -> str:
    return "node" if is_between(summary) else "client"


def _bytes(summary: Summary) -> Rows:
    traffic = summary["traffic"]
    up, down = traffic["up"], traffic["down"]
    of_all = f"{readable(traffic['catchup_bytes'])} ({traffic['catchup_share']:.1%} of all bytes)"
    if is_between(summary):
        links = traffic["links"]
        spread = f"{readable(links.get('min', 0))} to {readable(links.get('max', 0))} each"
        return [
            ("bytes sent", f"{readable(up['bytes'])} in all, {readable(up['bytes_per_client'])} per node"),
            ("over links", f"{links['count']:,}, each direction one; {spread}"),
            ("of that catch-up", of_all),
            ("scalars sent", f"{up['scalars']:,}, with {up['seeds']:,} numbers of steps"),
        ]
    return [
        ("bytes up", f"{readable(up['bytes'])} in all, {readable(up['bytes_per_client'])} per client"),
        *_unused(summary),
        ("bytes down", f"{readable(down['bytes'])} in all, {readable(down['bytes_per_client'])} per client"),
        *_catch_up(traffic),
        ("scalars", f"{up['scalars']:,} up, {down['scalars']:,} down, with {down['seeds']:,} seeds"),
    ]


def _unused(summary: Summary) -> Rows:
    """The bytes of reports that arrived and are in no commit."""
    unused = summary["participation"].get("unused")
    if not unused or not unused["reports"]:
        return []
    late = sum(summary["refusals"].get("late", {}).values())
    which = "all" if late == unused["reports"] else f"{late:,}"
    of_these = f", {which} of them too late" if 0 < late <= unused["reports"] else ""
    return [("of that in no commit", f"{readable(unused['bytes'])}: {counted(unused['reports'], 'report')}{of_these}")]


def _catch_up(traffic: Summary) -> Rows:
    """The bytes of commits, the newest too, which are no catch-up, and of snapshots; none where plans are models."""
    if not traffic["catchup_bytes"]:
        return []
    total = traffic["up"]["bytes"] + traffic["down"]["bytes"]
    snapshots = traffic["by_kind"].get("snapshot", {"catchup_bytes": 0})
    sizes = {"commits": traffic["catchup_bytes"] - snapshots["catchup_bytes"], "snapshots": snapshots["catchup_bytes"]}
    rows = [
        (f"of that {what}", f"{readable(size)} ({size / total:.1%} of all bytes)")
        for what, size in sizes.items()
        if size
    ]
    each = traffic["catchup_per_client"]
    spread = f"{readable(each['median'])} median, {readable(each['p95'])} at 95%, {readable(each['max'])} at most"
    replayed = "" if traffic["replayed"] is None else f"; {counted(traffic['replayed'], 'commit')} replayed"
    again = f", {repeated:,} sent again" if replayed and (repeated := traffic.get("repeated", 0)) else ""
    return [*rows, ("… sent per client", spread + replayed + again)]


def _conventions(summary: Summary) -> Rows:
    """The measured bytes for one client over all rounds, and the papers' counts, which have no headers."""
    conventions = summary["traffic"]["conventions"]
    papers = {
        "decomfl_12PK": ("… as DeComFL counts", "12·P·K every round"),
        "hiso_8PK": ("… as HiSo counts", "8·P·K every round"),
        "dense_8d": ("… sending the model", "8·d when taking part"),
    }
    return [
        (f"measured, per {_member(summary)}", f"{readable(summary['traffic']['bytes_per_client'])} over the run"),
        *(
            (label, f"{readable(conventions[name])} ({formula})")
            for name, (label, formula) in papers.items()
            if name in conventions
        ),
    ]


def _groups(summary: Summary) -> Rows:
    """A row for each group of clients, in which figures of the others follow in brackets."""
    found = [(name, _against(each, each["others"], summary)) for name, each in summary.get("groups", {}).items()]
    about = "median counts and mean bytes; in brackets those of the others"
    return [(f"groups of {_member(summary)}s", about), *found] if found else []


def _against(group: Summary, others: Summary, summary: Summary) -> str:
    def both(name: str, written: Callable[[Any], str]) -> str:
        return f"{written(group[name])} ({written(others[name])})"

    reports = "rounds with commits" if is_between(summary) else "reports"
    return (
        f"{both('clients', number_text)} {_member(summary)}s: {both('reports_median', number_text)} {reports}, "
        f"{group['reports_share']:.1%} of all; {both('bytes_up_per_client', readable)} up, "
        f"{both('bytes_down_per_client', readable)} down"
    )


def fault_counts(fault: dict[str, Any]) -> str:
    """Return the effects of a fault, with how often and for how many seconds in all each occurred."""
    words = [word for word in fault if word != "fault" and not word.endswith("_s")]
    times = {word: f" by {fault[f'{word}_s']:,.1f} s in all" if f"{word}_s" in fault else "" for word in words}
    return ", ".join(f"{fault[word]:,} {word}{times[word]}" for word in words) or "never struck"


def _failures(summary: Summary) -> Rows:
    fates = summary["traffic"]["fates"]
    lost = {name: count for name, count in fates.items() if name != "delivered" and count}
    rows = []
    if lost:
        rows.append(("messages lost", ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in lost.items())))
    rows += [(f"fault {number}: {each['fault']}", fault_counts(each)) for number, each in enumerate(summary["faults"])]
    if false := summary.get("liars"):
        commits = counted(summary["version"], "commit")
        found = f"in {false['commits']:,} of {commits}, {false['median']:g} (median) and {false['most']:,} at most"
        rows.append(("false reports", f"{found}; in {false['beyond']:,} more than the rule withstands"))
    for reason, peers in summary["refusals"].items():
        detail = summary.get("refusal_details", {}).get(reason)
        first = f"; the first: {with_names(detail, summary.get('client_names', ()))}" if detail else ""
        whom = "1 peer" if len(peers) == 1 else f"{len(peers):,} peers"
        rows.append((f"refused: {reason}", f"{sum(peers.values()):,} from {whom}{first}"))
    return rows


def _end(summary: Summary) -> Rows:
    transport = summary["traffic"]["transport"]
    on_wire = transport["framing_bytes"] + transport["link_bytes"]
    clock, since = _CLOCKS[summary["clock"]], " since it was resumed" if summary.get("was_resumed") else ""
    return [
        *_wire(summary["traffic"].get("wire")),
        *([("transport adds", f"{readable(on_wire)} of framing, greetings and heartbeats")] if on_wire else []),
        ("time", f"{summary['simulated_s']:,.1f} s {clock}, {summary['wall_s']:,.1f} s real{since}"),
        ("final digest", summary["digest"]),
        ("run folder", f"{summary['run']} ({_page()})"),
    ]


def _wire(found: Summary | None) -> Rows:
    """What a wire would carry, by the model of `bus.wire`; `bytes up` and `bytes down` are payload."""
    names = {"framed": "framed, predicted", "bytes": "on a wire, predicted"}
    return [
        (label, f"{readable(found['up'][name])} up, {readable(found['down'][name])} down")
        for name, label in names.items()
        if found
    ]


def _page() -> str:
    lacks = missing("plotly")
    return f"no report.html: {lacks}" if lacks else "plots: report.html"


def metric_text(name: str, value: float | None) -> str:
    if value is None:
        return "not a finite number"
    return f"{value:.2%}" if is_share(name) else f"{value:.4g}"


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:,.2f} s" if value < 100 else f"{value:,.0f} s"


_CLOCKS = {"virtual": "simulated", "wall": "of the run's clock"}
_TIMES = ("round", "version", "time_s")
