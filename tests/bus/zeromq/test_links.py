"""A client's end of a connection, with arbitrary content in the server's packets."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import pytest
import zmq
from fake_server import HOST, RUN, SCENARIO, SESSION
from hostile_packets import column
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbus.agents import messages
from seedbus.agents.errors import JoinRefused
from seedbus.agents.observer import NullObserver
from seedbus.bus import Kind, Offer, encode
from seedbus.bus.errors import BadServer, MalformedEnvelope, MalformedPacket, SentAway
from seedbus.bus.zeromq import packet as packet
from seedbus.bus.zeromq.packet import NO_SESSION, Packet, Type
from seedbus.bus.zeromq.worker import protocol, session
from seedbus.bus.zeromq.worker.link import Joining, Link
from seedbus.bus.zeromq.worker.protocol import Offered
from seedbus.scenarios.running.prepare import bind, recruit
from seedbus.scenarios.schema.loading import validate

WHAT = validate(SCENARIO, "a test")
PROBLEM = bind(WHAT)
OFFERED = [RUN, HOST, column(0, 3), 1, 2000, b"", b"{}"]


class AtOnce:
    """A replacement of the worker thread that runs each job at once."""

    def do(self, job: Callable[[], Callable[[], None] | None]) -> None:
        done = job()
        if done is not None:
            done()

    def handle(self, follower: Any, frames: Any, then: Callable[[list[list[bytes]]], None]) -> None:
        then(list(follower.handle_all(frames)))


@contextmanager
def running_link(note: Callable[..., None] = lambda *_, **__: None) -> Iterator[Link]:
    """A link without a server, with real followers."""
    link = Link(
        zmq.Context.instance(),
        Joining("inproc://nobody", note=note),
        recruit(WHAT, PROBLEM, NullObserver()),
        AtOnce(),  # type: ignore[arg-type]
    )
    try:
        yield link
    finally:
        link.close()


def receive(link: Link, type: Type, content: bytes, session: bytes = SESSION) -> None:
    link._received(Packet(type, session, content), zmq.Frame(b""))


def receive_offer(link: Link) -> None:
    receive(link, Type.OFFER, msgpack.packb(OFFERED))


def receive_welcome(link: Link) -> None:
    receive_offer(link)
    answer = messages.welcome(WHAT.algorithm, HOST, 0, [0] * 5)
    receive(link, Type.POST, packet.entry(encode(answer)[0]))


numbers = st.integers(-(2**63), 2**64 - 1) | st.integers(-3, 70) | st.sampled_from([2**16, 2**31, 2**32 - 1])
plain = st.recursive(
    numbers | st.binary(max_size=40) | st.text(max_size=5) | st.floats() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=9),
    max_leaves=20,
)
envelopes = st.builds(
    lambda kind, client, round, base, body: msgpack.packb([16 + kind, client, round, base, body]),
    st.integers(0, 16),
    st.sampled_from([HOST, -2, -1, 0, 1, 3, 4, 2**24]) | numbers,
    st.integers(0, 4) | numbers,
    st.integers(0, 4) | numbers,
    st.lists(plain, max_size=9),
)
rates = st.binary(min_size=4, max_size=4) | st.just(b"\x00\x00\xc0\x7f")  # the last is NaN
plans = st.builds(
    lambda client, round, base, seed, steps, each, rate, more: msgpack.packb(
        [16 + Kind.PLAN, client, round, base, [[seed, steps, each, rate], more]]
    ),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 2),
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 1, 2, 2**16 - 1, 10**9]),
    st.sampled_from([0, 1, 2, 2**16 - 1, 10**9]),
    rates,
    st.lists(st.lists(st.lists(plain, max_size=8), max_size=2), max_size=2),
)
snapshots = st.builds(
    lambda kind, client, base, body: msgpack.packb([16 + kind, client, 0, base, body]),
    st.sampled_from([Kind.SNAPSHOT, Kind.FETCH, Kind.WAKE, Kind.PEAK, Kind.REFUSE]),
    st.integers(-2, 4),
    st.integers(0, 9),
    st.tuples(numbers, st.binary(min_size=16, max_size=16), numbers, st.binary(max_size=8), st.binary(max_size=9)).map(
        list
    )
    | st.tuples(numbers, st.binary(min_size=16, max_size=16), numbers).map(list)
    | st.lists(plain, max_size=5),
)
frames = envelopes | plans | snapshots | st.binary(max_size=60)
contents = st.one_of(
    st.binary(max_size=80),
    st.lists(frames, max_size=4).map(lambda each: b"".join(map(packet.entry, each))),
    st.tuples(st.integers(0, 3), st.lists(frames, max_size=4)).map(
        lambda pair: b"".join(packet.deliveries(pair[0], [(frame, b"") for frame in pair[1]]))
    ),
    st.lists(plain, max_size=7).map(msgpack.packb),
)
packets = st.tuples(
    st.sampled_from(list(Type)), contents, st.sampled_from([SESSION, SESSION, SESSION, b"another!", bytes(8)])
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "begin", [lambda link: None, receive_offer, receive_welcome], ids=["greeting", "joining", "a member"]
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(packets, min_size=1, max_size=12))
def test_a_link_ignores_any_packet_or_ends_with_one_sentence(
    begin: Callable[[Link], None], received: list[tuple[Type, bytes, bytes]]
) -> None:
    with running_link() as link:
        begin(link)
        for type, content, session in received:
            try:
                if not link.socket.closed and not link.is_over:
                    receive(link, type, content, session)
            except (MalformedPacket, MalformedEnvelope):
                continue
            except (BadServer, SentAway, JoinRefused) as error:
                assert "\n" not in str(error)
                break


def test_deliveries_out_of_order_end_the_connection_and_not_the_process() -> None:
    with running_link() as link:
        receive_welcome(link)
        receive(link, Type.DELIVER, b"".join(packet.deliveries(7, [(b"", b"")])))
        assert link.socket.closed and not link.is_over


def test_a_server_that_sends_repeated_nonsense_is_left() -> None:
    context: zmq.Context[Any] = zmq.Context.instance()
    with context.socket(zmq.ROUTER) as server, running_link() as link:
        server.linger = 0
        port = server.bind_to_random_port("tcp://127.0.0.1")
        link.close()
        link._endpoint = f"tcp://127.0.0.1:{port}"
        link._connect()
        link.drain()
        while not server.poll(10):
            link.drain()
        peer, _ = server.recv_multipart()
        with pytest.raises(BadServer, match=r"it sent 101 packets that make no sense, the last one: 3 bytes; a"):
            for _ in range(200):
                server.send_multipart([peer, b"no\x1b"])
                link.socket.poll(1000)
                link.read()


@pytest.mark.parametrize("is_declined", [False, True])
def test_a_client_that_no_server_answers_says_so_once_within_seconds(
    monkeypatch: pytest.MonkeyPatch, is_declined: bool
) -> None:
    now_s, notes = 0.0, list[str]()
    monkeypatch.setattr("seedbus.bus.zeromq.worker.link.wall_seconds", lambda: now_s)
    with running_link(lambda event, **facts: notes.append(f"{now_s:g} s: {event}: {facts}")) as link:
        for now_s in range(40):
            if is_declined and now_s == 3:
                receive(link, Type.DECLINE, packet.decline("taken", "by another process"), NO_SESSION)
            link.tick()
    facts = {"at": "inproc://nobody", "trying": "for 60 s", "because": "nothing was heard"}
    assert notes == ([] if is_declined else [f"6 s: no server has answered yet: {facts}"])


def test_a_process_is_welcomed_once() -> None:
    with running_link() as link:
        receive_welcome(link)
        with pytest.raises(MalformedPacket, match="a WELCOME where no JOIN waits for an answer"):
            receive(link, Type.POST, packet.entry(encode(messages.welcome(WHAT.algorithm, HOST, 0, [0] * 5))[0]))


def test_a_second_offer_builds_nothing() -> None:
    with running_link() as link:
        receive_offer(link)
        follower = link._follower
        receive(link, Type.OFFER, msgpack.packb([*OFFERED[:6], b"[]"]))
        assert link._follower is follower
    with running_link() as link, pytest.raises(BadServer, match="its offer names no session"):
        receive(link, Type.OFFER, msgpack.packb(OFFERED), bytes(8))


def test_more_deliveries_than_a_hub_sends_at_a_time_are_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never(AtOnce):
        def handle(self, follower: Any, frames: Any, then: Any) -> None:
            pass

    monkeypatch.setattr(protocol, "UNANSWERED_BYTES", 10_000)
    with running_link() as link:
        receive_welcome(link)
        link._protocol.session.inbox.limit = 0
        link._worker_thread = Never()  # type: ignore[assignment]
        with pytest.raises(BadServer, match=r"bytes of work before any was done"):
            for number in range(400):
                receive(link, Type.DELIVER, b"".join(packet.deliveries(number, [(b"", b"")])))
        assert len(link._protocol.session.unanswered) == 10_000 // session.DELIVERY_BYTES + 1


def test_chunks_of_a_snapshot_take_no_more_memory_than_the_snapshot() -> None:
    from seedbus.agents.catch_up.chunks import Chunk, Title, offer

    title = Title(9, 40, os.urandom(16))  # 40 chunks of a replica that has 80 bytes
    with running_link() as link:
        receive_welcome(link)
        assert link._follower is not None
        downloads = link._follower.host.downloads  # type: ignore[attr-defined]
        link._follower.handle(encode(offer(title, 8, 0, 1))[0])
        for index in range(39):
            chunk = Chunk(title, index, bytes(60_000)).pack(Kind.SNAPSHOT, 0, 1)
            link._follower.handle(encode(chunk)[0])
        stored_bytes = sum(len(data) for chunks in downloads._chunks.values() for data in chunks.values())
        assert stored_bytes <= 2 * 80


@pytest.mark.slow
def test_followers_for_another_offer_are_built_when_those_before_are_gone() -> None:
    """Otherwise a process would need memory for two runs."""
    with running_link() as link:
        build, alive = link._recruit, list[object]()

        def recruit_alone(offer: Offer) -> Any:
            gc.collect()
            alive.append(None if before is None else before())
            return build(offer)

        link._recruit = recruit_alone
        before: Any = None
        for spans in (((0, 3),), ((0, 2),)):
            link._build(Offered(Offer(HOST, spans, True, b""), is_new=True), link._protocol.session)
            before = weakref.ref(link._follower)
        assert alive == [None, None]
