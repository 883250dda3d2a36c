"""What a person sees while a run goes on: a progress bar on a terminal, plain lines elsewhere. Written to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.stopping import rounds_done
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.reporting.rate_limit import STRANGERS, RateLimit
from seedbus.scenarios.reporting.terminal import console, shown
from seedbus.scenarios.schema.scenario import Scenario

if TYPE_CHECKING:
    from rich.console import Console

PROCESSES = {
    "compiling": "compiling {what}, which takes a minute the first time on a machine",
    "listening": "listening at {endpoint}; {who}",
    "joined": "a process has joined with {clients}; {missing} still missing",
    "gone": "the process with {clients} is gone ({why})",
    "omitted": "{count:,} more like this ({of})",
    "worker": "worker {number} ended ({ended}); another takes its place",
}
LOSSES = {event: "seedbus: note: {what}" for event in ("lost", "weakened")}  # told with --quiet too
TOLD = 5  # refusals
WAITING = {"kernels": "compiling kernels, {compiling}…"}  # for who waits in front of a terminal


class _Told:
    """What is told of refusals and of processes. sentences: those for events; others are not told.

    Of refusals it is the first few, for late reports may be most of what happens.
    """

    def __init__(self, sentences: Mapping[str, str]) -> None:
        self._sentences, self._limit, self._count = sentences, RateLimit(STRANGERS), 0

    def events(self, event: str, facts: Mapping[str, Any]) -> Iterator[str]:
        for told, what in self._limit.admitted(event, facts):
            if told in self._sentences:
                yield shown(self._sentences[told].format_map(what))

    def refusals(self, refusal: Refusal) -> Iterator[str]:
        self._count += 1
        if self._count <= TOLD:
            yield shown(f"round {refusal.round}: refused ({refusal.reason}): {refusal.detail}")
        elif self._count == TOLD + 1:
            yield "further refusals are counted, and written to log.jsonl"


class Bar:
    """A progress bar: round, accuracy, bytes so far, rounds a second, time left."""

    def __init__(self, scenario: Scenario, console: Console) -> None:
        self._console, self._told = console, _Told(PROCESSES | LOSSES | WAITING)
        self._progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metric]}  {task.fields[bytes]}  {task.fields[rate]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task(scenario.name, total=scenario.stop.rounds, metric="", bytes="", rate="")
        self._progress.start()

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        speed = self._progress.tasks[0].finished_speed or self._progress.tasks[0].speed or 0.0
        self._progress.update(
            self._task, completed=closed.round + 1, bytes=readable(bytes_so_far), rate=f"{speed:.1f} rounds/s"
        )

    def measured(self, line: dict[str, Any]) -> None:
        self._progress.update(self._task, metric=headline(line))

    def refused(self, refusal: Refusal) -> None:
        for text in self._told.refusals(refusal):
            self._console.print(text, style="yellow", markup=False)

    def noted(self, event: str, **facts: Any) -> None:
        for text in self._told.events(event, facts):
            self._console.print(text, style="dim", markup=False)

    def close(self) -> None:
        self._progress.stop()


class Lines:
    """A line for every evaluation, for logs and pipes."""

    def __init__(self, scenario: Scenario, console: Console) -> None:
        self._console, self._rounds, self._began = console, scenario.stop.rounds, wall_seconds()
        self._told = _Told(PROCESSES | LOSSES)
        self._first: int | None = None

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        pass

    def measured(self, line: dict[str, Any]) -> None:
        done, now = rounds_done(line), wall_seconds()
        self._first = done if self._first is None else self._first
        rate = (done - self._first) / (now - self._began) if now > self._began else 0.0
        left = f"{(self._rounds - done) / rate:.0f} s left" if rate > 0 else ""
        sent = readable(line["bytes_up"] + line["bytes_down"])
        text = f"round {done}/{self._rounds}  {headline(line)}  {sent}  {rate:.1f} rounds/s  {left}"
        self._say(text.rstrip())

    def refused(self, refusal: Refusal) -> None:
        for text in self._told.refusals(refusal):
            self._say(text)

    def noted(self, event: str, **facts: Any) -> None:
        for text in self._told.events(event, facts):
            self._say(text)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def close(self) -> None:
        pass


class Quiet(NullObserver):
    """Nothing but what was lost."""

    def noted(self, event: str, **facts: Any) -> None:
        if event in LOSSES:
            sys.stderr.write(shown(LOSSES[event].format_map(facts)) + "\n")


def watch(scenario: Scenario) -> Bar | Lines:
    """A bar on a terminal, lines elsewhere."""
    stderr = console(file=sys.stderr)
    return Bar(scenario, stderr) if stderr.is_terminal else Lines(scenario, stderr)


def headline(line: dict[str, Any]) -> str:
    """The metric that people look at first."""
    if "accuracy" in line:
        return f"accuracy {line['accuracy']:.2%}"
    return f"loss {line['loss']:.4g}" if "loss" in line else ""


def readable(count: float) -> str:
    """Bytes in the unit that suits them; decimal, as the papers count."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"
