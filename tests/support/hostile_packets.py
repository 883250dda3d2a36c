"""Strangers that speak ZMTP correctly and send bad packets, HELLOs and msgpack."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
from hostile_peers import Caller, Case, Peer

from seedbus.bus.zeromq.packet import NO_SESSION, PROTOCOL, Type, packet

LIMIT = 2**24
_NIL = b"\xc0"


def sends(*messages: bytes) -> Callable[[int], Caller]:
    """Return a case's `play` that sends messages."""

    def play(port: int) -> Caller:
        peer = Peer(port)
        for message in messages:
            peer.send(message)
        return peer

    return play


def column(*ends: int) -> bytes:
    """Return spans as HELLO holds them: the first and the last client of each, uint32."""
    return struct.pack(f"<{len(ends)}I", *ends)


def hello(*fields: Any, session: bytes = NO_SESSION) -> bytes:
    return packet(Type.HELLO, session, msgpack.packb(list(fields)))


def padded(size: int) -> bytes:
    """Return a HELLO of `size` bytes."""
    return VALID + bytes(size - len(VALID))


def packed(content: bytes) -> bytes:
    """Return a HELLO with this content."""
    return packet(Type.HELLO, NO_SESSION, content)


VALID = hello(b"", column(7, 7), 0, 0)
TOO_LONG = {"too-long": 1, "too-many-refusals": 1}


def _packets() -> Iterator[Case]:
    for size in range(9):
        yield Case(f"packet-of-{size}-bytes", sends(VALID[:size]), {"short-packet": 1})
    for nibble in set(range(16)) - {PROTOCOL}:
        yield Case(f"protocol-{nibble}", sends(bytes([nibble * 16 + 1]) + VALID[1:]), {"protocol": 1})
    for number in (0, *range(13, 16)):
        yield Case(f"type-{number}", sends(bytes([PROTOCOL * 16 + number]) + VALID[1:]), {"packet-type": 1})
    sessions = {"no": NO_SESSION, "a-guessed": random.Random(2).randbytes(8), "a-full": b"\xff" * 8}
    for whose, session in sessions.items():
        for type in set(Type) - {Type.HELLO}:
            for size in (0, 40):
                name = f"{type.name.lower()}-of-{whose}-session" + "-with-content" * bool(size)
                yield Case(name, sends(packet(type, session, bytes(size))), {"stale-session": 1})
    for name, frames in {
        "two": (VALID, VALID),
        "three": (VALID,) * 3,
        "nine": (VALID,) * 9,
        "empty-and-a-packet": (b"", VALID),
        "a-packet-and-empty": (VALID, b""),
        "two-empty": (b"", b""),
        "nine-empty": (b"",) * 9,
    }.items():
        yield Case(f"frames-{name}", lambda port, own=frames: Peer(port).send(*own), {"frames": 1})
    many, mistakes = {"frames": 1, "too-many-refusals": 1}, {"short-packet": 10, "too-many-refusals": 1}
    for count in (10, 70, 1000):
        yield Case(f"frames-{count}", lambda port, own=count: Peer(port).send(*[b""] * own), many, True)
    yield Case("nine-mistakes", sends(*[b"x"] * 9), {"short-packet": 9})
    for count in (10, 200):
        yield Case(f"{count}-mistakes", sends(*[b"x"] * count), mistakes, True)
    yield Case("many-kinds-of-mistakes", sends(b"", b"\x21" * 9, b"\x1f" * 9, VALID), _EACH_ONCE)


# only the first packet of a connection may be a HELLO: a later one has another number in its checksum
_EACH_ONCE = {"short-packet": 1, "protocol": 1, "packet-type": 1, "damaged": 1}


def _hellos() -> Iterator[Case]:
    """HELLOs to a run whose clients, 0 to 7, all have processes."""
    wrong_types: dict[str, list[Any]] = {
        "run": [0, "", None, [], True, 1.0],
        "spans": [0, "", None, [], True, 1.5],
        "count": ["", None, b"", [], True, 1.0],
        "evaluates": ["", None, b"", [], True, 0.0],
    }
    for place, (field, values) in enumerate(wrong_types.items()):
        for value in values:
            fields: list[Any] = [b"", b"", 0, 0]
            fields[place] = value
            yield Case(f"hello-{field}-is-{type(value).__name__}", sends(hello(*fields)), {"wrong-fields": 1})
    for size in (0, 1, 2, 3, 5, 64):
        yield Case(f"hello-of-{size}-fields", sends(hello(*([b"", b"", 0, 0] + [0] * 60)[:size])), {"wrong-fields": 1})
    for size in (1, 7, 9, 4000):
        yield Case(f"hello-to-a-run-of-{size}-bytes", sends(hello(bytes(size), b"", 0, 0)), {"bad-hello": 1})
    for size in (4096, 100_000):
        yield Case(f"hello-to-a-run-of-{size}-bytes", sends(hello(bytes(size), b"", 0, 0)), TOO_LONG, True)
    yield Case("hello-of-4096-bytes", sends(padded(4096)), {"not-msgpack": 1})
    yield Case("hello-of-4097-bytes", sends(padded(4097)), TOO_LONG, True)
    yield Case("hello-to-another-run", sends(hello(b"whatever", b"", 0, 0)), {"another-run": 1})
    for count in (-1, 2**32, 2**63, -(2**31)):
        yield Case(f"hello-for-{count}-clients", sends(hello(b"", b"", count, 0)), {"bad-hello": 1})
    for count in (0, 1, 8, 2**32 - 1):
        yield Case(f"hello-too-late-for-{count}", sends(hello(b"", b"", count, 1)), {"no-clients": 1})
    for number in (-1, 2, 255):
        yield Case(f"hello-evaluates-{number}", sends(hello(b"", b"", 0, number)), {"bad-hello": 1})
    yield Case("hello-twice", sends(hello(b"", b"", 0, 0), VALID), {"no-clients": 1, "taken": 1})
    guessed = hello(b"", b"", 0, 0, session=random.Random(3).randbytes(8))
    yield Case("hello-with-a-guessed-session", sends(guessed), {"no-clients": 1})
    yield Case("hello-with-the-run-of-the-session", sends(hello(bytes(8), b"", 0, 0)), {"another-run": 1})


