"""The report page of a run or a study while it goes on, for the browsers of this machine: `--live PORT`.

The page is a shell of fixed bytes, with the program that draws. It shows the newest event of a stream; each event is
the page's content. The content is made on the server's thread, only while somebody looks, and takes a twentieth of that
thread's time at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

import numpy as np

from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.bus.clock import wall_seconds
from seedbus.bus.errors import BadEndpoint
from seedbus.scenarios.extras import require
from seedbus.scenarios.operations.http import Answer, Server
from seedbus.scenarios.reporting.closing_table import grouped
from seedbus.scenarios.reporting.document import document, policy, with_plots
from seedbus.scenarios.reporting.page import Finished, content, metric_plots, round_plot
from seedbus.scenarios.reporting.progress import headline, readable
from seedbus.scenarios.reporting.remaining_time import expected_rounds
from seedbus.scenarios.reporting.results import Results, strict
from seedbus.scenarios.schema.scenario import Scenario

_EXPECTED = "a port of this machine, like 8000, or 0 for any free one"
_SHARE = 20  # drawing takes one part in so many of the time
_SCRIPT = """
const live = document.getElementById("live"), state = document.getElementById("state");
function connect() {
  const source = new EventSource("/events");
  source.onmessage = event => { showContent(live, event.data); state.textContent = ""; };
  source.onerror = () => {
    state.textContent = "not connected: this is the newest state that was received";
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}
connect();
"""
_HEADERS = (
    "X-Content-Type-Options: nosniff",
    "Cross-Origin-Resource-Policy: same-origin",
    "Referrer-Policy: no-referrer",
    "Cache-Control: no-store",
)


class Subject(Protocol):
    """What a live page shows. Only `drawn` is called on the server's thread.

    Attributes:
        title: plain text.
        changes: grows whenever there is something new to draw.
    """

    title: str
    changes: int

    def drawn(self) -> str:
        """Return the page's content as HTML."""
        ...


class LivePage:
    """Serves the page of one subject.

    Args:
        subject: what it shows.
        port: the port, as text; 0: any free one.

    Attributes:
        url: where it is.
        last: returns the content once the subject has ended; None if it has not.

    Raises:
        BadEndpoint: the port cannot be used.
    """

    def __init__(self, subject: Subject, port: str) -> None:
        if not port.isdecimal():
            raise BadEndpoint(f"--live {port}", f"{port or 'nothing'} is no port", _EXPECTED)
        self.last: Callable[[], str] | None = None
        self._subject = subject
        self._content, self._drawn, self._next_s = "<p>nothing has been measured yet</p>", -1, 0.0
        waiting = '<p id="state"></p>\n<div id="live"><noscript>this page needs JavaScript</noscript></div>\n'
        self._shell = document(subject.title, waiting, _SCRIPT).decode()
        self._headers = (f"Content-Security-Policy: {policy(_SCRIPT)}; frame-ancestors 'none'", *_HEADERS)
        self._server: Server | None = None
        self._server = Server(self, port, "--live", _EXPECTED)
        self.url = f"{self._server.origin}/"

    def close(self) -> None:
        """End the server. An open page still gets the end."""
        server, self._server = self._server, None
        if server is not None:
            server.close(self._end() if server.is_watched else "")

    def _end(self) -> str:
        try:
            return self.last() if self.last is not None else f"<p>stopped before its end</p>\n{self._subject.drawn()}"
        except Exception:  # such as a folder that cannot be read, which the command reports
            return ""

    def answer(self, path: str) -> Answer:
        if path == "/":
            return Answer("200 OK", "text/html; charset=utf-8", self._shell, self._headers)
        if path == "/events":
            return Answer("200 OK", "text/event-stream", self._content, self._headers, is_stream=True)
        return Answer("404 Not Found", "text/plain", "there are / and /events\n", self._headers)

    def tick(self) -> str | None:
        server, changes, began_s = self._server, self._subject.changes, wall_seconds()
        if server is None or not server.is_watched or changes == self._drawn or began_s < self._next_s:
            return None
        try:
            self._content = self._subject.drawn()
        except Exception as error:  # a bug here must not end a run, nor this thread
            self._content = f"<p>the page cannot be drawn: {type(error).__name__}</p>"
        self._drawn, self._next_s = changes, wall_seconds() + _SHARE * (wall_seconds() - began_s)
        return self._content


class LiveRun(NullObserver):
    """A run as a page shows it; it observes the run.

    Args:
        scenario: the run's.
        lines: the evaluations that it had before.
    """

    def __init__(self, scenario: Scenario, lines: Iterable[dict[str, Any]] = ()) -> None:
        self.title = f"{scenario.name}: {scenario.algorithm.facts.label}"
        self.changes = 0
        self._scenario = scenario
        self._lines = [strict(line) for line in lines]
        self._took_s: list[float] = []
        self._first = 0  # round of these; a run that is resumed goes on at a later one
        self._newest: tuple[ClosedRound, int, int] | None = None
        self._refused = 0
        self._began_s: float | None = None

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if self._began_s is None:
            self._began_s, self._first = wall_seconds(), closed.round
        self._took_s.append((closed.record.closed_ns - closed.record.opened_ns) / 1e9)
        self._newest = closed, now_ns, bytes_so_far
        self.changes += 1

    def measured(self, line: dict[str, Any]) -> None:
        self._lines.append(strict(line))
        self.changes += 1

    def refused(self, refusal: Refusal) -> None:
        self._refused += 1
        self.changes += 1

    def drawn(self) -> str:
        lines, took_s = list(self._lines), np.array(list(self._took_s), float)
        plots = metric_plots(lines)
        if took_s.size:
            plots.append(round_plot(took_s, is_simulated=self._scenario.clock == "virtual", first=self._first))
        return with_plots(grouped([self._rows(lines)]), plots)

    def _rows(self, lines: list[dict[str, Any]]) -> Iterable[tuple[str, str]]:
        newest, began_s = self._newest, self._began_s
        if lines:
            yield "newest evaluation", headline(lines[-1])
        if newest is not None and began_s is not None:
            closed, now_ns, sent = newest
            seconds = wall_seconds() - began_s
            rate = f"; {(len(self._took_s) - 1) / seconds:.1f} rounds/s" if seconds > 0 else ""
            rounds = expected_rounds(self._scenario.stop, closed.round + 1, now_ns)
            of = "" if rounds is None else f" of {rounds:,}"
            yield "rounds", f"{closed.round + 1:,}{of}, version {closed.version:,}{rate}"
            yield "time", f"{now_ns / 1e9:,.1f} s by the run's clock"
            yield "bytes", readable(sent)
        yield "refused", f"{self._refused:,} messages since the process began"

    @staticmethod
    def ended(results: Results) -> str:
        """Return the content of a finished run's page, as in `report.html`."""
        return content(Finished.of(results))


@contextmanager
def live(subject: Subject, port: str) -> Iterator[LivePage]:
    """Serve a subject's page in this context.

    Raises:
        BadEndpoint: the port cannot be used.
        ScenarioError: what draws the page is not installed.
    """
    require("--live", "plotly")
    with closing(LivePage(subject, port)) as page:
        yield page
