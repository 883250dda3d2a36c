"""Registration: which process hosts which clients, and whether all clients are hosted.

    request ─► offer (clients that no process hosts) ─► JOIN (proof) ─► WELCOME (versions, and the log up to them)
                                                                      └► REFUSE

A process that only wants to know the scenario asks for nobody, gets an offer of nobody, and leaves.

An offer reserves nothing: the first process that joins with a proof gets the clients. So a peer that takes offers and
never joins keeps nobody out. Clients without an earlier offer are offered first. Only trusted processes are offered the
evaluator, and only they determine the run's x₀: until it is known, other processes wait.

When a process is gone, its clients are offered to the next one that asks. If it was cut off, they are for a while
offered to nobody but itself; a process that replaces it is taken for it if it has the same key, or without keys if it
comes from the same network host. In simulated time nothing else changes, because placement is no part of the
simulation: the new process continues at the versions of the old one. In real time the clients have left the run until a
process joins with them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from seedbus.agents import messages
from seedbus.agents.catch_up.client import pack_notes, version_of
from seedbus.agents.observer import Observer
from seedbus.agents.server.coordinator import Coordinator
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import EVALUATOR, HOST, Bus, Declined, Envelope, HostRequest, Kind, MalformedEnvelope, Offer, decode
from seedbus.bus.clock import wall_seconds
from seedbus.bus.envelope import LOWEST_ADDRESS
from seedbus.bus.spans import Span, SpanSet, clients_in, merged
from seedbus.bus.text import counted
from seedbus.bus.transport import MAX_SPANS, NO_CLIENTS, NOT_YET, OPERATOR, Rights, addresses, count_of, hosted
from seedbus.pieces import Frame

NONCE_BYTES = 16


@dataclass(slots=True)
class _Worker:
    """A process that has an offer.

    Attributes:
        offer: what it may host.
        rights: what it may request.
        known_as: by what it would be known again.
        joins: its JOINs; a long one comes in parts.
        joined: its clients that have joined; no other process can join with them.
        is_member: whether all clients of the offer have joined.
    """

    offer: Offer
    rights: Rights
    known_as: frozenset[str] = frozenset()
    joins: list[messages.Join] = field(default_factory=list)
    joined: set[int] = field(default_factory=set)
    is_member: bool = False

    @property
    def addresses(self) -> list[int]:
        return addresses(self.offer.spans, self.offer.evaluates)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Clients that are kept for the process that hosted them, until `until_s`."""

    spans: SpanSet
    known_as: frozenset[str]
    until_s: float


