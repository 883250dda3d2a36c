"""The closing table of a run, in groups: what it reached, its rounds, its clients, its bytes, what went wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import typer
from rich.table import Table

from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.terminal import console, shown

Rows = list[tuple[str, str]]
Summary = Mapping[str, Any]


def show(summary: Summary, *, as_json: bool) -> None:
    """The table, or one JSON object, on stdout."""
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        console(width=None if sys.stdout.isatty() else 100).print(closing_table(summary))


def closing_table(summary: Summary) -> Table:
    """What a run cost and what it reached, beside what the papers' conventions say of it."""
    table = Table(title=title(summary), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for group in groups(summary):
        for name, value in group:
            table.add_row(name, value)
        table.add_section()
    return table


def title(summary: Summary) -> str:
    """What was run, and why it ended."""
    return shown(f"{summary['scenario']}: {summary['reason']}")


def groups(summary: Summary) -> list[Rows]:
    """The rows that belong together; none is empty. All is fit to be shown, whoever wrote the summary."""
    parts = (_reached, _expected, _rounds, _clients, _bytes, _conventions, _wrong, _end)
    return [[(shown(name), shown(value)) for name, value in rows] for part in parts if (rows := part(summary))]


def _reached(summary: Summary) -> Rows:
    metrics = summary["metrics"].items()
    return [(name.replace("_", " "), _metric(name, value)) for name, value in metrics if name not in _TIMES]


def _expected(summary: Summary) -> Rows:
    rows = []
    for name, each in summary["expectations"].items():
        bounds = ((sign, each[bound]) for bound, sign in (("at_least", "≥"), ("at_most", "≤")))
        wanted = " and ".join(f"{sign} {_plain(bound)}" for sign, bound in bounds if bound is not None)
        found = "not a finite number" if each["found"] is None else _plain(each["found"])
        rows.append((f"{'✓' if each['is_met'] else '✗'} {name}", f"{found}, expected {wanted}"))
    return rows


def _rounds(summary: Summary) -> Rows:
    times = summary["round_times"]
    closed = f"; {times['at_deadline']:,} closed by their deadline" if times["at_deadline"] else ""
    rows = [
        ("rounds", f"{summary['rounds']:,}, {summary['version']:,} of them with a commit{closed}"),
        ("a round takes", f"{_seconds(times['median_s'])} (median), {_seconds(times['p95_s'])} (p95)"),
    ]
    if times["stragglers_s"]:
        share = f"{times['stragglers_share']:.1%} of the time"
        rows.append(("lost to stragglers", f"{_seconds(times['stragglers_s'])} in all, {share}"))
    return rows


def _clients(summary: Summary) -> Rows:
    took_part, lag, staleness = summary["participation"], summary["lag"], summary["staleness"]
    counted = took_part["counted"]
    rows = [
        ("clients heard", f"{took_part['heard']:,} of {took_part['clients']:,}"),
        (
            "reports counted",
            f"{counted['total']:,}; {counted['min']:,} to {counted['max']:,} per client, median {counted['median']:g}",
        ),
        ("lag when asked", f"median {lag['median']:g}, p95 {lag['p95']:,}, at most {lag['max']:,} commits"),
    ]
    if staleness["late"]:
        late = f"{staleness['late']:,} ({staleness['late_share']:.1%} of those counted)"
        rows.append(("late reports", f"{late}, up to {staleness['max']:,} commits old"))
    return rows


def _bytes(summary: Summary) -> Rows:
    traffic = summary["traffic"]
    up, down = traffic["up"], traffic["down"]
    return [
        ("bytes up", f"{readable(up['bytes'])} in all, {readable(up['bytes_per_client'])} per client"),
        ("bytes down", f"{readable(down['bytes'])} in all, {readable(down['bytes_per_client'])} per client"),
        ("of that catch-up", f"{readable(traffic['catchup_bytes'])} ({traffic['catchup_share']:.1%} of all bytes)"),
        *_catch_up(traffic),
        ("scalars", f"{up['scalars']:,} up, {down['scalars']:,} down, with {down['seeds']:,} seeds"),
    ]


def _catch_up(traffic: Summary) -> Rows:
    each = traffic["catchup_per_client"]
    if not traffic["catchup_bytes"]:
        return []
    spread = f"{readable(each['median'])} median, {readable(each['p95'])} at 95 %, {readable(each['max'])} at most"
    return [("… per client", f"{spread}; {traffic['replayed']:,} commits replayed")]


def _conventions(summary: Summary) -> Rows:
    """Ours is measured; theirs count scalars and no envelopes, for one client over all rounds."""
    found = summary["traffic"]["conventions"]
    papers = {
        "decomfl_12PK": ("… as DeComFL counts", "12·P·K every round"),
        "hiso_8PK": ("… as HiSo counts", "8·P·K every round"),
        "dense_8d": ("… sending the model", "8·d when taking part"),
    }
    return [
        ("measured, per client", f"{readable(summary['traffic']['bytes_per_client'])} over the run"),
        *((line, f"{readable(found[name])} ({what})") for name, (line, what) in papers.items() if name in found),
    ]


def _did(fault: dict[str, Any]) -> str:
    """What a fault did, how often, and for how long in all."""
    words = [word for word in fault if word != "fault" and not word.endswith("_s")]
    times = {word: f" by {fault[f'{word}_s']:,.1f} s in all" if f"{word}_s" in fault else "" for word in words}
    return ", ".join(f"{fault[word]:,} {word}{times[word]}" for word in words) or "never struck"


def _wrong(summary: Summary) -> Rows:
    fates = summary["traffic"]["fates"]
    lost = {name: count for name, count in fates.items() if name != "delivered" and count}
    rows = []
    if lost:
        rows.append(("messages lost", ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in lost.items())))
    rows += [(f"fault {number}: {each['fault']}", _did(each)) for number, each in enumerate(summary["faults"])]
    for reason, peers in summary["refusals"].items():
        rows.append((f"refused: {reason}", f"{sum(peers.values()):,} from {len(peers):,} peers"))
    return rows


def _end(summary: Summary) -> Rows:
    transport = summary["traffic"]["transport"]
    on_wire = transport["framing_bytes"] + transport["link_bytes"]
    clock, since = _CLOCKS[summary["clock"]], " since it was resumed" if summary.get("was_resumed") else ""
    return [
        *([("transport adds", f"{readable(on_wire)} of framing, greetings and heartbeats")] if on_wire else []),
        ("time", f"{summary['simulated_s']:,.1f} s {clock}, {summary['wall_s']:,.1f} s real{since}"),
        ("final digest", summary["digest"]),
        ("run folder", f"{summary['run']} (plots: report.html)"),
    ]


def _metric(name: str, value: float | None) -> str:
    if value is None:
        return "not a finite number"
    return f"{value:.2%}" if name.startswith("accuracy") else f"{value:.4g}"


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:,.2f} s" if value < 100 else f"{value:,.0f} s"


_CLOCKS = {"virtual": "simulated", "wall": "of the run's clock"}
_TIMES = ("round", "version", "time_s")
