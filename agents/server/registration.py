"""Where processes introduce themselves: who hosts whom, and whether everybody is there.

    wish ─► offer (clients nobody hosts) ─► JOIN (proof) ─► WELCOME (where to stand, and the log to get there)
                                                          └► REFUSE

An offer reserves nothing: the first process that joins with a proof has the clients, so a peer that takes offers and
makes nothing of them keeps nobody out. Clients that no other process was offered are offered first. The evaluator is
offered to trusted processes only, and x₀ is theirs to say: until the run knows its own, others wait.

A process that is gone leaves its clients to the next that asks. In simulated time nothing else comes of it: who hosts
whom is no part of the simulation, and the newcomer stands where the old one stood. In real time its clients have left
the run until somebody joins with them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from seedbus.agents import messages
from seedbus.agents.client.downloads import pack_notes, version_of
from seedbus.agents.observer import Observer
from seedbus.agents.refusals import Refusal
from seedbus.agents.server.coordinator import Coordinator
from seedbus.algorithms.contract import BadPayload
from seedbus.bus import EVALUATOR, HOST, Bus, Declined, HostRequest, Kind, MalformedEnvelope, Offer, decode
from seedbus.bus.envelope import LOWEST_ADDRESS
from seedbus.bus.spans import Span, SpanSet, merged
from seedbus.bus.transport import MAX_SPANS, NO_CLIENTS, NOT_YET, OPERATOR, Rights, addresses

NONCE_BYTES = 16


@dataclass(slots=True)
class _PendingWorker:
    """A process that has an offer. joined: those of its clients that have joined, which are nobody else's then."""

    offer: Offer
    rights: Rights
    joined: set[int] = field(default_factory=set)
    is_member: bool = False

    @property
    def addresses(self) -> list[int]:
        return addresses(self.offer.spans, self.offer.evaluates)


