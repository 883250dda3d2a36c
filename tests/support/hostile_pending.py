"""Peers that have been offered a client and misuse the offer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
from hostile_packets import TOO_LONG, column, hello
from hostile_peers import Peer
from processes import HANGS_S

from seedbus.agents.messages import Join, Span
from seedbus.bus import Envelope, Kind, encode
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES
from seedbus.bus.zeromq.packet import NO_SESSION, Type
from seedbus.bus.zeromq.server.connection import STRANGERS_STRIKES as STRIKES

CLIENT = 7  # the client that they are offered


class PendingPeer:
    """A peer with a session that has not joined. proof: the self-test and the x₀ digest of the run's processes."""

    def __init__(self, port: int, proof: Mapping[str, bytes]) -> None:
        self.port = port
        self.proof = proof
        self.greet(Peer(port))

    def greet(self, peer: Peer) -> None:
        """Get an offer; retry while the previous host of the client is still leaving."""
        until = time.monotonic() + HANGS_S
        while time.monotonic() < until:
            self.peer = peer.send(hello(b"", column(CLIENT, CLIENT), 0, 0))
            answer = packet.read(self.peer.receive())
            if answer.type is Type.OFFER:
                self.session, self.host = answer.session, packet.read_offer(answer.content)[1].host
                return
            peer.close()
            time.sleep(0.02)
            peer = Peer(self.port)
        raise AssertionError("client 7 is never free")

    @property
    def names(self) -> set[str]:
        """The names that its refusals are counted under."""
        return {self.peer.name, f"host {self.host} at {self.peer.name}", str(self.host)}

    def say(self, type: Type, *content: bytes | memoryview) -> None:
        self.peer.send(packet.packet(type, self.session, *content))

    def post(self, *frames: bytes) -> None:
        self.say(Type.POST, b"".join(map(packet.entry, frames)))

    def join(self, spans: Sequence[Sequence[int]] = ((CLIENT, CLIENT, 0),), **changes: Any) -> bytes:
        """Return the correct JOIN frame, but for the changes."""
        fields: dict[str, Any] = {"sender": self.host, "spans": tuple(Span(*span) for span in spans)}
        fields |= dict(self.proof) | changes
        return encode(Join(**fields).pack())[0]

    def frame(self, kind: Kind, body: list[Any], **header: int) -> bytes:
        """Return the frame of any envelope."""
        return encode(Envelope(kind, header.get("client", self.host), header.get("round", 0), 0, body))[0]


@dataclass(frozen=True)
class PendingCase:
    """What a peer with an offer does, and how it is refused.

    Attributes:
        name: the case's test id.
        play: does it.
        refusals: reason → how often.
        is_hung_up: whether the hub ends the connection.
    """

    name: str
    play: Callable[[PendingPeer], object]
    refusals: Mapping[str, int]
    is_hung_up: bool = False

    def __str__(self) -> str:
        return self.name


def _posts(name: str, reason: str, make: Callable[[PendingPeer], bytes], times: int = 1) -> PendingCase:
    """A case of frames in one POST, of which the first is refused, and with it the peer."""
    return PendingCase(name, lambda pending: pending.post(*[make(pending)] * times), {reason: 1})


def _joins() -> Iterator[PendingCase]:
    yield _posts("guest-join-of-another-host", "bad-join", lambda g: g.join(sender=g.host - 1))
    yield _posts("guest-join-of-the-client", "bad-join", lambda g: g.join(sender=CLIENT))
    for kind in set(Kind) - {Kind.JOIN, Kind.LINK}:
        yield _posts(f"{kind.name.lower()}-for-a-join", "bad-join", lambda g, own=kind: g.frame(own, [[], b"", b""]))
    yield _posts("guest-join-of-no-bytes", "bad-join", lambda g: b"")
    yield _posts("guest-join-of-noise", "bad-join", lambda g: b"\x93\x01\x02\x03")
    yield _posts("guest-join-cut-short", "bad-join", lambda g: g.join()[:-1])
    yield _posts("guest-join-with-a-trailing-byte", "bad-join", lambda g: g.join() + b"\0")
    yield _posts("guest-join-of-4-kb", "bad-join", lambda g: g.join() + bytes(4000))
    yield PendingCase("guest-join-of-100-kib", lambda g: g.post(g.join() + bytes(100_000)), TOO_LONG, True)
    spans: dict[str, Any] = {"a-number": 7, "one-number": [[7]], "two": [[7, 7]], "floats": [[7.0, 7.0, 0.0]]}
    spans |= {"bools": [[True, True, False]], "negative": [[-1, 7, 0]], "too-high": [[7, 2**32, 0]], "words": ["7-7"]}
    for what, value in spans.items():
        body = [value, b"", b""]
        yield _posts(f"guest-join-spans-{what}", "bad-join", lambda g, own=body: g.frame(Kind.JOIN, own))
    for size, fields in enumerate(([], [[]], [[], b""], [[], b"", b"", b""], [b"", b"", []])):
        yield _posts(f"guest-join-fields-{size}", "bad-join", lambda g, own=fields: g.frame(Kind.JOIN, list(own)))
    yield _posts("guest-join-selftest-wrong", "selftest", lambda g: g.join(selftest=bytes(8)))
    yield _posts("guest-join-selftest-empty", "selftest", lambda g: g.join(selftest=b""))
    yield _posts("guest-join-x0-wrong", "x0", lambda g: g.join(x0=bytes(8)))
    yield _posts("guest-join-x0-long", "bad-join", lambda g: g.join(x0=bytes(1000)))
    yield _posts("guest-join-of-a-foreign-version", "foreign-version", lambda g: g.join([(CLIENT, CLIENT, 10**6)]))
    claims: dict[str, list[tuple[int, int, int]]] = {
        "others": [(0, 3, 0)],
        "all": [(0, CLIENT, 0)],
        "beyond": [(CLIENT, CLIENT + 1, 0)],
        "thousand-millions": [(0, 2**32 - 1, 0)],
        "thousand-millions-64-times": [(0, 2**32 - 1, 0)] * 64,
        "twice": [(CLIENT, CLIENT, 0)] * 2,
    }
    for what, spans_of in claims.items():
        yield _posts(f"guest-join-claims-{what}", "claims-another", lambda g, own=spans_of: g.join(own))
    backwards = [(0, 2**32 - 1, 0), (2**32 - 1, 0, 0), (9, 0, 0)]  # the sum of their sizes is right
    yield _posts("guest-join-backwards", "bad-join", lambda g: g.join(backwards))
    yield _posts("guest-join-backwards-for-nobody", "bad-join", lambda g: g.join([(CLIENT, CLIENT - 1, 0)]))
    yield _posts("guest-join-for-nobody", "bad-join", lambda g: g.join([]))
    yield _posts("guest-join-for-nobody-many-times", "bad-join", lambda g: g.join([]), 50)