class Registration:
    """Assigns a run's clients to processes.

    Args:
        bus: records the messages of registration.
        coordinator: decides whether clients may join.
        observer: notified of processes that join or are gone.
        scenario: what followers need to know of the run; part of each offer.
        processes: number of processes that share the clients evenly, unless a request states a count.
        on_change: called with clients that have joined, and in real time with those of a process that is gone.

    Attributes:
        missing: addresses of the followers that no member process hosts; nothing may be sent to them.
        has_begun: whether it was so once that rounds may begin.
    """

    def __init__(
        self,
        bus: Bus,
        coordinator: Coordinator,
        observer: Observer,
        *,
        scenario: bytes,
        processes: int,
        on_change: Callable[[Iterable[int]], None],
    ) -> None:
        self._bus = bus
        self._coordinator = coordinator
        self._observer = observer
        self._scenario = scenario
        self._processes = processes
        self._on_change = on_change
        self._workers: dict[int, _Worker] = {}
        self._kept: list[_Kept] = []
        self.has_begun = False
        clients = coordinator.participation.clients
        self._free = SpanSet([(0, clients - 1)])  # clients that no process has joined with
        self._preferred = self._free.copy()  # offered first: free and never offered, or an offer of them has ended
        self._is_evaluator_free = True
        self.missing = set(range(clients)) | {EVALUATOR}

    # -- called by a transport

    def greet(self, request: HostRequest, rights: Rights = OPERATOR) -> Offer | Declined:
        """Answer a process's request with an offer, if there is something that it may host."""
        spans = self._spans_to_offer(request, rights)
        if isinstance(spans, Declined):
            return spans
        host = next((number for number in range(HOST, LOWEST_ADDRESS, -1) if number not in self._workers), None)
        evaluates = request.evaluates and rights.evaluates and self._is_evaluator_unoffered
        if host is None or not (spans or evaluates or request.only_looks):
            is_unasked = rights.evaluates and not request.evaluates and self._is_evaluator_unoffered
            advice = "; the evaluator has none yet, and this key may host it: add --evaluator" if is_unasked else ""
            why = "are kept for processes that were cut off" if self._free else "have their processes"
            return Declined("no-clients", f"all clients of this run {why}{advice}")
        nonce = b"" if rights.evaluates else os.urandom(NONCE_BYTES)
        offer = Offer(host, spans, evaluates, self._scenario, nonce)
        for span in spans:
            self._preferred.discard(span)
        self._workers[host] = _Worker(offer, rights, request.known_as)
        return offer

    def admit(self, host: int, frame: Frame) -> tuple[list[Frame], bool] | Declined:
        """Process a JOIN of a process with an offer.

        Returns:
            The frames of the answer (WELCOME, REFUSE or none yet), and whether the process is a member now. Or
            `Declined`: if its reason is `NOT_YET`, call again once x₀ is known; else another process joined first.
        """
        worker = self._workers[host]
        if not worker.rights.evaluates and "x0" not in self._coordinator.joining.proofs:
            return Declined(NOT_YET, "the run does not know its own x₀ yet")
        try:
            return self._admitted(worker, decode(frame, host))
        except (MalformedEnvelope, BadPayload) as error:
            reason, detail = "bad-join", str(error)
        except ReportRefused as error:
            reason, detail = error.reason, str(error)
        self._coordinator.refused(host, reason, detail)
        self._bus.record_refused_join(host, frame)
        return [self._bus.record(messages.refuse(host, reason, detail))], False

    def _admitted(self, worker: _Worker, envelope: Envelope) -> tuple[list[Frame], bool] | Declined:
        """Process a JOIN as `admit` does. Raises `BadPayload`, `ReportRefused`."""
        host = worker.offer.host
        if envelope.kind is not Kind.JOIN or envelope.client != host:
            raise BadPayload(f"a {envelope.kind.name} of {envelope.client}, where the JOIN of {host} belongs")
        join = messages.Join.unpack(envelope)
        if not join.spans and (worker.offer.spans or not worker.offer.evaluates):
            raise BadPayload("it joins for nobody")
        # checked before any step whose cost grows with the number of clients
        self._coordinator.joining.check(join, worker.offer.nonce)
        spans = [(span.first, span.last) for span in join.spans]
        clients = _clients(spans, SpanSet(worker.offer.spans))
        if clients is None or not worker.joined.isdisjoint(clients):
            raise ReportRefused("claims-another", f"host {host} joins for clients that are not its own")
        left = self._left(self._free, worker.rights, worker.known_as)
        taken = next((client for span in spans if (client := left.lacks(span)) is not None), None)
        if taken is not None or (worker.offer.evaluates and not self._is_evaluator_free):
            who = "the evaluator" if taken is None else f"client {taken}"
            return Declined("taken", f"{who} is hosted by another process, which joined first")
        worker.joins.append(join)
        worker.joined.update(clients)
        for span in spans:
            for each in (self._free, self._preferred, *(kept.spans for kept in self._kept)):
                each.discard(span)
        is_last = len(worker.joined) == count_of(worker.offer.spans)
        if is_last:
            self._bring(worker)
        self._bus.record(envelope)
        if not is_last:
            return [], False
        worker.is_member = True
        self._is_evaluator_free = self._is_evaluator_free and not worker.offer.evaluates
        self.missing.difference_update(worker.addresses)
        self.has_begun = self.has_begun or self.may_begin
        self._on_change(worker.joined)
        welcome = self._welcome(worker)
        worker.joins.clear()
        return [welcome], True

    def _bring(self, worker: _Worker) -> None:
        """All JOINs of a process have come: its clients are members from now on, and not before, because nothing that
        is sent to them before its WELCOME would reach it. Raises `ReportRefused`: a JOIN is not accepted."""
        nonce, decides = worker.offer.nonce, worker.rights.evaluates
        for join in worker.joins:
            self._bus.send_all(self._coordinator.joined(join, nonce=nonce, decides=decides))

    def gone(self, host: int, why: str, kept_s: float = 0.0) -> None:
        """Remove a process that has ended or does not answer.

        Args:
            host: its address.
            why: a phrase for people.
            kept_s: for how long its clients are kept for it.
        """
        worker = self._workers.pop(host)
        if not worker.addresses:
            self._observer.noted("looked", peer=why.partition(": ")[0])
            return
        why += "" if worker.is_member else ", before it had joined"
        spans = _spans_of(sorted(worker.joined))
        self._kept.append(_Kept(SpanSet(spans), worker.known_as, wall_seconds() + kept_s))
        for span in spans:
            self._free.add(span)
        for span in worker.offer.spans:
            for part in self._free.within(span):
                self._preferred.add(part)
        if worker.is_member:
            self._is_evaluator_free = self._is_evaluator_free or worker.offer.evaluates
            self.missing.update(worker.addresses)
        clients = hosted(worker.offer.spans, evaluates=worker.offer.evaluates)
        self._observer.noted("gone", host=host, clients=clients, why=why, missing=self._missing_clients)
        if not self._bus.clock.is_virtual:
            self._bus.send_all(self._coordinator.left(worker.joined))
            self._on_change(worker.joined)

    def refused(self, peer: str, reason: str, detail: str) -> None:
        """Count a refusal of something that a peer sent."""
        self._coordinator.refused_peer(peer, reason, detail)

    @property
    def rounds_closed(self) -> int:
        return self._coordinator.round

    @property
    def may_begin(self) -> bool:
        """Whether all followers are hosted, or enough of them for a run that has closed rounds before: in real time one
        of them may have left it for good."""
        return not self.missing or (self.rounds_closed > 0 and self.can_go_on)

    @property
    def can_go_on(self) -> bool:
        """Whether enough followers are hosted: all in simulated time; in real time the evaluator and a quorum, of which
        one answers."""
        if self._bus.clock.is_virtual:
            return not self.missing
        policy, missing = self._coordinator.participation, len(self.missing)
        is_unheard = missing > 0 and self._coordinator.silent.is_unheard
        return EVALUATOR not in self.missing and policy.clients - missing >= policy.quorum and not is_unheard

    @property
    def could_go_on(self) -> bool:
        """Whether enough followers are hosted once the processes with an offer have joined."""
        participation, unoffered = self._coordinator.participation, self._unoffered().size
        needed = participation.clients if self._bus.clock.is_virtual else participation.quorum
        is_unheard = unoffered > 0 and self._coordinator.silent.is_unheard
        return not (self._is_evaluator_unoffered or is_unheard) and participation.clients - unoffered >= needed

    # -- called by the server

    @property
    def hosts(self) -> list[int]:
        """The addresses of all processes that have joined."""
        return sorted(host for host, worker in self._workers.items() if worker.is_member)

    # -- private

    @property
    def _missing_clients(self) -> int:
        return len(self.missing - {EVALUATOR})

    def _spans_to_offer(self, request: HostRequest, rights: Rights) -> tuple[Span, ...] | Declined:
        """The clients to offer in answer to a request."""
        if request.spans:
            return self._requested_spans(request, rights)
        if request.count == NO_CLIENTS:
            return ()
        free = self._left(self._free, rights, request.known_as)
        preferred = self._left(self._preferred, rights, request.known_as)
        if free and request.count > free.size:
            detail = f"{counted(request.count, 'client')} asked for, {free.size:,} left"
            if request.count > _permitted(self._free, rights).size:
                return Declined("too-many", detail)
            return Declined("taken", f"{detail}, and others are kept for processes that were cut off")
        sharing = [worker for worker in self._workers.values() if worker.offer.spans]  # others host the evaluator only
        if preferred and request.count <= preferred.size:
            spans = preferred.lowest(request.count or self._share(preferred, len(sharing), rights))
            if len(spans) <= MAX_SPANS:
                return spans
        # The free clients have been offered before, or are split into too many spans. Offers reserve nothing, so they
        # are offered again: the first process that joins gets them.
        members = sum(worker.is_member for worker in sharing)
        return free.lowest(request.count or self._share(free, members, rights))[:MAX_SPANS]

    def _share(self, clients: SpanSet, others: int, rights: Rights) -> int:
        """The number of clients for a process that states none.

        Args:
            clients: those that may be offered.
            others: number of processes that have their share already.
            rights: of the process. Clients that belong to its key are not shared.
        """
        processes = self._processes - others if rights.spans is None else 1
        return -(-clients.size // max(1, processes))

    def _requested_spans(self, request: HostRequest, rights: Rights) -> tuple[Span, ...] | Declined:
        """Exactly the clients that are requested, if all of them are free and permitted."""
        spans = merged(request.spans)
        last = self._coordinator.participation.clients - 1
        if spans[-1][1] > last:
            return Declined("unknown-client", f"client {spans[-1][1]} is none of this run's 0 … {last}")
        if rights.spans is not None:
            permitted = SpanSet(rights.spans)
            denied = next((client for span in spans if (client := permitted.lacks(span)) is not None), None)
            if denied is not None:
                return Declined("not-authorised", f"its key is not authorised for client {denied}")
        left = self._left(self._free, rights, request.known_as)
        taken = next((client for span in spans if (client := left.lacks(span)) is not None), None)
        if taken is not None:
            is_kept = self._free.lacks((taken, taken)) is None
            how = "kept for another process, which was cut off" if is_kept else "hosted by another process"
            return Declined("taken", f"client {taken} is {how}")
        return spans

    def _left(self, clients: SpanSet, rights: Rights, known_as: frozenset[str]) -> SpanSet:
        """Those of some clients that a process may host: it has the rights, and they are kept for nobody else."""
        now_s = wall_seconds()
        self._kept = [kept for kept in self._kept if kept.spans and kept.until_s > now_s]
        left = _permitted(clients, rights)
        others = [] if rights.is_own else [kept for kept in self._kept if kept.known_as.isdisjoint(known_as)]
        left = left.copy() if others else left
        for span in (span for kept in others for span in kept.spans):
            left.discard(span)
        return left

    def _unoffered(self) -> SpanSet:
        """Free clients that no process has an offer of."""
        unoffered = self._free.copy()
        for worker in self._workers.values():
            if not worker.is_member:
                for span in worker.offer.spans:
                    unoffered.discard(span)
        return unoffered

    @property
    def _is_evaluator_unoffered(self) -> bool:
        return self._is_evaluator_free and not any(worker.offer.evaluates for worker in self._workers.values())

    def _welcome(self, worker: _Worker) -> Frame:
        """The WELCOME: the version of each follower, and all commits that they need to get there, from the
        journal's base on if it has one.

        In simulated time these are the actual versions, with the notes of incomplete downloads: a process that replaces
        another one continues where that one was. In real time clients are where the server believes them to be: those
        that come back with what they held need no commit for it.
        """
        is_real_time = not self._bus.clock.is_virtual
        positions = self._coordinator.positions
        versions = [
            (positions.believed if is_real_time and address != EVALUATOR else positions.actual).get(address, 0)
            for address in worker.addresses
        ]
        pruned = self._coordinator.base
        if pruned is not None:  # who is before it begins anew
            versions = [version if version >= pruned.version else 0 for version in versions]
        partial_downloads = {} if is_real_time else positions.partial_downloads
        notes = [
            (partial_downloads[address], base)
            for address, version in zip(worker.addresses, versions, strict=True)
            if partial_downloads.get(address) and (base := version_of(partial_downloads[address], address)) > version
        ]
        last = max([*versions, *(base for _, base in notes)], default=0)
        if is_real_time and _stated(worker.joins) == versions:
            last, pruned = 0, None
        log = self._coordinator.history.between(0, last)
        packed_notes = pack_notes([note for note, _ in notes])
        algorithm, newest = self._coordinator.algorithm, self._coordinator.version
        welcome = messages.welcome(algorithm, worker.offer.host, newest, versions, log, packed_notes, pruned)
        clients = hosted(worker.offer.spans, evaluates=worker.offer.evaluates)
        lacks = {"lacks_evaluator": True} if EVALUATOR in self.missing else {}
        self._observer.noted("joined", host=worker.offer.host, clients=clients, missing=self._missing_clients, **lacks)
        return self._bus.record(welcome)


def _stated(joins: Sequence[messages.Join]) -> list[int]:
    """The versions at which a process says that its clients are, by client."""
    return [span.version for join in joins for span in join.spans for _ in range(span.first, span.last + 1)]


def _clients(spans: Sequence[Span], offered: SpanSet) -> list[int] | None:
    """The clients of a JOIN's spans; None if not all of them are among those that were offered."""
    if any(offered.lacks(span) is not None for span in spans) or count_of(spans) > offered.size:
        return None
    return clients_in(spans)


def _permitted(spans: SpanSet, rights: Rights) -> SpanSet:
    """The clients of `spans` that a peer with these rights may host."""
    if rights.spans is None:
        return spans
    permitted = spans.copy()
    for first, last in SpanSet(rights.spans).gaps():
        permitted.discard((first, last))
    return permitted


def _spans_of(clients: Iterable[int]) -> tuple[Span, ...]:
    return tuple((span.first, span.last) for span in messages.spans([(client, 0) for client in clients]))