def _spans() -> Iterator[Case]:
    spans = {
        "of-a-byte": (b"7", "bad-spans"),
        "of-half-a-span": (column(7), "bad-spans"),
        "of-one-and-a-half": (column(6, 6, 7), "bad-spans"),
        "of-noise": (random.Random(4).randbytes(800), "bad-spans"),
        "too-high": (column(0, LIMIT), "bad-spans"),
        "all-ones": (b"\xff" * 8, "bad-spans"),
        "reversed": (column(7, 0), "bad-spans"),
        "twice": (column(7, 7, 7, 7), "bad-spans"),
        "overlapping": (column(0, 4, 4, 7), "bad-spans"),
        "within-another": (column(0, 7, 2, 3), "bad-spans"),
        "not-ascending": (column(5, 6, 0, 1), "bad-spans"),
        "all-of-them-64-times": (column(0, LIMIT - 1) * 64, "bad-spans"),
        "of-a-good-peer": (column(0, 3), "taken"),
        "of-two-good-peers": (column(3, 4), "taken"),
        "each-apart": (column(0, 0, 2, 2, 4, 4, 6, 6), "taken"),
        "beyond-the-last": (column(8, 8), "unknown-client"),
        "partly-beyond": (column(7, 8), "unknown-client"),
        "sixteen-million": (column(0, LIMIT - 1), "unknown-client"),
        "sixty-four-apart": (column(*(2 * (n // 2) for n in range(128))), "unknown-client"),
        "sixty-five-apart": (column(*(2 * (n // 2) for n in range(130))), "bad-spans"),
    }
    for name, (data, reason) in spans.items():
        yield Case(f"clients-{name}", sends(hello(b"", data, 0, 0)), {reason: 1})
    apart = hello(b"", column(*(2 * (n // 2) for n in range(20_000))), 0, 0)
    yield Case("clients-ten-thousand-apart", sends(apart), TOO_LONG, True)
    yield Case("clients-and-a-count", sends(hello(b"", column(7, 7), 5, 0)), {"taken": 1})


def _msgpack() -> Iterator[Case]:
    content = VALID[9:]
    for size in range(len(content)):
        yield Case(f"hello-cut-to-{size}", sends(packed(content[:size])), {"not-msgpack": 1})
    not_msgpack = {
        "trailing-nil": content + _NIL,
        "trailing-zeros": content + bytes(1000),
        "twice": content * 2,
        "reserved-c1": b"\xc1" * 8,
        "arrays-in-arrays": b"\x91" * 4000,
        "arrays-in-arrays-ended": b"\x91" * 2000 + _NIL,
        "array-of-4-g": b"\xdd\xff\xff\xff\xff",
        "array-of-4000": b"\xdc\x0f\xa0" + _NIL * 4000,
        "map-of-4-g": b"\xdf\xff\xff\xff\xff",
        "map-of-one": b"\x81\x01\x02",
        "map-in-maps": b"\x81\x01" * 2000 + _NIL,
        "extension": b"\xd4\x05\x00",
        "extension-of-4-g": b"\xc9\xff\xff\xff\xff\x01",
        "timestamp": b"\x94" + b"\xd6\xff\0\0\0\0" * 4,
        "str-of-4-g": b"\xdb\xff\xff\xff\xff",
        "str-of-4000": b"\x94\xda\x0f\xa0" + b"a" * 4000,
        "str-not-utf-8": b"\x94\xa2\xff\xfe\xa0\x00\x00",
        "bin-of-4-g": b"\xc6\xff\xff\xff\xff",
        "bin-longer-than-there-is": b"\x94\xc4\x08abc",
    }
    for name, data in not_msgpack.items():
        yield Case(f"msgpack-{name}", sends(packed(data)), {"not-msgpack": 1})
    values = {
        "nan": b"\xcb\x7f\xf8" + bytes(6),
        "infinity": b"\xca\x7f\x80\0\0",
        "nil": _NIL,
        "zero": b"\0",
        "empty-map": b"\x80",
        "empty-array": b"\x90",
        "word": b"\xa5hello",
        "nan-for-a-count": msgpack.packb([b"", b"", float("nan"), 0]),
        "map-for-a-field": msgpack.packb([b"", {}, 0, 0]),
    }
    for name, data in values.items():
        yield Case(f"msgpack-{name}", sends(packed(data)), {"wrong-fields": 1})


CASES = [*_packets(), *_hellos(), *_spans(), *_msgpack()]
