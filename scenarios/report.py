"""The closing table of a run."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from seedbus.scenarios.progress import readable


def closing_table(summary: dict[str, Any]) -> Table:
    """What a run cost and what it reached, beside what the papers' conventions say of it."""
    table = Table(title=f"{summary['scenario']}: {summary['reason']}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in _rows(summary):
        table.add_row(name, value)
    return table


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    traffic, metrics = summary["traffic"], summary["metrics"]
    up, down = traffic["up"], traffic["down"]
    rows = [(name.replace("_", " "), _number(name, value)) for name, value in metrics.items() if name not in _TIMES]
    rows += [
        ("rounds", f"{summary['rounds']:,}, {summary['version']:,} of them with a commit"),
        ("bytes up", f"{readable(up['bytes'])} in all, {readable(up['bytes_per_client'])} per client"),
        ("bytes down", f"{readable(down['bytes'])} in all, {readable(down['bytes_per_client'])} per client"),
        ("of that catch-up", f"{readable(traffic['catchup_bytes'])} ({traffic['catchup_share']:.1%} of all bytes)"),
        *_catch_up(traffic),
        ("scalars", f"{up['scalars']:,} up, {down['scalars']:,} down, with {down['seeds']:,} seeds"),
    ]
    rows += _conventions(traffic)
    lost = {name: count for name, count in traffic["fates"].items() if name != "delivered" and count}
    if lost:
        rows.append(("messages lost", ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in lost.items())))
    for reason, peers in summary["refusals"].items():
        rows.append((f"refused: {reason}", f"{sum(peers.values()):,} from {len(peers):,} peers"))
    on_wire = traffic["transport"]["framing_bytes"] + traffic["transport"]["link_bytes"]
    if on_wire:
        rows.append(("transport adds", f"{readable(on_wire)} of framing, greetings and heartbeats"))
    clock = _CLOCKS[summary.get("clock", "virtual")]
    rows += [
        (
            "time",
            f"{summary['simulated_s']:,.1f} s {clock}, {summary['wall_s']:,.1f} s real",
        ),
        ("final digest", summary["digest"]),
        ("run folder", summary["run"]),
    ]
    return rows


def _catch_up(traffic: dict[str, Any]) -> list[tuple[str, str]]:
    each = traffic["catchup_per_client"]
    if not traffic["catchup_bytes"]:
        return []
    spread = f"{readable(each['median'])} median, {readable(each['p95'])} at 95 %, {readable(each['max'])} at most"
    return [("… per client", f"{spread}; {traffic['replayed']:,} commits replayed")]


def _conventions(traffic: dict[str, Any]) -> list[tuple[str, str]]:
    """Ours is measured; theirs count scalars and no envelopes, for one client over all rounds."""
    found = traffic["conventions"]
    ours = traffic["up"]["bytes_per_client"] + traffic["down"]["bytes_per_client"]
    return [
        ("measured, per client", f"{readable(ours)} over the run"),
        ("… as DeComFL counts", f"{readable(found['decomfl_12PK'])} (12·P·K every round)"),
        ("… as HiSo counts", f"{readable(found['hiso_8PK'])} (8·P·K every round)"),
        ("… sending the model", f"{readable(found['dense_8d'])} (8·d when taking part)"),
    ]


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "not a finite number"
    return f"{value:.2%}" if name.startswith("accuracy") else f"{value:.4g}"


_CLOCKS = {"virtual": "simulated", "wall": "of the run's clock"}
_TIMES = ("round", "version", "time_s")
