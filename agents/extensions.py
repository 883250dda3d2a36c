"""What may extend a round and its commit. Each feature that does has its own room, and the round names none of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from seedbus.algorithms.contract import Algorithm, Declined, Replica, ReportRefused
from seedbus.bus import Envelope


class Exchange:
    """A round's questions beside its plans, in stages, and what their answers do to its reports.

    The server calls its methods in this order: `ask` for each stage before the plans; `plans_due`; `plan` for each of
    them; `admit` for each report, and `read` if it sums them; `ask` for each stage after the reports; `total`, if it
    sums them; `blamed`. Between these come the answers (`answered`). This one asks nothing and changes nothing.

    Attributes:
        beside: how many whole numbers clients tell beside each report, for their sum alone; the round sets it.
        sums: the sum of each over the reports that `total` has added up; None: it is not known.
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
        self.beside = 0
        self.sums: Sequence[int] | None = None

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

    def bare(self, report: Envelope) -> Envelope:
        """Return a REPORT without what the feature has added to it."""
        return report

    def admit(self, envelope: Envelope) -> None:
        """Raise `ReportRefused` if a report does not count, `BadPayload` if what was added cannot be read."""

    def read(self, client: int, numbers: NDArray[Any]) -> None:
        """Take note of a report's numbers, [K, P] or [d]; raise `ReportRefused` if it does not count."""

    def total(self, numbers: Mapping[int, NDArray[Any]]) -> NDArray[Any] | None:
        """Return the sum of reports, from the numbers of each client's, [K, P] or [d]; None: it is not known."""
        return None

    def blamed(self) -> Iterable[tuple[int, str, str]]:
        """Who broke the protocol in a way that only others noticed: client, reason and sentence."""
        return ()


OpenExchange = Callable[[int, int, Collection[int]], Exchange]
"""Begins the exchange of a round: its number, its version and its cohort."""


def no_exchange(round: int, version: int, cohort: Collection[int]) -> Exchange:
    """Return the exchange of a round that asks for reports alone."""
    return Exchange()


class ClientPart:
    """What a feature does in a client's work. One serves all clients of a process; this one does nothing.

    A process's clients call its methods in this order: `bare`, `reached` and `planned` for each plan; `measured` for
    what came of the work; `sent` for the report that leaves, which a fault may have changed; `full` for its message.

    Attributes:
        is_asked: whether the server asks it questions (`Exchange.ask`).
    """

    is_asked: bool = False

    def bare(self, plan: Envelope) -> Envelope:
        """Return a PLAN without what the feature has added to it."""
        return plan

    def reached(self, client: int, rounds: int, replica: Replica) -> None:
        """Take note of the replica to which a client was brought, to work or to measure.

        Args:
            client: the client.
            rounds: how many rounds its model has gone through.
            replica: not to be written to; later messages may change it.
        """

    def planned(self, plan: Envelope, replica: Replica) -> None:
        """Take note of a PLAN as it came, and of the replica to which it has brought its client.

        Raises:
            BadPayload: it is malformed.
            Declined: it is not followed.
        """

    def measured(self, algorithm: Algorithm, client: int, plan: Any, outcome: WorkResult) -> WorkResult:
        """Return what came of a client's work as it goes on."""
        return outcome

    def sent(
        self, algorithm: Algorithm, client: int, plan: Any, outcome: WorkResult, beside: Sequence[int] = ()
    ) -> WorkResult:
        """Return what came of a client's work as it leaves the client.

        Args:
            algorithm, client, plan, outcome: what came of which work.
            beside: whole numbers that are told beside the report, for their sum alone.
        """
        return outcome

    def full(self, report: Envelope) -> Envelope:
        """Return a REPORT with what the feature adds to it."""
        return report

    def answer(self, question: Envelope) -> Envelope | None:
        """Return the answer to a question; None if a newer one has overtaken it. Raises `BadPayload`."""
        return None

    def forget(self, client: int) -> None:
        """A client has lost its state."""


WorkResult = tuple[Any, Any] | Declined
"""What came of a client's work: its report and what it remembers, or why it declines."""

ReportFilter = Callable[[Algorithm, Any, dict[int, Any]], dict[int, Any]]
"""Returns the reports of one round, of which a plan is the second argument, as a commit is to have them."""


class Spending(Protocol):
    """What commits spend of something that a run has a limit for; it begins with nothing."""

    def closed(self, rounds: int, asked: int, reported: Iterable[int] | None) -> Any:
        """Account for a round: how many are over with it, how many clients it asked, and whose reports are in its
        commit; None: it made none."""
        ...

    def exhausted(self, limit: float) -> str | None:
        """Return why one more commit could exceed a limit, in a sentence; None if it could not."""
        ...

    def measured(self, rounds: int) -> dict[str, float]:
        """Return the fields of a line of metrics that was measured after so many rounds."""
        ...

    def pack(self) -> Any:
        """Return what a checkpoint stores."""
        ...

    def unpack(self, packed: Any) -> None:
        """Go on from what `pack` returned."""
        ...


SEEDED_NOISE = "noise keyed by the seed: it protects nobody"
"""Stands beside ε wherever it is printed, because ε alone reads as protection."""


class Noise(Protocol):
    """What is added to the sum of a round's reports, of which the commit is then made.

    Attributes:
        divisor: by which each sum is divided, so that it does not tell how many report; a commit is then made of any
            number of reports. None: by their number.
    """

    divisor: int | None

    def sum(self, round: int, reports: Iterable[NDArray[Any]]) -> NDArray[Any]:
        """Return the sum of reports that the server sees, with noise."""
        ...

    def noised(self, round: int, total: NDArray[Any]) -> NDArray[Any]:
        """Return a sum of reports that the server does not see, with noise."""
        ...

    def spending(self) -> Spending:
        """Return an account of what commits spend, before the first one."""
        ...
