"""The figures that a run's page begins with: what was reached, what a client sent, how it lagged, what faults cost."""

from __future__ import annotations

from seedbus.agents.journal.metrics import WHEN
from seedbus.bus.text import counted
from seedbus.scenarios.reporting.closing_table import Summary, is_between, metric_text
from seedbus.scenarios.reporting.looks import number_text
from seedbus.scenarios.reporting.progress import readable
from seedbus.scenarios.reporting.terminal import shown

KeyFigure = tuple[str, str, str]
"""Its name, its value and a note, all safe to print."""


def key_figures(summary: Summary) -> list[KeyFigure]:
    """Return the key figures of a finished run."""
    lag, traffic = summary["lag"], summary["traffic"]
    member = "node" if is_between(summary) else "client"
    sides = [f"{readable(traffic[way]['bytes_per_client'])} {way}" for way in ("up", "down")]
    return [
        _reached(summary),
        (f"bytes per {member}", readable(traffic["bytes_per_client"]), " and ".join(sides[: 1 + (member == "client")])),
        ("lag", f"{number_text(lag['median'])} commits", f"median; p95 {lag['p95']:,}, at most {lag['max']:,}"),
        ("what faults cost", *_cost(summary)),
    ]


def _reached(summary: Summary) -> KeyFigure:
    """Return the accuracy at the end, or the loss, or another metric where there is none."""
    metrics = summary["metrics"]
    name = next((each for each in ("accuracy", "loss", *metrics) if each in metrics and each not in WHEN), None)
    if name is None:
        return "accuracy", "–", "nothing was measured"
    average = f"; moving average {metric_text(name, metrics[f'{name}_ema'])}" if f"{name}_ema" in metrics else ""
    after = f"after {counted(summary['rounds'], 'round')}{average}"
    return shown(name.replace("_", " ")), metric_text(name, metrics[name]), after


def _cost(summary: Summary) -> tuple[str, str]:
    """Return the rounds without a commit, and the reports and the time that were lost; they may have other reasons."""
    times, part = summary["round_times"], summary["participation"]
    without = f"{times['without_commit']:,} of {counted(summary['rounds'], 'round')}"
    if not summary["faults"]:
        return "no faults", f"{without} made no commit"
    asked, in_vain = part["asked"]["total"], times.get("in_vain_share")
    told = [
        "made no commit",
        *([] if is_between(summary) else [f"{asked - part['counted']['total']:,} of {asked:,} reports do not count"]),
        *([f"{in_vain:.0%} of the time was waited in vain"] if in_vain else []),
    ]
    return without, "; ".join(told)
