"""What a round asks of its clients beside their reports, as secure aggregation does; here: nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from seedbus.algorithms.contract import ReportRefused
from seedbus.bus import Envelope


class Exchange:
    """A round's questions beside its plans, in stages, and what their answers do to its reports.

    The server calls its methods in this order: `ask` for each stage before the plans; `plans_due`; `plan` for each of
    them; `admit` for each report; `ask` for each stage after the reports; `total`, if it sums them; `blamed`. Between
    these come the answers (`answered`). This one asks nothing and changes nothing.

    Attributes:
        before_plans: the stages before the round's plans, by number, in order.
        after_reports: the stages after its reports.
        sums_reports: whether the commit is made of what `total` returns.
        waiting: the clients whose answers are awaited in the present stage.
    """

    before_plans: Sequence[int] = ()
    after_reports: Sequence[int] = ()
    sums_reports: bool = False

    def __init__(self) -> None:
        self.waiting: set[int] = set()

    def ask(self, stage: int, reported: frozenset[int]) -> Iterable[Envelope]:
        """Return the questions of a stage; reported: the clients whose reports are to enter the commit."""
        return ()

    def answered(self, envelope: Envelope) -> None:
        """Take an answer. Raises `BadPayload` if it cannot be read, and `ReportRefused` if it is not awaited."""
        raise ReportRefused("not-asked", f"round {envelope.round} has asked no such question")

    def plans_due(self) -> Collection[int]:
        """The round's plans are sent now. Returns the clients of its cohort that get none, and report nothing."""
        return ()

    def plan(self, envelope: Envelope) -> Envelope | None:
        """Return a plan as its client gets it; None: the client takes no part."""
        return envelope

    def admit(self, envelope: Envelope) -> None:
        """Raise `ReportRefused` if a report does not count."""

    def total(self, numbers: Mapping[int, NDArray[Any]]) -> NDArray[Any] | None:
        """Return the sum of reports, from the numbers of each client's, [K, P] or [d]; None: it is not known."""
        raise NotImplementedError

    def blamed(self) -> Iterable[tuple[int, str, str]]:
        """Who broke the protocol in a way that only others noticed: client, reason and sentence."""
        return ()


OpenExchange = Callable[[int, int, Collection[int]], Exchange]
"""Begins the exchange of a round: its number, its version and its cohort."""


def no_exchange(round: int, version: int, cohort: Collection[int]) -> Exchange:
    """Return the exchange of a round that asks for reports alone."""
    return Exchange()