def _stale(times: int) -> dict[str, int]:
    """The refusals of a peer that uses a wrong session until it is hung up on. Leaving before costs it a strike."""
    return {"stale-session": times, "too-many-refusals": 1}


def _memberships() -> Iterator[PendingCase]:
    """A peer that has joined properly is a member: its mistakes on the wire are counted, and it stays."""
    again = {"joined-already": 1}
    yield PendingCase("joins-twice-in-one-post", lambda g: g.post(g.join(), g.join()), again)
    yield PendingCase("joins-twice", lambda g: (g.post(g.join()), g.post(g.join())), again)
    yield PendingCase("joins-fifty-times-in-one-post", lambda g: g.post(*[g.join()] * 50), again)
    yield PendingCase("joins-a-thousand-times-in-one-post", lambda g: g.post(*[g.join()] * 1000), TOO_LONG, True)
    often = {"joined-already": 100, "too-many-refusals": 1}
    yield PendingCase("joins-a-thousand-times", lambda g: [g.post(g.join()) for _ in range(1000)], often, True)
    yield PendingCase("joins-and-then-noise", lambda g: g.post(g.join(), b"noise"), again)
    yield PendingCase("greets-twice", lambda g: g.peer.send(hello(b"", column(0, 7), 0, 0)), {"greeted-already": 1})
    yield PendingCase("greets-as-itself", lambda g: g.peer.send(hello(b"", b"", 1, 0, session=g.session)), _GREETED)
    yield PendingCase("joins-and-greets", lambda g: (g.post(g.join()), g.peer.send(hello(b"", b"", 0, 0))), _GREETED)
    yield PendingCase("leaves-and-goes-on", lambda g: (g.say(Type.FAREWELL), g.say(Type.PING)), {"stale-session": 1})
    yield PendingCase("joins-leaves-and-goes-on", _leaves, {"stale-session": 2})
    yield PendingCase("comes-and-goes", _comes_and_goes, {"too-many-refusals": 1}, True)
    yield PendingCase("pings-and-pings", lambda g: [g.say(Type.PING) for _ in range(300)], _PINGS, True)
    yield PendingCase("says-nothing", lambda g: None, {"said-nothing": 1}, True)
    yield PendingCase("joins-and-says-nothing", lambda g: g.post(g.join()), {}, True)  # it is gone
    yield PendingCase("another-connections-session", _borrows, _stale(STRIKES), True)
    yield PendingCase("a-session-of-before", _was_before, _stale(STRIKES - 1), True)
    yield PendingCase("a-recorded-conversation", _replays, {"stale-session": 4})


_GREETED = {"greeted-already": 1}
_PINGS = {"too-many-pings": 10, "too-many-refusals": 1}


def _leaves(pending: PendingPeer) -> None:
    pending.post(pending.join())
    pending.say(Type.FAREWELL)
    pending.post(pending.join())
    pending.say(Type.ANSWER, *packet.answers(0, [[b"x"]]))


def _comes_and_goes(pending: PendingPeer) -> None:
    """Take one offer after the other on one connection."""
    for _ in range(9):
        pending.say(Type.FAREWELL)
        pending.greet(pending.peer)
    pending.say(Type.FAREWELL)


