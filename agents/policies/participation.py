"""Which clients take part in a round, and when a round is over: a policy shared by every algorithm.

A round asks a cohort, which `selection` draws. It is over when all of the cohort have answered, when enough reports
have come (over-selection, buffer), or at its deadline. With fewer than `quorum` usable reports it makes no commit.
Reports that come later are discarded, or count in a later commit (`late`); clients that work on one are not asked
again. A stream (`mode: stream`) waits for nobody: reports commit as they come.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NoReturn

from pydantic import Field, model_validator

from seedbus.agents.policies.deadline import Deadline, rounded_up
from seedbus.agents.policies.selection.known import Known
from seedbus.agents.policies.selection.selection import SELECTIONS, Selection
from seedbus.agents.policies.selection.uniform import Uniform
from seedbus.bus.network import round_ns
from seedbus.capabilities import Fact, Gives, Needs, RulesOut, Statement
from seedbus.discovery import PluginError
from seedbus.settings import Settings

AnySelection = Annotated[Selection, SELECTIONS]
LONGEST_S = 10**6
MOST_STALE = 10**6
STREAM_STALE = 100
"""In a stream a report may count until each client at work could have reported so often since."""


class Late(Settings):
    """A report that misses its round counts in a later commit, as a term of its own: its seed, its scalars, its weight.

    Its weight is s(τ)/|C_r|, with τ the commits made since its round started and s(τ) = (1 + τ)^−discount (Nguyen et
    al., "Federated Learning with Buffered Asynchronous Aggregation", arXiv:2106.06639, use ½). In asynchronous rounds
    the number of the commit's reports takes the place of |C_r|, and in a stream m.
    """

    discount: float = Field(default=0.5, ge=0, le=10, description="a in s(τ) = (1 + τ)^−a; 0: all count alike")
    max_staleness: int = Field(
        default=10, ge=1, le=MOST_STALE, description="for how many rounds after its own a report may still count"
    )

    def capabilities(self) -> Iterator[Statement]:
        yield Needs(Fact.LATE, "lets late reports count")
        yield RulesOut(Fact.IN_TIME, "lets late reports count")

    def weight(self, staleness: int) -> float:
        """Return s(τ), for τ = `staleness`."""
        return math.pow(1 + staleness, -self.discount)


class Participation(Settings):
    """How many clients there are, which of them each round asks, and when it is over."""

    gives = ((Fact.ENDS, "deadline_s"), (Fact.WORK_ENDS, "deadline_s"))

    clients: int = Field(ge=1, lt=2**24, description="N, all clients")
    cohort: int | None = Field(default=None, ge=1, description="m, clients wanted each round; default: all")
    fraction: float | None = Field(default=None, gt=0, le=1, description="m as a fraction of N, instead of cohort")
    over_selection: float = Field(
        default=1.0,
        ge=1,
        le=100,
        description="ask this many times m clients; the round closes with m reports (Bonawitz et al. 2019: 1.3)",
    )
    mode: Literal["rounds", "stream"] = Field(
        default="rounds",
        description="stream: no rounds to wait for: each report is a commit as it comes, and weighs 1/m; "
        "its client goes on at once from the newest version (docs/participation.md); needs arithmetic: integer",
    )
    selection: AnySelection = Field(default=Uniform(), description="which clients a round asks")
    quorum: int = Field(default=1, ge=1, description="usable reports that a commit needs")
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_S,
        description="simulated seconds after which a round closes with the reports that have come",
    )
    deadline: Deadline | None = Field(
        default=None, description="a deadline that adapts to the times of answers; deadline_s is its upper limit"
    )
    every_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_S,
        description="rounds are due at multiples of so many simulated seconds, each at the next one after the round "
        "before; a round that finds fewer clients than its quorum begins when enough have come; none: due as soon as "
        "the round before is over",
    )
    late: Late | None = Field(
        default=None,
        description="how late reports count; a client is then not asked while it works on one that may count; "
        "none: late reports are discarded",
    )
    buffer: int | None = Field(
        default=None,
        ge=1,
        description="asynchronous rounds (FedBuff): a commit as soon as this many reports have come, fresh or late; "
        "then further clients are asked, so that m are at work; a client is at work until it answers, or until the "
        "deadline",
    )

    @model_validator(mode="after")
    def _streamed(self) -> Participation:
        """Fill in what a stream is: rounds that one report ends, and reports that count alike however late they are."""
        if self.is_streamed:
            if self.over_selection > 1:
                raise ValueError(f"over_selection ({self.over_selection:g}) is for rounds; leave it out of a stream")
            if self.buffer is None and self.quorum > 1:
                raise ValueError(
                    f"quorum ({self.quorum}) is for rounds; leave it out of a stream, which commits each report as it "
                    "comes, or set buffer too"
                )
            late = Late(discount=0, max_staleness=min(MOST_STALE, STREAM_STALE * self.size))
            self.__dict__["late"] = late if self.late is None else self.late
            self.__dict__["buffer"] = 1 if self.buffer is None else self.buffer
        return self

    @model_validator(mode="after")
    def _sound(self) -> Participation:
        if self.cohort is not None and self.fraction is not None:
            raise ValueError("give cohort or fraction, not both")
        if self.size > self.clients:
            raise ValueError(f"cohort ({self.size}) is larger than clients ({self.clients})")
        if self.quorum > self.size:
            raise ValueError(f"quorum ({self.quorum}) is larger than the cohort ({self.size})")
        if self.deadline is not None and self.deadline_s is None:
            raise ValueError("deadline adapts to answers; set deadline_s too, for rounds in which too few come")
        if self.buffer is not None and self.late is None:
            raise ValueError("buffer needs late: in asynchronous rounds most reports start from an earlier version")
        if self.buffer is not None and not self.quorum <= self.buffer <= self.size:
            raise ValueError(f"buffer ({self.buffer}) is not between quorum ({self.quorum}) and cohort ({self.size})")
        if self.buffer is not None and self.over_selection > 1:
            raise ValueError("give over_selection or buffer, not both")
        if self.every_s is not None and self.buffer is not None:
            given = "buffer" if self.mode == "rounds" else "mode: stream"
            raise ValueError(f"every_s is for rounds that end before the next one begins; leave it out with {given}")
        if not self.selection.is_fixed_size and (self.buffer is not None or self.over_selection > 1):
            given = (
                "over_selection" if self.over_selection > 1 else "buffer" if self.mode == "rounds" else "mode: stream"
            )
            raise ValueError(
                f"selection: {self.selection.policy} draws cohorts of any size, so {given} has no number of clients to "
                "go by; leave it out, or choose another selection"
            )
        return self

    def capabilities(self) -> Iterator[Statement]:
        for field in sorted(self.model_fields_set - {"clients"}):  # a stream fills in others
            if getattr(self, field) != type(self).model_fields[field].default:
                yield Needs(Fact.SERVER, "is for reports to a server", field)
        if self.is_streamed:
            yield Needs(Fact.ORDER_FREE, "commits each report as it comes, in any order", "mode")
            yield RulesOut(Fact.ROUNDS, "commits each report as it comes", "mode")
        if self.deadline_s is not None:
            yield Gives(Fact.ENDS)
        if self.deadline_s is not None or not self.is_asynchronous:
            yield Gives(Fact.WORK_ENDS)

    @property
    def is_streamed(self) -> bool:
        """Whether reports commit as they come."""
        return self.mode == "stream"

    @property
    def is_asynchronous(self) -> bool:
        """Whether a commit takes a buffer of reports, fresh or late, of clients that are at work; a stream's does."""
        return self.buffer is not None

    @property
    def size(self) -> int:
        """m, the size of a cohort when all N clients are members."""
        if self.fraction is not None:
            return max(1, round(self.fraction * self.clients))
        return self.clients if self.cohort is None else self.cohort

    @property
    def wanted(self) -> int:
        """How many reports end a round: a buffer of them, or a cohort."""
        return self.size if self.buffer is None else self.buffer

    @property
    def asked(self) -> int:
        """How many clients a round asks when all N are members; on average, if the selection has no fixed size."""
        return min(self.clients, rounded_up(self.size * self.over_selection))

    @property
    def most_asked(self) -> int:
        """The most clients that a round may ask."""
        return self.asked if self.selection.is_fixed_size else self.clients

    @property
    def may_be_late(self) -> bool:
        """Whether a round may be over before all whom it asks have answered."""
        return self.deadline_s is not None or self.wanted < self.asked

    @property
    def counts_late(self) -> bool:
        """Whether a report may count in a later commit than its round's."""
        return self.late is not None and (self.may_be_late or self.is_asynchronous)

    @property
    def spares_those_at_work(self) -> bool:
        """Whether a round asks no client that works for an earlier one, and waits where too few are free."""
        return self.counts_late and not self.is_asynchronous

    def next_ns(self, now_ns: int, began_ns: int) -> int:
        """Return the earliest instant at which a round may begin; began_ns: when the one before did, -1 if none has."""
        if self.every_s is None:
            return now_ns
        earliest_ns = max(now_ns, began_ns + 1)  # not twice at an instant, if no time has passed
        return earliest_ns + -earliest_ns % round_ns(self.every_s)

    def latest_ns(self, now_ns: int) -> int | None:
        """Return when a wait for clients that begins now is over at the latest; None: when they have answered."""
        return None if self.deadline_s is None else now_ns + round_ns(self.deadline_s)

    @property
    def staleness(self) -> int:
        """For how many rounds after its own a report may still count."""
        return self.late.max_staleness if self.late is not None else 0

    def draw(self, members: Sequence[int], known: Known, seed: int, round: int, busy: int = 0) -> list[int]:
        """Draw the cohort of a round.

        Args:
            members: the clients that may be asked, ascending.
            known: what selection may use of earlier reports.
            seed: the scenario's.
            round: its number.
            busy: how many clients are at work already; an asynchronous round asks so many fewer.

        Returns:
            The clients, ascending.

        Raises:
            PluginError: the policy, which may be a plug-in's, chose other clients than it may, or remembers other
                things than numbers.
        """
        wanted = self.asked - busy if self.is_asynchronous else self.asked
        count = max(0, min(wanted, len(members)))
        chosen = self.selection.choose(members, count, known, seed, round)
        try:
            clients = sorted(map(operator.index, chosen))
        except TypeError:
            self._refuse(round, f"chose {chosen!r:.80}", "a list of clients")
        strange = [str(client) for client in clients if client not in members]
        strange += [f"{client} {times} times" for client, times in Counter(clients).items() if times > 1]
        if strange:
            self._refuse(round, f"chose client {strange[0]}", "different numbers out of those that it was offered")
        if len(clients) != count and self.selection.is_fixed_size:
            self._refuse(round, f"chose a cohort of {len(clients)}", f"{count}, as many as it was asked for")
        try:
            known.memory = list(map(float, known.memory))  # as a resumed run finds them
        except (TypeError, ValueError, OverflowError):
            self._refuse(round, f"remembers {known.memory!r:.80}", "a list of numbers")
        return clients

    def _refuse(self, round: int, did: str, expected: str) -> NoReturn:
        raise PluginError(
            f"round {round} cannot open: the selection policy {self.selection.policy} {did}; expected {expected}"
        )
