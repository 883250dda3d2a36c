"""Progress of a run on stderr: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.stopping import rounds_done
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.reporting.outlook import Outlook, expected_rounds
from seedbus.scenarios.reporting.rate_limit import SERVER_BURSTS, RateLimit
from seedbus.scenarios.reporting.terminal import shown
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
    "submitted": "job {job} has been submitted, workers: {workers}",
    "queued": "job {job} waits ({reason}{begins})",
    "cancelled": "job {job} of this run, from before, has been cancelled",
    "placed": "worker {number} is at {node}",
    "turn": "{waits} on {device}: this one waits for its turn",
    "measured": "takes {takes} of {device}, of whose {total} {free} are free now",
    "waiting": "worker {number} waits for a node with {needs}; there are {nodes}",
    "apart": "worker {number} at {node} does not see {folder}: if it ends before the run, the run ends",
}
_NOTED = ("data", "lost", "weakened", "untracked", "left", "coarse-losses", "no-mean")
LOSSES = {event: "seedbus: note: {what}" for event in _NOTED}  # printed with --quiet too
SPEED_LINES = 10  # the rounds per second are those since so many evaluations, so that a wait is forgotten in time
MAX_REFUSALS = 5  # printed; late reports may cause a refusal in every round
WAITING = {"kernels": "compiling kernels, {compiling}…"}  # printed on a terminal only


class Messages:
    """The messages to print about refusals and processes.

    Args:
        sentences: event → format string; other events are not printed.
    """

    def __init__(self, sentences: Mapping[str, str]) -> None:
        self._sentences = sentences
        self._limit = RateLimit(SERVER_BURSTS)
        self._refusals = 0

    def of_event(self, event: str, facts: Mapping[str, Any]) -> Iterator[str]:
        for name, values in self._limit.admitted(event, facts):
            if name in self._sentences:
                lacks = ", and the evaluator" if values.get("lacks_evaluator") else ""
                yield shown(self._sentences[name].format_map(values) + lacks)

    def of_refusal(self, refusal: Refusal) -> Iterator[str]:
        self._refusals += 1
        if self._refusals <= MAX_REFUSALS:
            yield shown(f"round {refusal.round}: refused ({refusal.reason}): {refusal.detail}")
        elif self._refusals == MAX_REFUSALS + 1:
            yield "further refusals are counted, and written to log.jsonl"


class Bar:
    """A progress bar with round, accuracy, bytes so far, rounds per second and remaining time."""

    def __init__(self, scenario: Scenario, console: Console) -> None:
        self._console = console
        self._messages = Messages(PROCESSES | LOSSES | WAITING)
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
        self._stop = scenario.stop
        self._outlook = Outlook(scenario)

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if (text := self._outlook.closed(closed.round, now_ns)) is not None:
            self._console.print(text, markup=False)
        speed = self._progress.tasks[0].finished_speed or self._progress.tasks[0].speed or 0.0
        done = closed.round + 1
        rounds = expected_rounds(self._stop, done, now_ns)
        sent = readable(bytes_so_far)
        self._progress.update(self._task, total=rounds, completed=done, bytes=sent, rate=f"{speed:.1f} rounds/s")

    def measured(self, line: dict[str, Any]) -> None:
        self._progress.update(self._task, metric=headline(line))

    def refused(self, refusal: Refusal) -> None:
        for text in self._messages.of_refusal(refusal):
            self._console.print(text, style="yellow", markup=False)

    def noted(self, event: str, **facts: Any) -> None:
        for text in self._messages.of_event(event, facts):
            self._console.print(text, style="dim", markup=False)

    def close(self) -> None:
        self._progress.stop()


class Lines:
    """Prints one line for every evaluation, for logs and pipes."""

    def __init__(self, scenario: Scenario, console: Console) -> None:
        self._console = console
        self._stop, self._rounds = scenario.stop, scenario.stop.rounds
        self._messages = Messages(PROCESSES | LOSSES)
        self._latest = deque[tuple[int, float]](maxlen=SPEED_LINES)  # rounds done, and when in seconds
        self._has_closed = False  # a round; x₀ is measured before the first, and not again by a run that is resumed
        self._outlook = Outlook(scenario)

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        self._has_closed = True
        self._rounds = expected_rounds(self._stop, closed.round + 1, now_ns)
        if (text := self._outlook.closed(closed.round, now_ns)) is not None:
            self._say(text)

    def measured(self, line: dict[str, Any]) -> None:
        done, now_s = rounds_done(line, is_first=not self._has_closed), wall_seconds()
        first, since_s = self._latest[0] if self._latest else (done, now_s)
        self._latest.append((done, now_s))
        sent = readable(line["bytes_up"] + line["bytes_down"])
        of = "" if self._rounds is None else f"/{self._rounds}"
        text = f"round {done}{of}  {headline(line)}  {sent}"
        if done > first and now_s > since_s:
            rate = (done - first) / (now_s - since_s)
            text += f"  {rate:.1f} rounds/s"
            text += "" if self._rounds is None else f"  {(self._rounds - done) / rate:.0f} s left"
        self._say(text)

    def refused(self, refusal: Refusal) -> None:
        for text in self._messages.of_refusal(refusal):
            self._say(text)

    def noted(self, event: str, **facts: Any) -> None:
        for text in self._messages.of_event(event, facts):
            self._say(text)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def close(self) -> None:
        pass


class Quiet(NullObserver):
    """Prints only what was lost."""

    def noted(self, event: str, **facts: Any) -> None:
        if event in LOSSES:
            sys.stderr.write(shown(LOSSES[event].format_map(facts)) + "\n")


def headline(line: dict[str, Any]) -> str:
    """Return accuracy, or loss if there is no accuracy, as text; None stands for what is not finite."""
    name = "accuracy" if "accuracy" in line else "loss"
    if name not in line:
        return ""
    value = math.nan if line[name] is None else line[name]
    return f"{name} {value:.2%}" if name == "accuracy" else f"{name} {value:.4g}"


def readable(count: float) -> str:
    """Return a number of bytes with a decimal unit, as the papers use them."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"
