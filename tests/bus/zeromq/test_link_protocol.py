"""A link's state machine without socket or thread, with a clock that the test sets."""

from __future__ import annotations

from itertools import chain

import pytest

from seedbus.bus import Envelope, HostRequest, Kind, Offer, encode
from seedbus.bus.errors import BadServer, MalformedPacket, SentAway
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import NO_SESSION, Packet, Type
from seedbus.bus.zeromq.worker.liveness import BACK_OFF_S, FIRST_HEARTBEAT_S, MISSED, Liveness
from seedbus.bus.zeromq.worker.protocol import Delivered, Event, Failed, JoinAnswered, LinkProtocol, Offered
from seedbus.bus.zeromq.worker.session import PACKET_BYTES, WorkerSession

RUN = b"this run"
SESSION = b"a stay 1"
OFFER = Offer(-3, ((0, 3),), False, b"a scenario")
REQUEST = HostRequest(count=4, evaluates=False)
HEARTBEAT_S = 1.0
WELCOME = encode(Envelope(Kind.WELCOME, -3, 0, 0, []))[0]
REFUSE = encode(Envelope(Kind.REFUSE, -3, 0, 0, []))[0]
BYE = encode(Envelope(Kind.BYE, -3, 0, 0, []))[0]


def sent_by(session: WorkerSession) -> list[Packet]:
    """Return the packets in a session's outbox and empty it."""
    packets = []
    while (data := session.outbox.first()) is not None:
        packets.append(packet.read(data))
        session.outbox.sent()
    return packets


class Peer:
    """A link's state machine and the server's end of its packets."""

    def __init__(self, patience_s: float = 60.0) -> None:
        self.link = LinkProtocol("a server", REQUEST, patience_s=patience_s, most_clients=2**24, now_s=0.0)
        self.link.connected(0.0)

    def sent(self) -> list[Packet]:
        """Return the packets in the outbox and empty it."""
        return sent_by(self.link.session)

    def says(
        self, type: Type, *content: bytes | memoryview, session: bytes = SESSION, now_s: float = 0.0
    ) -> list[Event]:
        return list(self.link.receive(Packet(type, session, b"".join(content)), now_s))

    def offers(self, offer: Offer = OFFER, session: bytes = SESSION) -> list[Event]:
        return self.says(Type.OFFER, packet.offer(RUN, offer, round(HEARTBEAT_S * 1000)), session=session)

    def welcomes(self) -> None:
        self.offers()
        self.link.join(self.link.session, [b"a JOIN"])
        self.says(Type.POST, packet.entry(WELCOME))
        self.sent()

    def delivers(self, first: int, *frames: bytes) -> list[Event]:
        return self.says(Type.DELIVER, *packet.deliveries(first, [(frame, b"") for frame in frames]))


def test_a_session_from_hello_to_farewell() -> None:
    peer = Peer()
    (hello,) = peer.sent()
    assert hello.type is Type.HELLO and hello.session == NO_SESSION
    assert packet.read_hello(hello.content) == (b"", REQUEST)
    assert peer.offers() == [Offered(OFFER, is_new=True)]
    peer.link.join(peer.link.session, [b"a JOIN"])
    assert peer.sent() == [Packet(Type.POST, SESSION, packet.entry(b"a JOIN"))]
    assert peer.says(Type.POST, packet.entry(WELCOME)) == [JoinAnswered(WELCOME)]
    assert peer.delivers(0, b"one", b"two") == [Delivered([b"one", b"two"])]
    peer.link.answer(peer.link.session, [[b"a report"], []])
    assert peer.sent() == [Packet(Type.ANSWER, SESSION, b"".join(packet.answers(0, [[b"a report"], []])))]
    assert peer.link.session.unanswered_bytes == 0
    assert peer.says(Type.POST, packet.entry(BYE)) == []
    assert peer.sent() == [Packet(Type.FAREWELL, SESSION, b"")] and peer.link.session.is_over


def test_a_lost_connection_asks_for_the_same_clients_with_the_session_it_had() -> None:
    peer = Peer()
    peer.welcomes()
    peer.delivers(0, b"one")
    lost = peer.link.session
    assert peer.link.disconnected(0.0, 5.0)
    peer.link.connected(6.0)
    (hello,) = peer.sent()
    assert hello.session == SESSION
    assert packet.read_hello(hello.content) == (RUN, HostRequest(((0, 3),), 0, False))
    peer.link.answer(lost, [[b"a report"]])
    peer.link.join(lost, [b"a JOIN"])
    assert peer.sent() == []
    assert not peer.link.disconnected(0.0, 7.0)
    peer.link.connected(8.0)
    assert [each.session for each in peer.sent()] == [SESSION]  # no server was there in between


def test_followers_are_rebuilt_only_for_a_different_offer() -> None:
    peer = Peer()
    peer.welcomes()
    for offer, is_new in [
        (Offer(-9, ((0, 3),), False, b"a scenario", b"a nonce"), False),
        (Offer(-9, ((0, 3),), False, b"another scenario"), True),
    ]:
        peer.link.disconnected(0.0, 1.0)
        peer.link.connected(2.0)
        assert peer.offers(offer) == [Offered(offer, is_new)]


def test_no_packet_is_sent_in_a_session_after_a_refusal() -> None:
    peer = Peer()
    peer.offers()
    peer.link.join(peer.link.session, [b"a JOIN"])
    assert peer.says(Type.POST, packet.entry(REFUSE)) == [JoinAnswered(REFUSE)]
    peer.sent()
    peer.link.ping(1.0)
    peer.link.give_up("failed")
    assert peer.sent() == []


