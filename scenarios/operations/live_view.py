"""What `seedbus runs RUN` shows of a run: one frame, drawn again while the run goes on.

It is read from the run's folder, so that it needs no port and works for runs that have ended.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from seedbus.bus.clock import calendar_seconds, wall_seconds
from seedbus.bus.errors import LedgerDamaged
from seedbus.bus.ledger import MESSAGES
from seedbus.bus.text import counted
from seedbus.scenarios.operations.exposition import lags
from seedbus.scenarios.operations.log_follower import LogFollower
from seedbus.scenarios.operations.run_state import RunState, State, state_of
from seedbus.scenarios.operations.slowest_clients import slowest_clients
from seedbus.scenarios.reporting.progress import headline, readable
from seedbus.scenarios.reporting.remaining_time import roughly
from seedbus.scenarios.reporting.terminal import console, shown
from seedbus.scenarios.run_folder import resuming

EVERY_S = 1.0
MAX_SHARE = 0.2  # of the time that reading may take: a large run is drawn less often
MAX_ROWS = 6
WIDTH = 100  # where there is no terminal


def show_once(folder: Path) -> None:
    """Print one frame. Raises `RunFolderError` if there is no run in the folder."""
    log = LogFollower(folder)
    run = state_of(folder, log)
    console(width=None if sys.stdout.isatty() else WIDTH).print(frame(run, log))


def show_live(folder: Path) -> None:
    """Draw frames until the run has ended, or Ctrl-C. Raises `RunFolderError` if there is no run in the folder."""
    log = LogFollower(folder)
    run = state_of(folder, log)
    with Live(frame(run, log), console=console(), auto_refresh=False) as live:
        while run.state is State.RUNNING:
            began_s = wall_seconds()
            run = state_of(folder, log)
            live.update(frame(run, log), refresh=True)
            took_s = wall_seconds() - began_s
            threading.Event().wait(max(EVERY_S, took_s / MAX_SHARE))


def frame(run: RunState, log: LogFollower) -> Group:
    """Return what a frame shows of a run. All texts are safe to print."""
    process = f", process {run.process.pid}" if run.process is not None else ""
    what = f"{run.scenario} ({run.algorithm}), " if run.scenario else ""
    title = f"{run.folder}: {what}{run.state}{process}"
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column()
    groups: tuple[Callable[[RunState, LogFollower], list[tuple[str, str]]], ...] = (_progress, _clients, _slowest, _end)
    for group in groups:
        for name, value in group(run, log):
            table.add_row(shown(name), shown(value))
        table.add_section()
    return Group(Text(shown(title), style="bold"), table)


def measured(run: RunState) -> str:
    """Return the last measurement's accuracy or loss."""
    numbers = {name: value for name, value in run.line.items() if isinstance(value, int | float)}
    return headline(numbers)


def _progress(run: RunState, log: LogFollower) -> list[tuple[str, str]]:
    of = f" of {run.expected_rounds:,}" if run.expected_rounds else ""
    rounds, sent = f"{run.rounds:,}{of}, version {run.version:,}", readable(run.bytes)
    if run.state is State.RUNNING:
        rounds_rate, bytes_rate = log.rates
        ago = f"; the last one {roughly(calendar_seconds() - log.last_round_s)} ago" if log.last_round_s else ""
        rounds += f"; {rounds_rate:.1f} rounds/s{ago}"
        sent += f"; {readable(bytes_rate)}/s"
    rows = [("rounds", rounds), ("bytes", sent)]
    return [("metric", found), *rows] if (found := measured(run)) else rows


def _clients(run: RunState, log: LogFollower) -> list[tuple[str, str]]:
    if run.glance is None:
        return []
    members = [position.version for position in run.glance.positions.values() if position.is_member]
    away = len(run.glance.positions) - len(members)
    rows = []
    if run.glance.positions:
        rows.append(("clients", f"{len(members):,} in the run, {away:,} away, as of the last closed round"))
    spread = lags(Counter(members), run.glance.version)
    if spread:
        rows.append(("lag", ", ".join(f"{name} {lag:,}" for name, lag in spread.items()) + " commits"))
    if run.state is State.RUNNING:
        if log.missing:
            rows.append(("missing", f"{counted(log.missing, 'client')} without a process"))
        hosts = sorted(log.hosts.items(), reverse=True)
        rows += [(f"process {-2 - host}", clients) for host, clients in hosts[:MAX_ROWS]]
        if len(hosts) > MAX_ROWS:
            rows.append(("", f"and {len(hosts) - MAX_ROWS:,} more processes"))
    return rows


def _slowest(run: RunState, log: LogFollower) -> list[tuple[str, str]]:
    if run.state is State.DAMAGED:
        return []
    try:
        found = slowest_clients(run.folder / MESSAGES, run.glance, MAX_ROWS)
    except LedgerDamaged as error:
        return [("slowest", str(error))]
    answers = [
        f"client {each.client}: {each.seconds:.2f} s in round {each.round}"
        + (f", {counted(each.lag, 'commit')} behind" if each.lag >= 0 else "")
        for each in found
    ]
    return [("slowest" if not number else "", answer) for number, answer in enumerate(answers)]


def _end(run: RunState, log: LogFollower) -> list[tuple[str, str]]:
    rows = []
    if run.refusals:
        counts = sorted(run.refusals.items(), key=lambda each: (-each[1], each[0]))
        rows.append(("refused", ", ".join(f"{reason} {count:,}" for reason, count in counts[: 2 * MAX_ROWS])))
    if run.what:
        rows.append(("damage" if run.state is State.DAMAGED else "end", run.what))
    if run.state is State.STOPPED:
        rows += [("go on", resuming(run.folder)), ("", "or as it was started")]
    return rows