class Registration:
    """Gives out a run's clients to processes.

    scenario: what a process is told of the run; processes: how many share the clients, where they do not say how many
    they take; held: where the followers stand; partial_downloads: their notes of half snapshots (`downloads`); came:
    told of plans
    to send anew, once a process has come or gone.
    """

    def __init__(
        self,
        bus: Bus,
        coordinator: Coordinator,
        observer: Observer,
        *,
        scenario: bytes,
        processes: int,
        held: Callable[[], Mapping[int, int]],
        partial_downloads: Callable[[], Mapping[int, bytes]] = dict,
        came: Callable[[], None],
    ) -> None:
        self._bus, self._coordinator, self._observer = bus, coordinator, observer
        self._scenario, self._processes, self._came = scenario, processes, came
        self._held, self._partial_downloads = held, partial_downloads
        self._guests: dict[int, _PendingWorker] = {}
        self.was_complete = False
        clients = coordinator.participation.clients
        self._free = SpanSet([(0, clients - 1)])  # clients that no process has joined with
        self._fresh = self._free.copy()  # those of them that nobody has been offered, or whose last offer is over
        self._is_evaluator_free = True
        self.missing = set(range(clients)) | {EVALUATOR}
        """Those whom no process hosts that has joined; not to be written to."""

    # -- what a transport asks

    def greet(self, wish: HostRequest, rights: Rights = OPERATOR) -> Offer | Declined:
        spans = self._chosen(wish, rights)
        if isinstance(spans, Declined):
            return spans
        host = next((number for number in range(HOST, LOWEST_ADDRESS, -1) if number not in self._guests), None)
        evaluates = wish.evaluates and rights.evaluates and self._is_evaluator_unoffered
        if host is None or not (spans or evaluates):
            return Declined("no-clients", f"all {self._coordinator.participation.clients} clients have their processes")
        nonce = b"" if rights.evaluates else os.urandom(NONCE_BYTES)
        offer = Offer(host, spans, evaluates, self._scenario, nonce)
        for span in spans:
            self._fresh.discard(span)
        self._guests[host] = _PendingWorker(offer, rights)
        return offer

    def admit(self, host: int, frame: bytes) -> tuple[list[bytes], bool] | Declined:
        guest = self._guests[host]
        if not guest.rights.evaluates and "x0" not in self._coordinator.proofs:
            return Declined(NOT_YET, "the run does not know its own x₀ yet")
        try:
            envelope = decode(frame, host)
            if envelope.kind is not Kind.JOIN or envelope.client != host:
                raise BadPayload(f"a {envelope.kind.name} of {envelope.client}, where the JOIN of {host} belongs")
            join = messages.Join.unpack(envelope)
            if not join.spans and guest.offer.spans:
                raise BadPayload("it joins for nobody")
        except (MalformedEnvelope, BadPayload) as error:
            return self._refuse(frame, host, "bad-join", str(error))
        refusal = self._coordinator.objected(join, guest.offer.nonce)
        if refusal is not None:  # before anything is done that takes as long as there are clients
            self._observer.refused(refusal)
            return self._refuse(frame, host, refusal.reason, refusal.detail, refusal)
        clients = _clients(join, len(guest.addresses))
        if clients is None or not set(clients) <= set(guest.addresses) - guest.joined:
            return self._refuse(frame, host, "claims-another", f"host {host} joins for clients that are not its own")
        spans = [(span.first, span.last) for span in join.spans if span.first <= span.last]
        taken = next((client for span in spans if (client := self._free.lacks(span)) is not None), None)
        if taken is not None or (guest.offer.evaluates and not self._is_evaluator_free):
            who = "the evaluator" if taken is None else f"client {taken}"
            return Declined("taken", f"{who} is hosted by another process, which joined first")
        refusal = self._coordinator.joined(join, nonce=guest.offer.nonce, decides=guest.rights.evaluates)
        if refusal is not None:
            self._observer.refused(refusal)
            return self._refuse(frame, host, refusal.reason, refusal.detail, refusal)
        self._bus.record(envelope)
        guest.joined.update(clients)
        for span in spans:
            self._free.discard(span)
            self._fresh.discard(span)
        guest.is_member = len(guest.joined) == sum(last - first + 1 for first, last in guest.offer.spans)
        if guest.is_member:
            self._is_evaluator_free = self._is_evaluator_free and not guest.offer.evaluates
            self.missing.difference_update(guest.addresses)
        self.was_complete = self.was_complete or not self.missing
        self._came()
        return ([self._welcome(guest)], True) if guest.is_member else ([], False)

    def gone(self, host: int, why: str) -> None:
        guest = self._guests.pop(host)
        for span in _spans(sorted(guest.joined)):
            self._free.add(span)
        for span in guest.offer.spans:
            for part in self._free.within(span):
                self._fresh.add(part)
        if guest.is_member:
            self._is_evaluator_free = self._is_evaluator_free or guest.offer.evaluates
            self.missing.update(guest.addresses)
        self._observer.noted("gone", host=host, clients=_named(guest.offer.spans), why=why)
        if not self._bus.clock.is_virtual:
            self._coordinator.left(guest.joined)
            self._came()

    def refused(self, peer: str, reason: str, detail: str) -> None:
        refusal = self._coordinator.refused_peer(peer, reason, detail)
        if refusal is not None:
            self._observer.refused(refusal)

    @property
    def rounds_closed(self) -> int:
        return self._coordinator.round

    @property
    def can_go_on(self) -> bool:
        """In simulated time nobody may be missing; in real time there must be an evaluator, and hosts of a quorum."""
        if self._bus.clock.is_virtual:
            return not self.missing
        policy = self._coordinator.participation
        return EVALUATOR not in self.missing and policy.clients - len(self.missing) >= policy.quorum

    @property
    def could_go_on(self) -> bool:
        participation, unoffered = self._coordinator.participation, self._unoffered().size
        needed = participation.clients if self._bus.clock.is_virtual else participation.quorum
        return not self._is_evaluator_unoffered and participation.clients - unoffered >= needed

    # -- what the server asks

    @property
    def hosts(self) -> list[int]:
        """The addresses of all processes that have joined."""
        return sorted(host for host, guest in self._guests.items() if guest.is_member)

    # -- inside

    def _chosen(self, wish: HostRequest, rights: Rights) -> tuple[Span, ...] | Declined:
        """The clients that a wish gets."""
        if wish.spans:
            return self._wished(wish, rights)
        if wish.count == NO_CLIENTS:
            return ()
        free, chosen = _within(self._free, rights), _within(self._fresh, rights)
        if free and wish.count > free.size:
            return Declined("too-many", f"{wish.count} clients are asked for and {free.size} are left")
        sharing = [guest for guest in self._guests.values() if guest.offer.spans]  # not who only evaluates
        if chosen and wish.count <= chosen.size:
            spans = chosen.lowest(wish.count or self._share(chosen, len(sharing), rights))
            if len(spans) <= MAX_SPANS:
                return spans
        # what is left has been offered, or offers have broken it up: they bind nobody, and whoever joins first has it
        members = sum(guest.is_member for guest in sharing)
        return free.lowest(wish.count or self._share(free, members, rights))[:MAX_SPANS]

    def _share(self, clients: SpanSet, others: int, rights: Rights) -> int:
        """How many of these a process gets that does not say; others: those who share them with it."""
        processes = self._processes - others if rights.spans is None else 1  # a key's clients are its own
        return -(-clients.size // max(1, processes))

    def _wished(self, wish: HostRequest, rights: Rights) -> tuple[Span, ...] | Declined:
        """These clients and no others, if they may be had."""
        spans, last = merged(wish.spans), self._coordinator.participation.clients - 1
        if spans[-1][1] > last:
            return Declined("unknown-client", f"client {spans[-1][1]} is none of this run's 0 … {last}")
        if rights.spans is not None:
            allowed = SpanSet(rights.spans)
            denied = next((client for span in spans if (client := allowed.lacks(span)) is not None), None)
            if denied is not None:
                return Declined("not-authorised", f"its key is not authorised for client {denied}")
        taken = next((client for span in spans if (client := self._free.lacks(span)) is not None), None)
        if taken is not None:
            return Declined("taken", f"client {taken} is hosted by another process")
        return spans

    def _unoffered(self) -> SpanSet:
        """Free clients that no process has an offer of."""
        unoffered = self._free.copy()
        for guest in self._guests.values():
            if not guest.is_member:
                for span in guest.offer.spans:
                    unoffered.discard(span)
        return unoffered

    @property
    def _is_evaluator_unoffered(self) -> bool:
        return self._is_evaluator_free and not any(guest.offer.evaluates for guest in self._guests.values())

    def _welcome(self, guest: _PendingWorker) -> bytes:
        held, versions = self._held(), self._coordinator.versions
        believes = not self._bus.clock.is_virtual
        stands = [(versions if believes and a != EVALUATOR else held).get(a, 0) for a in guest.addresses]
        partial_downloads = {} if believes else self._partial_downloads()
        notes = [
            (partial_downloads[address], base)
            for address, stand in zip(guest.addresses, stands, strict=True)
            if partial_downloads.get(address) and (base := version_of(partial_downloads[address], address)) > stand
        ]
        log = self._coordinator.history.between(0, max([*stands, *(base for _, base in notes)], default=0))
        version, packed = self._coordinator.version, pack_notes([note for note, _ in notes])
        answer = messages.welcome(self._coordinator.algorithm, guest.offer.host, version, stands, log, packed)
        missing = len(self.missing - {EVALUATOR})
        self._observer.noted("joined", host=guest.offer.host, clients=_named(guest.offer.spans), missing=missing)
        return self._bus.record(answer)

    def _refuse(
        self, frame: bytes, host: int, reason: str, detail: str, refusal: Refusal | None = None
    ) -> tuple[list[bytes], bool]:
        if refusal is None:
            self._observer.refused(self._coordinator.refused(host, reason, detail))
        self._bus.record_refused_join(host, frame)
        return [self._bus.record(messages.refuse(host, reason, detail))], False


def _clients(join: messages.Join, most: int) -> list[int] | None:
    """The clients of a JOIN, or nothing if they are more than there can be."""
    if sum(span.last - span.first + 1 for span in join.spans) > most:
        return None
    return [client for span in join.spans for client in range(span.first, span.last + 1)]


def _within(spans: SpanSet, rights: Rights) -> SpanSet:
    """Those of them that a peer may host."""
    if rights.spans is None:
        return spans
    allowed = spans.copy()
    for first, last in SpanSet(rights.spans).gaps():
        allowed.discard((first, last))
    return allowed


def _spans(clients: Iterable[int]) -> tuple[Span, ...]:
    return tuple((span.first, span.last) for span in messages.spans([(client, 0) for client in clients]))


def _named(spans: Iterable[Span]) -> str:
    """clients 1…5, 9"""
    named = ", ".join(f"{first}…{last}" if last > first else f"{first}" for first, last in spans)
    return f"clients {named}" if named else "no clients"