@pytest.mark.parametrize("reason", ["taken", "stale-session", "no-clients"])
def test_a_temporary_decline_is_remembered_until_a_join_is_answered(reason: str) -> None:
    peer = Peer()
    assert peer.says(Type.DECLINE, packet.decline(reason, "later")) == [Failed(f"it says {reason}")]
    assert isinstance(peer.link.rejection, SentAway)
    peer.link.disconnected(0.0, 1.0)
    peer.link.connected(2.0)
    peer.welcomes()
    assert peer.link.rejection is None


def test_a_permanent_decline_is_raised() -> None:
    with pytest.raises(SentAway, match="another-run"):
        Peer().says(Type.DECLINE, packet.decline("another-run", "go away"))


def test_a_process_whose_clients_were_taken_requests_any_clients_unless_it_was_a_member() -> None:
    for was_member, request in [(False, REQUEST), (True, HostRequest(((0, 3),), 0, False))]:
        peer = Peer()
        peer.welcomes() if was_member else peer.offers()
        peer.says(Type.DECLINE, packet.decline("taken", "another process was faster"))
        peer.link.disconnected(0.0, 1.0)
        peer.link.connected(2.0)
        assert packet.read_hello(peer.sent()[-1].content) == (RUN, request)


def test_packets_out_of_turn_are_ignored() -> None:
    peer = Peer()
    peer.offers()
    assert peer.delivers(0, b"one") == [Failed("delivery 0 came where 0 was next")]  # there is no follower yet
    assert peer.says(Type.POST, packet.entry(WELCOME)) == []
    peer.link.join(peer.link.session, [b"a JOIN"])
    peer.says(Type.POST, packet.entry(WELCOME))
    with pytest.raises(MalformedPacket, match="a WELCOME where no JOIN waits for an answer"):
        peer.says(Type.POST, packet.entry(WELCOME))
    assert peer.delivers(1, b"two") == [Failed("delivery 1 came where 0 was next")]
    assert peer.says(Type.POST, packet.entry(BYE), session=b"another!") == []
    assert not peer.link.session.is_over


def test_nothing_is_handed_to_followers_that_are_being_rebuilt() -> None:
    peer = Peer()
    peer.welcomes()
    first = peer.link.session
    peer.link.disconnected(0.0, 1.0)
    peer.link.connected(2.0)
    other = Offer(-3, ((0, 3),), False, b"another scenario")
    assert peer.offers(other) == [Offered(other, is_new=True)]
    peer.link.join(first, [b"a JOIN of the followers before"])
    assert peer.says(Type.POST, packet.entry(WELCOME)) == []
    assert peer.delivers(0, b"one") == [Failed("delivery 0 came where 0 was next")]


def test_an_offer_of_clients_that_were_not_requested_is_a_protocol_error() -> None:
    with pytest.raises(BadServer, match="it offers 5 clients; accepted are at most 4"):
        Peer().offers(Offer(-3, ((0, 4),), False, b""))


def test_joins_and_answers_are_packets_that_a_hub_accepts() -> None:
    session = WorkerSession()
    frames = [bytes(PACKET_BYTES // 3)] * 7
    session.put_joins(frames)
    posts = [packet.read_entries(each.content) for each in sent_by(session)]
    assert list(chain(*posts)) == frames and [len(each) for each in posts] == [3, 3, 1]
    session.delivered(frames)
    session.put_answers([[frame] for frame in frames])
    answers = [packet.read_answers(each.content) for each in sent_by(session)]
    assert [(first, len(each)) for first, each in answers] == [(0, 2), (2, 2), (4, 2), (6, 1)]
    assert not session.unanswered and session.unanswered_bytes == 0


def test_a_silent_server_is_left_and_retried_with_growing_delays() -> None:
    liveness = Liveness(100.0, 0.0)
    now_s, waits_s = 0.0, []
    for _ in range(8):
        liveness.connected(now_s)
        assert liveness.due_s == now_s + FIRST_HEARTBEAT_S and liveness.should_ping(liveness.due_s)
        liveness.pinged(now_s)
        now_s += MISSED * FIRST_HEARTBEAT_S
        assert liveness.is_silent(now_s) and not liveness.is_silent(now_s - 0.001)
        liveness.disconnected(1.0, now_s)
        waits_s.append(liveness.due_s - now_s)
        assert liveness.should_reconnect(liveness.due_s) and not liveness.should_ping(1e9)
        now_s = liveness.due_s
    first_s, longest_s = BACK_OFF_S
    assert waits_s == pytest.approx([min(first_s * 2**times, longest_s) for times in range(8)])


def test_patience_counts_from_the_moment_that_the_server_was_lost() -> None:
    liveness = Liveness(10.0, 0.0)
    liveness.connected(0.0)
    assert not liveness.should_give_up(9.9) and liveness.should_give_up(10.0)
    liveness.offered(HEARTBEAT_S, 5.0)
    assert not liveness.should_give_up(1e9)
    liveness.heard(20.0)
    assert not liveness.is_silent(20.0 + MISSED * HEARTBEAT_S - 0.001)
    liveness.disconnected(0.0, 30.0)
    liveness.connected(31.0)
    liveness.disconnected(0.0, 32.0)  # no server was there: the time goes on
    assert not liveness.should_give_up(39.9) and liveness.should_give_up(40.0)
