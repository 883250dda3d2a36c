"""Progress of a run: a bar on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from seedbus.agents.observer import NullObserver, Observer
from seedbus.agents.refusals import Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.agents.server.stopping import rounds_done
from seedbus.bus.clock import wall_seconds
from seedbus.bus.text import counted
from seedbus.scenarios.reporting.axes import byte_unit
from seedbus.scenarios.reporting.rate_limit import SERVER_BURSTS, RateLimit
from seedbus.scenarios.reporting.remaining_time import Outlook, duration, expected_rounds
from seedbus.scenarios.reporting.terminal import console, shown
from seedbus.scenarios.schema.scenario import Scenario

if TYPE_CHECKING:
    from rich.console import Console

PROCESSES = {
    "compiling": "compiling {what}, which takes a minute the first time on a machine",
    "listening": "listening at {endpoint}; {who}",
    "joined": "a process has joined with {clients}; {missing} still missing",
    "looked": "somebody at {peer} has looked at the scenario, and joined nothing",
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
EVERY_S = 0.25  # between two drawings in a notebook
SHOWN_TEXTS = 8  # messages under the bar of a notebook, the last ones
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
                told = dict(values)
                if "missing" in told:
                    told["missing"] = counted(told["missing"], "client")
                yield shown(self._sentences[name].format_map(told) + lacks)

    def of_refusal(self, refusal: Refusal) -> Iterator[str]:
        self._refusals += 1
        if self._refusals <= MAX_REFUSALS:
            yield shown(f"round {refusal.round}: refused ({refusal.reason}): {refusal.detail}")
        elif self._refusals == MAX_REFUSALS + 1:
            yield "further refusals are counted, and written to log.jsonl"


def _speed(task: Task) -> float:
    """Return the rounds per second, those of the last half minute, so that a wait is forgotten in time."""
    return task.finished_speed or task.speed or 0.0


class _Rate(ProgressColumn):
    """The rounds per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{_speed(task):.1f} rounds/s")


class Bar:
    """A progress bar with round, accuracy, bytes so far, rounds per second and remaining time.

    Args:
        scenario: the run's.
        console: where the bar and the messages stand.
        is_shown: whether there is a bar; if not, it only counts.
    """

    sentences: Mapping[str, str] = PROCESSES | LOSSES | WAITING

    def __init__(self, scenario: Scenario, console: Console, *, is_shown: bool = True) -> None:
        self._console, self._stop = console, scenario.stop
        self._messages, self._outlook = Messages(self.sentences), Outlook(scenario)
        self._progress = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metric]}  {task.fields[bytes]}", markup=False),
            _Rate(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not is_shown,
            get_time=lambda: wall_seconds(),
        )
        total = scenario.stop.rounds
        self._id = self._progress.add_task(scenario.name, total=total, metric="", bytes="")
        self._progress.start()

    @property
    def _task(self) -> Task:
        return self._progress.tasks[0]

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if (text := self._outlook.closed(closed.round, now_ns)) is not None:
            self._say(text, "")
        done = closed.round + 1
        total = expected_rounds(self._stop, done, now_ns)
        self._progress.update(self._id, total=total, completed=done, bytes=readable(bytes_so_far))

    def measured(self, line: dict[str, Any]) -> None:
        self._progress.update(self._id, metric=headline(line))

    def refused(self, refusal: Refusal) -> None:
        for text in self._messages.of_refusal(refusal):
            self._say(text, "yellow")

    def noted(self, event: str, **facts: Any) -> None:
        for text in self._messages.of_event(event, facts):
            self._say(text, "dim")

    def close(self) -> None:
        self._progress.stop()

    def _say(self, text: str, style: str) -> None:
        self._console.print(text, style=style, markup=False)


class Lines(Bar):
    """Prints one line for every evaluation, for logs and pipes."""

    sentences = PROCESSES | LOSSES

    def __init__(self, scenario: Scenario, console: Console) -> None:
        super().__init__(scenario, console, is_shown=False)
        self._has_closed = False  # a round; x₀ is measured before the first, and not again by a run that is resumed

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        super().round_closed(closed, now_ns, bytes_so_far)
        self._has_closed = True

    def measured(self, line: dict[str, Any]) -> None:
        done, task = rounds_done(line, is_first=not self._has_closed), self._task
        sent = readable(line["bytes_up"] + line["bytes_down"])
        of = "" if task.total is None else f"/{task.total:.0f}"
        text = f"round {done}{of}  {headline(line)}  {sent}"
        if speed := _speed(task):
            text += f"  {speed:.1f} rounds/s"
            text += "" if task.total is None else f"  {(task.total - done) / speed:.0f} s left"
        self._say(text, "")
        if not self._has_closed:
            self._progress.advance(self._id, 0)  # from now on rounds take time

    def _say(self, text: str, style: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class NotebookBar(Bar):
    """One line of HTML with a bar, drawn again in its place, and the last messages under it. It needs IPython only."""

    sentences = LOSSES | WAITING | {event: PROCESSES[event] for event in ("compiling", "gone", "worker")}

    def __init__(self, scenario: Scenario, console: Console) -> None:
        super().__init__(scenario, console, is_shown=False)
        shown = import_module("IPython.display")  # a notebook has it
        self._html, self._texts, self._drawn_s = shown.HTML, deque[str](maxlen=SHOWN_TEXTS), wall_seconds()
        self._display = shown.display(self._html(self._drawing()), display_id=True)

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        super().round_closed(closed, now_ns, bytes_so_far)
        if wall_seconds() - self._drawn_s >= EVERY_S:
            self._draw()

    def close(self) -> None:
        self._draw()

    def _say(self, text: str, style: str) -> None:
        self._texts.append(text)
        self._draw()

    def _draw(self) -> None:
        self._drawn_s = wall_seconds()
        self._display.update(self._html(self._drawing()))

    def _drawing(self) -> str:
        task = self._task
        of, most = ("", "") if task.total is None else (f"/{task.total:,.0f}", f' max="{task.total:.0f}"')
        left = f"{duration(task.time_remaining)} left" if task.time_remaining else ""
        facts = (f"{task.completed:,.0f}{of} rounds", task.fields["metric"], task.fields["bytes"], left)
        texts = "".join(f"<br><small>{escape(text)}</small>" for text in self._texts)
        bar = f'<progress{most} value="{task.completed:.0f}"></progress>'
        return f"<div><b>{escape(task.description)}</b> {bar} {escape(' · '.join(filter(None, facts)))}{texts}</div>"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def watching(scenario: Scenario) -> Iterator[Observer]:
    """Yield what shows a run's progress: a bar in a notebook or on a terminal, else an observer that prints lines."""
    stderr = console(file=sys.stderr)
    kind = NotebookBar if in_notebook() else Bar if stderr.is_terminal else Lines
    with closing(kind(scenario, stderr)) as watcher:
        yield watcher


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
    unit, name = byte_unit(count)
    return f"{count / unit:.{0 if name == 'B' else 2}f} {name}"
