"""A server and its clients over real sockets, in this process: what the tests of clusters share."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from seedbus.agents.observer import Nobody
from seedbus.bus import Offer, Wish
from seedbus.bus.transport import Follower
from seedbus.bus.zeromq import follow
from seedbus.scenarios.cluster import Placement
from seedbus.scenarios.results import Results
from seedbus.scenarios.run import bind, recruit, run
from seedbus.scenarios.schema import Scenario


class Watcher(Nobody):
    """Notes what it is told, and where the server listens."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.refusals: list[Any] = []
        self.rounds = 0
        self.endpoint = ""
        self.is_listening = threading.Event()

    @property
    def joined(self) -> int:
        """How many processes have joined so far."""
        return sum(event == "joined" for event, _ in self.events)

    @property
    def gone(self) -> int:
        """How many processes have gone so far."""
        return sum(event == "gone" for event, _ in self.events)

    def round_closed(self, closed: Any, now_ns: int, bytes_so_far: int) -> None:
        self.rounds = closed.round + 1

    def refused(self, refusal: Any) -> None:
        self.refusals.append(refusal)

    def noted(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))
        if event == "listening":
            self.endpoint = facts["endpoint"]
            self.is_listening.set()


class Serving(threading.Thread):
    """A server's run on a thread; `results()` waits for its end and raises what it raised."""

    def __init__(self, what: Scenario, folder: Path, *, resume: bool = False, **placement: Any) -> None:
        super().__init__(name="server", daemon=True)
        options: dict[str, Any] = {"transport": "tcp", "bind": "tcp://127.0.0.1:*"}
        options |= {"heartbeat_s": 0.2, "patience_s": 20.0}
        self._what, self._folder, self._resume = what, folder, resume
        self._placement = Placement(**(options | placement))
        self.watcher = Watcher()
        self._results: Results | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        if not self.watcher.is_listening.wait(20):
            self.results()
        return self

    def __exit__(self, *_: object) -> None:
        self.join(30)

    def run(self) -> None:
        try:
            options = {"resume": self._resume, "observer": self.watcher, "placement": self._placement}
            self._results = run(self._what, self._folder, **options)  # type: ignore[arg-type]
        except BaseException as error:
            self._failure = error
            self.watcher.is_listening.set()

    def results(self, timeout_s: float = 60) -> Results:
        self.join(timeout_s)
        if self._failure is not None:
            raise self._failure
        assert self._results is not None, "the run did not end in time"
        return self._results


class Following(threading.Thread):
    """A process's worth of clients on a thread."""

    def __init__(self, what: Scenario, endpoint: str, wish: Wish | None = None, **options: Any) -> None:
        super().__init__(name="clients", daemon=True)
        self._what, self._endpoint, self._wish = what, endpoint, wish or Wish()
        self._options = {"patience_s": 10.0} | options
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        made = recruit(self._what, bind(self._what), Nobody())

        def make(offer: Offer) -> Follower:
            return made(offer)

        try:
            follow(self._endpoint, self._wishes(), make, **self._options)
        except BaseException as error:
            self.failure = error

    def _wishes(self) -> Sequence[Wish]:
        return [self._wish]
