"""The coordinator: what the server decides, without a single await.

    join ─► open_round ─► report … report ─► close_round ─► (durable) ─► published ─► open_round ─► …
                          refused, deadline ┘

Rules
- Events go in (`joined`, `reported`, `deadline_passed`, `evaluated`), envelopes and decisions come out; whoever calls
  does the sending, the waiting and the storing.
- Reports are kept by client and aggregated in client order: who was fast never shows.
- A report counts at most once, for the open round and from its cohort only; everything else is a `Refusal`, counted
  by reason and client, and the round goes on.
- Commits are made only in `close_round`, so a cohort starts at one version.
- All that the future depends on is in `checkpoint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seedbus.agents import messages
from seedbus.agents.admission import why_not
from seedbus.agents.messages import AnyAlgorithm, Evaluation, Join
from seedbus.agents.participation import Participation
from seedbus.agents.refusals import NOBODY, Refusal, Refusals
from seedbus.agents.stopping import Cadence, Progress, Stop
from seedbus.agents.verification import Verifier
from seedbus.algorithms.contract import BadPayload, ReportRefused, whole_digest
from seedbus.bus import Envelope, Tally
from seedbus.bus.draws import bits

Outgoing = tuple[Envelope, Tally]


@dataclass(frozen=True, slots=True)
class Closed:
    """A round that is over. commit is None if it had no quorum."""

    round: int
    version: int
    cohort: tuple[int, ...]
    reported: tuple[int, ...]
    commit: Any


@dataclass(slots=True)
class _Open:
    """The round under way."""

    plan: Any
    cohort: list[int]
    waiting: set[int]
    reports: dict[int, Any] = field(default_factory=dict)
    told: dict[int, Outgoing] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)


class Coordinator:
    """The server's decisions for one run.

    proofs: what every process must show ("selftest", "x0"), or what the first one does if it is not said. believes:
    whether a process that comes back is at the versions that it says; else (simulated time) that a process went and
    came never happened.
    """

    def __init__(
        self,
        algorithm: AnyAlgorithm,
        participation: Participation,
        *,
        seed: int,
        stop: Stop,
        evaluation: Cadence,
        verify_every: int = 0,
        proofs: Mapping[str, bytes] | None = None,
        believes: bool = True,
    ) -> None:
        self.algorithm, self.participation, self.seed = algorithm, participation, seed
        self.stop, self.evaluation, self.verifier = stop, evaluation, Verifier(verify_every)
        self.round = 0
        self.log: list[Any] = []
        self.versions: dict[int, int] = {}
        self.refusals = Refusals()
        self.progress = Progress()
        self.last_digest = ""
        self._members: dict[int, None] = {}
        self._moved: set[int] = set()
        self._state: Any = None
        self._open: _Open | None = None
        self.proofs, self._believes = dict(proofs or {}), believes

    @property
    def version(self) -> int:
        return len(self.log)

    # -- members

    def joined(self, join: Join) -> tuple[list[Outgoing], Refusal | None]:
        """A process brings clients, or a client says where it really is; returns plans for those that have one to
        answer, or a refusal."""
        objection = why_not(join, self.proofs, self.participation.clients, self.version, self._members)
        if objection is not None:
            return [], self.refused(join.sender, *objection)
        self.proofs = join.proofs | self.proofs
        plans, is_alone = [], join.sender >= 0
        if is_alone and self._open is not None:
            if join.sender in self._open.lost:
                detail = f"client {join.sender} says twice in a round that it has lost its place"
                return [], self.refused(join.sender, "joins-again", detail)
            self._open.lost.add(join.sender)
        for span in join.spans:
            for client in range(span.first, span.last + 1):
                self._members[client] = None
                if client not in self.versions or is_alone or self._believes:
                    self._place(client, span.version)
                    if self._open is not None and client in self._open.waiting:
                        plans.append(self._told(client))  # it lost its place: the plan again, from where it really is
        return plans, None

    def left(self, clients: Iterable[int]) -> None:
        """Clients are gone; nobody waits for them, and none is asked until it has joined again."""
        for client in clients:
            self._members.pop(client, None)
            if self._open is not None:
                self._open.waiting.discard(client)

    @property
    def has_members(self) -> bool:
        """True when there are enough members for a commit."""
        return len(self._members) >= self.participation.quorum

    # -- rounds

    def open_round(self) -> list[Outgoing]:
        """Begin the next round; returns its plans, one for each of the cohort."""
        cohort = self.participation.draw(sorted(self._members), self.seed, self.round)
        plan = self.algorithm.plan(self.round, self.version, bits(self.seed, "directions", self.round))
        self._open = _Open(plan, cohort, set(cohort))
        return [self._told(client) for client in cohort]

    def reported(self, envelope: Envelope) -> Refusal | None:
        """A report came in. Returns why it was refused, or None if it counts."""
        try:
            self._accept(envelope)
            return None
        except BadPayload as error:
            return self.refused(envelope.client, "bad-payload", str(error), envelope.round)
        except ReportRefused as error:
            return self.refused(envelope.client, error.reason, str(error), envelope.round)

    def refused(self, client: int, reason: str, detail: str, round: int | None = None) -> Refusal:
        """Count a refusal. Whoever answers the open round badly has answered: the round does not wait for it."""
        self.refusals.clients[client, reason] += 1
        if self._open is not None and reason in _ANSWERS_BADLY and round in (None, self.round):
            self._open.waiting.discard(client)
        return Refusal(client, self.round if round is None else round, reason, detail)

    def refused_peer(self, peer: str, reason: str, detail: str) -> Refusal | None:
        """Count a refusal of what came from no member of the run; None once there are too many to tell of each."""
        if not self.refusals.of_peer(peer, reason):
            return None
        return Refusal(NOBODY, self.round, reason, f"{peer}: {detail}")

    def deadline_passed(self, round: int) -> None:
        """The open round closes without those that have not answered."""
        if self._open is not None and round == self.round:
            self._open.waiting.clear()

    @property
    def is_round_over(self) -> bool:
        return self._open is not None and not self._open.waiting

    @property
    def missing(self) -> list[int]:
        """The clients that the open round waits for."""
        return sorted(self._open.waiting) if self._open is not None else []

    def close_round(self) -> Closed:
        """Aggregate, if there is a quorum. The commit is to be made durable before anybody hears of it."""
        assert self._open is not None
        now, commit = self._open, None
        if len(now.reports) >= self.participation.quorum:
            commit, self._state = self.algorithm.aggregate(self._state, now.plan, now.reports)
            self.log.append(commit)
        closed = Closed(self.round, self.version, tuple(now.cohort), tuple(sorted(now.reports)), commit)
        self._open = None
        self.round += 1
        return closed

    def published(self, closed: Closed, bytes_so_far: int) -> Envelope | None:
        """What the evaluator is told once the round is durable."""
        self.progress.bytes = bytes_so_far
        is_last = self.stop.reason(self.round, self.progress) is not None
        if is_last or self.round % self.evaluation.every == 0:
            return self.ask_evaluator(closed)
        if closed.commit is None:
            return None
        wants = messages.DIGEST * self.verifier.is_due(self.version)
        return messages.pack_commit(self.algorithm, closed.round, self.version, [closed.commit], wants)

    def ask_evaluator(self, closed: Closed | None = None) -> Envelope:
        """Asks for metrics and digests, of x₀ if no round is given."""
        self.progress.awaited += 1
        commits = [closed.commit] if closed is not None and closed.commit is not None else []
        wants = messages.EVALUATE | messages.DIGEST
        return messages.pack_commit(self.algorithm, closed.round if closed else 0, self.version, commits, wants)

    # -- measurements

    def evaluated(
        self, evaluation: Evaluation, now_ns: int, bytes_up: int, bytes_down: int
    ) -> tuple[dict[str, Any] | None, list[Refusal]]:
        """The evaluator answered; returns the line of metrics, if there is one, and who turns out to have diverged."""
        diverged = []
        if evaluation.digests:
            self.last_digest = whole_digest(evaluation.version, evaluation.digests)
            for client, difference in self.verifier.settled(evaluation.version, evaluation.digests):
                diverged.append(self.refused(client, "diverged", difference))
        if not evaluation.metrics:
            return None, diverged
        return self.progress.measured(evaluation, self.stop, now_ns, bytes_up, bytes_down), diverged

    def finished(self) -> str | None:
        """Why the run is over, or None if it is not."""
        return self.stop.reason(self.round, self.progress)

    @property
    def awaits_metric(self) -> bool:
        """True while the next round must wait for a metric, because a target may have been met."""
        return self.progress.awaited > 0 and (self.stop.target is not None or self.finished() is not None)

    # -- checkpoints

    def checkpoint(self) -> list[Any]:
        """All that the future depends on, but the log and the members' versions, which are kept a row each."""
        assert self._state is None, "an algorithm with server state needs it in the checkpoint"
        return [self.round, self.refusals.pack(), self.progress.pack(), self.verifier.pack()]

    def take_moved(self) -> list[tuple[int, int]]:
        """(client, version) of the members that joined or moved since the last call."""
        moved = [(client, self.versions[client]) for client in sorted(self._moved)]
        self._moved.clear()
        return moved

    def restore(self, checkpoint: list[Any], log: list[Any], versions: dict[int, int]) -> None:
        self.round, refusals, progress, truth = checkpoint
        self.refusals.unpack(refusals)
        self.progress = Progress.unpack(progress)
        self.verifier.unpack(truth)
        self.log, self.versions = log, dict(versions)
        if not self._believes:
            self._members = dict.fromkeys(sorted(versions))

    # -- inside

    def _told(self, client: int) -> Outgoing:
        assert self._open is not None
        version, told = self.versions[client], self._open.told
        if version not in told:  # whoever stands at one version is told the same
            told[version] = messages.pack_plan(self.algorithm, client, self._open.plan, self.log[version:])
        envelope, tally = told[version]
        return replace(envelope, client=client), tally

    def _place(self, client: int, version: int) -> None:
        self.versions[client] = version
        self._moved.add(client)

    def _accept(self, envelope: Envelope) -> None:
        now, client = self._open, envelope.client
        if client not in self.versions:
            raise ReportRefused("not-a-member", f"client {client} never joined")
        if envelope.round < self.round or now is None:
            raise ReportRefused("late", f"round {envelope.round} is closed")
        if envelope.round > self.round:
            raise ReportRefused("wrong-round", f"round {envelope.round} has not begun; this is round {self.round}")
        if client in now.reports:
            raise ReportRefused("duplicate", f"client {client} has reported in round {self.round}")
        if client not in now.waiting:
            raise ReportRefused("not-asked", f"client {client} is not asked in round {self.round}")
        if envelope.base != now.plan.version:
            raise ReportRefused("wrong-version", f"it started at version {envelope.base}, not {now.plan.version}")
        is_due = self.verifier.is_due(envelope.base)
        report, claim = messages.unpack_report(self.algorithm, envelope, now.plan, has_digests=is_due)
        self.algorithm.check(now.plan, report)
        difference = self.verifier.claimed(client, envelope.base, claim) if is_due else None
        if difference is not None:
            raise ReportRefused("diverged", difference)
        now.reports[client] = report
        now.waiting.discard(client)
        self._place(client, envelope.base)


_ANSWERS_BADLY = frozenset(
    "malformed bad-payload shape not-finite absurd wrong-version diverged "
    "joins-again foreign-version claims-another selftest x0".split()  # the last five: a JOIN in the place of a report
)