def _borrows(pending: PendingPeer) -> None:
    """Use the session of one connection on a second one; the first one goes on."""
    own, pending.peer = pending.peer, Peer(pending.port)
    for type in set(Type) - {Type.HELLO}:
        pending.say(type)
    pending.say(Type.PING)
    own.send(packet.packet(Type.PING, pending.session))
    while packet.read(own.receive()).type is not Type.PONG:
        pass
    own.close()


def _was_before(pending: PendingPeer) -> None:
    """Send a packet of every type in a session that is over."""
    session = pending.session
    pending.say(Type.FAREWELL)
    pending.greet(pending.peer)
    for type in set(Type) - {Type.HELLO}:
        pending.peer.send(packet.packet(type, session))


def _replays(pending: PendingPeer) -> None:
    """Send a recorded conversation again, byte for byte."""
    pending.say(Type.ANSWER, *packet.answers(0, [[b"x"]]))
    pending.post(pending.join())
    pending.say(Type.PING)
    pending.say(Type.FAREWELL)
    recorded = pending.peer.sent.partition(hello(b"", column(CLIENT, CLIENT), 0, 0))[2][CHECKSUM_BYTES:]
    pending.peer.close()
    pending.greet(Peer(pending.port))
    pending.peer.raw(recorded)


def _contents() -> Iterator[PendingCase]:
    """Packets of a session whose contents do not fit their type."""
    long = b"\x80\x80\x80\x80\x80\x01"
    posts = {
        "nothing": (b"", "empty"),
        "half-a-number": (b"\x80", "cut-short"),
        "a-number-of-six-bytes": (long, "long-number"),
        "a-number-padded": (b"\x81\x00x", "long-number"),
        "an-entry-beyond-the-end": (b"\x05abc", "cut-short"),
        "an-entry-of-32-gib": (b"\xff\xff\xff\xff\x7f", "cut-short"),
    }
    for name, (content, reason) in posts.items():
        yield PendingCase(f"post-of-{name}", lambda g, own=content: g.say(Type.POST, own), {reason: 1})
    answers = {
        "nothing": (b"", "cut-short"),
        "no-delivery": (b"\x00", "empty"),
        "half-a-number": (b"\x80", "cut-short"),
        "a-number-of-six-bytes": (long, "long-number"),
        "a-number-padded": (b"\x80\x00", "long-number"),
        "a-count-without-entries": (b"\x00\x02", "cut-short"),
        "half-a-count": (b"\x00\x81", "cut-short"),
        "an-entry-beyond-the-end": (b"\x00\x01\x09abc", "cut-short"),
        "an-entry-of-32-gib": (b"\x00\x01\xff\xff\xff\xff\x7f", "cut-short"),
        "65-entries": (b"\x00\x41" + b"\x00" * 65, "too-many-entries"),
        "32-g-entries": (b"\x00\xff\xff\xff\xff\x7f", "too-many-entries"),
        "what-was-not-asked": (b"\x00\x00\x00\x00", "unasked"),
        "four-thousand": (b"\x00" + b"\x00" * 4000, "unasked"),
        "a-later-delivery": (b"\x05\x00", "out-of-turn"),
        "the-last-delivery-of-all": (b"\xff\xff\xff\xff\x7f\x00", "out-of-turn"),
    }
    for name, (content, reason) in answers.items():
        yield PendingCase(f"answer-to-{name}", lambda g, own=content: g.say(Type.ANSWER, own), {reason: 1})
    yield PendingCase("answer-to-a-hundred-thousand", lambda g: g.say(Type.ANSWER, bytes(100_000)), TOO_LONG, True)
    for type in (Type.OFFER, Type.DECLINE, Type.PONG, Type.DELIVER):
        for size in (0, 50):
            name = f"{type.name.lower()}-upwards" + "-with-content" * bool(size)
            yield PendingCase(name, lambda g, own=type, size=size: g.say(own, bytes(size)), {"wrong-way": 1})
    yield PendingCase("offer-of-its-own", _offers, {"wrong-way": 1})
    for bit in (0, 31, 63):
        yield PendingCase(f"session-with-bit-{bit}-flipped", lambda g, own=bit: _flipped(g, own), {"stale-session": 1})
    yield PendingCase("session-cut-short", lambda g: g.peer.send(b"\x14" + g.session[:7]), {"short-packet": 1})
    yield PendingCase("two-frames-of-a-session", lambda g: g.peer.send(*[b"\x14" + g.session] * 2), {"frames": 1})
    yield PendingCase("no-session-any-more", lambda g: g.peer.send(b"\x14" + NO_SESSION), {"stale-session": 1})


def _offers(pending: PendingPeer) -> None:
    pending.say(Type.OFFER, msgpack.packb([bytes(8), pending.host, column(0, 7), 1, 1, b"{}"]))


def _flipped(pending: PendingPeer, bit: int) -> None:
    session = (int.from_bytes(pending.session, "big") ^ (1 << bit)).to_bytes(8, "big")
    pending.peer.send(packet.packet(Type.PING, session))


CASES = [*_joins(), *_memberships(), *_contents()]
