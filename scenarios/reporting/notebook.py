"""Progress of a run in a notebook: one line of HTML with a bar, drawn again in its place. It needs IPython only."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import Any

from seedbus.agents.refusals import Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.reporting.outlook import Outlook, duration, expected_rounds
from seedbus.scenarios.reporting.progress import LOSSES, PROCESSES, WAITING, Messages, headline, readable
from seedbus.scenarios.schema.scenario import Scenario

EVERY_S = 0.25  # between drawings
SHOWN = 8  # messages under the bar, the last ones
_SENTENCES = LOSSES | WAITING | {event: PROCESSES[event] for event in ("compiling", "gone", "worker")}


class NotebookBar:
    """A progress bar with round, accuracy, bytes so far and remaining time, and the last messages under it."""

    def __init__(self, scenario: Scenario) -> None:
        shown = import_module("IPython.display")  # a notebook has it
        self._html = shown.HTML
        self._name = scenario.name
        self._stop, self._rounds = scenario.stop, scenario.stop.rounds
        self._messages = Messages(_SENTENCES)
        self._outlook = Outlook(scenario)
        self._texts: list[str] = []
        self._done, self._bytes, self._metric = 0, 0, ""
        self._first: tuple[int, float] | None = None
        self._drawn_s = wall_seconds()
        self._display = shown.display(self._html(self._drawing()), display_id=True)

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        self._done, self._bytes = closed.round + 1, bytes_so_far
        self._rounds = expected_rounds(self._stop, self._done, now_ns)
        self._first = self._first or (self._done, wall_seconds())
        if (text := self._outlook.closed(closed.round, now_ns)) is not None:
            self._texts.append(text)
        if wall_seconds() - self._drawn_s >= EVERY_S:
            self._draw()

    def measured(self, line: dict[str, Any]) -> None:
        self._metric = headline(line)

    def refused(self, refusal: Refusal) -> None:
        self._texts += self._messages.of_refusal(refusal)

    def noted(self, event: str, **facts: Any) -> None:
        texts = list(self._messages.of_event(event, facts))
        self._texts += texts
        if texts:
            self._draw()

    def close(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self._drawn_s = wall_seconds()
        self._display.update(self._html(self._drawing()))

    def _drawing(self) -> str:
        of, most = ("", "") if self._rounds is None else (f"/{self._rounds:,}", f' max="{self._rounds}"')
        facts = (f"{self._done:,}{of} rounds", self._metric, readable(self._bytes), self._left())
        texts = "".join(f"<br><small>{escape(text)}</small>" for text in self._texts[-SHOWN:])
        bar = f'<progress{most} value="{self._done}"></progress>'
        return f"<div><b>{escape(self._name)}</b> {bar} {escape(' · '.join(filter(None, facts)))}{texts}</div>"

    def _left(self) -> str:
        """Return how long the rounds that remain will take; the first one does not count, because it has the start."""
        first, since_s = self._first or (0, 0.0)
        if self._first is None or self._done == first or self._done == self._rounds or self._rounds is None:
            return ""
        return f"{duration((wall_seconds() - since_s) / (self._done - first) * (self._rounds - self._done))} left"
