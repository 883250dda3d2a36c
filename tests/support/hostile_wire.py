"""Strangers that never send a packet: other protocols, broken greetings, broken frames, and silence."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

from hostile_packets import TOO_LONG, hello
from hostile_peers import COMMAND, LONG, MORE, Caller, Case, Peer, frame, greeting, ready

from seedbus.bus.wire import CURVE
from seedbus.bus.zeromq.checksums import CHECKSUM_BYTES
from seedbus.bus.zeromq.packet import HELLO_BYTES, NO_SESSION, Type, packet
from seedbus.bus.zeromq.sockets import MOST_UP

MOST = MOST_UP + CURVE.sealed  # bytes of any frame
PING = packet(Type.PING, NO_SESSION)
REFUSED = {"no-handshake": 1}
SILENT = {"said-nothing": 1}
UNGREETED = {"said-nothing": 1, "no-handshake": 1}


def _sends(data: bytes) -> Callable[[int], Caller]:
    return lambda port: Caller(port).raw(data)


def _closes(data: bytes, how: Callable[[Caller], None]) -> Callable[[int], Caller]:
    def play(port: int) -> Caller:
        caller = Caller(port).raw(data)
        how(caller)
        return caller

    return play


def _half(caller: Caller) -> None:
    caller.socket.shutdown(socket.SHUT_WR)


def _greeted(data: bytes) -> Callable[[int], Caller]:
    """Send data after a proper handshake."""
    return lambda port: Peer(port).raw(data)


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value


def _slowly(port: int) -> Caller:
    """Send the greeting byte by byte, so slowly that the hub does not wait for its end."""
    caller = Caller(port)

    def drip() -> None:
        for byte in greeting():
            try:
                caller.socket.sendall(bytes([byte]))
            except OSError:
                return
            time.sleep(0.05)

    threading.Thread(target=drip, daemon=True).start()
    return caller


def _other_protocols() -> Iterator[Case]:
    """libzmq takes what does not begin like ZMTP 3 for ZMTP 1, which has no greeting: the first byte is a length."""
    noise = random.Random(1)
    waits = {
        "http": b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\n",
        "http-post": b"POST /api HTTP/1.1\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,
        "tls-hello": bytes.fromhex("16030100c4010000c00303") + noise.randbytes(186),
        "ssh": b"SSH-2.0-OpenSSH_9.6\r\n" + noise.randbytes(200),
        "smtp": b"EHLO example.org\r\n" * 10,
        "json": b'{"jsonrpc": "2.0", "method": "hello", "id": 1}\n' * 4,
        "noise": b"z" + noise.randbytes(64),
        "much-noise": b"z" + noise.randbytes(4096),
        "ready-without-greeting": ready(),
        "zmtp-0": greeting(0) + ready(),
    }
    one, many = {"old-zmtp": 1}, {"old-zmtp": 10, "too-many-refusals": 1}
    messages = {"http-post": many, "tls-hello": one, "smtp": one}  # these bytes happen to form whole messages of ZMTP 1
    messages["much-noise"] = many | {"old-zmtp": 8}  # some of more than one frame
    for name, data in waits.items():
        old = messages.get(name, {})
        yield Case(name, _sends(data), UNGREETED | old, True, True)
    yield Case("zmtp-2", _sends(greeting(2) + ready()), SILENT, True, True)
    dumb = {"zeros": bytes(4096), "zmtp-1": greeting(1) + ready(), "packets-without-zmtp": PING * 20}
    for name, data in dumb.items():
        yield Case(name, _sends(data), {}, True)
    yield Case("ones", _sends(b"\xff" * 4096), REFUSED, True)


def _greetings() -> Iterator[Case]:
    whole = greeting()
    for size in (1, 9, 10, 11, 12, 32, 63):
        yield Case(f"greeting-{size}-bytes-then-nothing", _sends(whole[:size]), UNGREETED, True, True)
        yield Case(f"greeting-{size}-bytes-then-closed", _closes(whole[:size], Caller.close), REFUSED)
    yield Case("says-nothing-at-all", _sends(b""), UNGREETED, True, True)
    yield Case("closed-at-once", _closes(b"", Caller.close), REFUSED)
    yield Case("reset-at-once", _closes(b"", Caller.reset), REFUSED)
    yield Case("half-closed-at-once", _closes(b"", _half), REFUSED, True)
    yield Case("greeting-then-nothing", _sends(whole), UNGREETED, True, True)
    yield Case("greeting-then-closed", _closes(whole, Caller.close), REFUSED)
    yield Case("greeting-then-reset", _closes(whole, Caller.reset), REFUSED)
    yield Case("greeting-then-half-closed", _closes(whole, _half), REFUSED, True)
    yield Case("greeting-slowly", _slowly, UNGREETED, True, True)
    for mechanism in (b"PLAIN", b"CURVE", b"GSSAPI", b"", b"null", b"NULLNULLNULLNULLNULL"):
        name = mechanism.decode() or "no"
        yield Case(f"mechanism-{name}", _sends(greeting(mechanism=mechanism) + ready()), REFUSED, True)
    yield Case("twice-the-greeting", _sends(whole * 2), REFUSED, True)


def _handshakes() -> Iterator[Case]:
    for kind in (b"PUB", b"SUB", b"XPUB", b"XSUB", b"PUSH", b"PULL", b"PAIR", b"REP", b"STREAM", b"dealer", b""):
        name = kind.decode() or "none"
        yield Case(f"socket-type-{name}", _sends(greeting() + ready(kind)), {}, True)
    kind = _property(b"Socket-Type", b"DEALER")
    ended = {"cut-property": kind[:-3], "name-of-255": b"\xff" + kind[1:], "of-128-kib": bytes(MOST_UP)}
    for name, properties in ended.items():
        yield Case(f"ready-{name}", _sends(greeting() + frame(b"\x05READY" + properties, COMMAND)), {}, True)
    taken = {
        "no-properties": b"",
        "property-of-4-gib": b"\x0bSocket-Type\xff\xff\xff\xff",
        "nameless-property": b"\x00\x00\x00\x00\x01x",
        "identity-of-256": kind + _property(b"Identity", bytes(256)),
    }
    for name, properties in taken.items():  # libzmq accepts these
        body = b"\x05READY" + properties
        yield Case(f"ready-{name}", _sends(greeting() + frame(body, COMMAND)), SILENT, True, True)
    others = {"ping": b"\x04PING\x00\x00", "subscribe": b"\x09SUBSCRIBE", "hello": b"\x05HELLO", "cut": b"\x05REA"}
    for name, body in (others | {"nothing": b""}).items():
        yield Case(f"{name}-instead-of-ready", _sends(greeting() + frame(body, COMMAND)), REFUSED, True)
    yield Case("error-instead-of-ready", _sends(greeting() + frame(b"\x05ERROR\x04whoa", COMMAND)), SILENT, True, True)
    yield Case("message-instead-of-ready", _sends(greeting() + frame(PING)), REFUSED, True)
    yield Case("ready-as-a-message", _sends(greeting() + b"\0" + ready()[1:]), SILENT, True, True)
    yield Case("ready-twice", _sends(greeting() + ready() * 2), REFUSED, True)
    yield Case("ready-cut-short", _sends(greeting() + ready()[:-5]), UNGREETED, True, True)


def _frames() -> Iterator[Case]:
    """Frames after a proper handshake; the hub does not see those that libzmq discards."""
    yield Case("greeted-then-nothing", _greeted(b""), SILENT, True, True)
    yield Case("greeted-then-half-a-frame", _greeted(frame(PING)[:-1]), SILENT, True, True)
    yield Case("greeted-then-only-flags", _greeted(b"\0"), SILENT, True, True)
    yield Case("greeted-then-an-unfinished-message", _greeted(frame(PING, MORE)), SILENT, True, True)
    yield Case("zmtp-pings-for-ever", _greeted(frame(b"\x04PING\x00\x64", COMMAND) * 5), SILENT, True, True)
    for name, size in {"2-gib": 2**31, "8-eib": 2**63, "16-eib": 2**64 - 1, "one-too-many": MOST + 1}.items():
        yield Case(f"frame-of-{name}", _greeted(struct.pack(">BQ", LONG, size)), {}, True)
    yield Case("frame-over-the-limit", _greeted(frame(bytes(MOST + 1))), {}, True)
    for name, size in {
        "at": MOST,
        "that-members-have-at": MOST_UP,
        "that-strangers-have-over": HELLO_BYTES + CHECKSUM_BYTES + 1,
    }.items():
        yield Case(f"frame-{name}-the-limit", _greeted(frame(bytes(size))), TOO_LONG, True)
    yield Case(
        "frame-that-strangers-have-at-the-limit", _greeted(frame(bytes(HELLO_BYTES + CHECKSUM_BYTES))), {"protocol": 1}
    )
    yield Case("frame-in-the-long-form", _greeted(struct.pack(">BQ", LONG, 3) + b"abc"), {"short-packet": 1})
    yield Case("frame-with-reserved-flags", _greeted(b"\xf8\x03abc"), {"short-packet": 1})
    yield Case("zmtp-ping-cut-short", _greeted(frame(b"\x04PING", COMMAND)), SILENT, True, True)
    yield Case("command-with-more", _greeted(frame(b"\x04PING\x00\x64", COMMAND | MORE)), SILENT, True, True)
    yield Case("command-unknown", _greeted(frame(b"\x05HELLO", COMMAND)), SILENT, True, True)
    yield Case("greeted-then-closed", _closes_greeted(Caller.close), {})
    yield Case("greeted-then-reset", _closes_greeted(Caller.reset), {})
    yield Case("greeted-then-half-closed", _closes_greeted(_half), {}, True)


def _closes_greeted(how: Callable[[Caller], None]) -> Callable[[int], Caller]:
    def play(port: int) -> Caller:
        peer = Peer(port)
        how(peer)
        return peer

    return play


def _names() -> Iterator[Case]:
    """Routing ids and user ids that a peer chooses: only its session identifies it."""
    for name, identity in {"of-255": bytes(255), "of-zeros": bytes(5), "like-a-word": b"the evaluator"}.items():
        yield Case(
            f"identity-{name}", lambda port, own=identity: Peer(port, Identity=own).send(PING), {"stale-session": 1}
        )
    for name, user in {"of-noise": b"\xff\xfe", "like-a-key": b"k" * 40, "of-nobody": b""}.items():
        properties = {"User-Id": user}
        yield Case(f"user-{name}", lambda port, own=properties: Peer(port, **own).send(PING), {"stale-session": 1})
    for kind in (b"REQ", b"ROUTER"):
        yield Case(
            f"socket-type-{kind.decode()}", lambda port, own=kind: Peer(port, own).send(PING), {"stale-session": 1}
        )
    for name, data in {"dealer": PING, "guest": hello(b"", b"", 0, 1)}.items():
        old = b"\x01\0" + bytes([len(data) + 1, 0]) + data  # the length counts the byte of flags
        yield Case(f"a-{name}-of-zmtp-1", _closes(old, _half), REFUSED | {"old-zmtp": 1}, True)
    often = {"old-zmtp": 10, "too-many-refusals": 1}
    yield Case("noise-of-zmtp-1", _closes(b"\x01\0" + b"\x04\0abc" * 200, _half), REFUSED | often, True)
    yield Case("req-envelope", lambda port: Peer(port, b"REQ").send(b"", PING), {"frames": 1})


CASES = [*_other_protocols(), *_greetings(), *_handshakes(), *_frames(), *_names()]
