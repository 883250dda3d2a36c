"""Members that turn bad: they join properly and then break the protocol in their answers to plans."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from seedbus.agents.messages import Join, Span
from seedbus.bus import EVALUATOR, HOST, Envelope, Kind, Offer, decode, encode
from seedbus.bus.transport import Follower, Recruit

BAD = 7  # the client that answers badly, in another way each round
SILENT = 6  # a client that never answers, so that every round is open until its deadline


@dataclass(frozen=True)
class Exchange:
    """A plan and the honest answer to it.

    Attributes:
        plan: what the client was asked.
        report: what an honest client would have answered.
        proof: the self-test and the x₀ digest of the client's process.
    """

    plan: Envelope
    report: Envelope
    proof: Mapping[str, bytes]

    def frame(self, **changes: Any) -> bytes:
        """Return the report's frame, but for the changes."""
        return encode(self.report._replace(**changes))[0]

    def decline(self, **changes: Any) -> bytes:
        """Return a DECLINE in place of the report."""
        return self.frame(**({"kind": Kind.DECLINE, "body": ["overflow", "too large"]} | changes))

    def scalars(self, pack: Callable[[bytes], bytes]) -> bytes:
        """Return the report with changed scalars and unchanged digests."""
        return self.frame(body=[pack(self.report.body[0]), *self.report.body[1:]])

    def join(self, sender: int, *spans: tuple[int, int, int], **changes: bytes) -> bytes:
        proof = {**self.proof, **changes}
        return encode(Join(sender, tuple(Span(*span) for span in spans), **proof).pack())[0]


@dataclass(frozen=True)
class MemberCase:
    """What the bad client answers in one round, and how it is refused.

    Attributes:
        name: the case's test id.
        answer: makes the frames of the answer.
        refusals: reason → how often in that round.
    """

    name: str
    answer: Callable[[Exchange], Sequence[bytes]]
    refusals: Mapping[str, int]

    def __str__(self) -> str:
        return self.name


def with_bad_clients(recruit: Recruit) -> Recruit:
    """Return a `recruit` whose followers of the clients `BAD` and `SILENT` turn bad."""
    return lambda offer: _BadFollower(recruit(offer), offer)


class _BadFollower:
    def __init__(self, follower: Follower, offer: Offer) -> None:
        self._follower = follower
        self._proof = Join.unpack(decode(follower.join(offer.host, b"")[0])).proofs

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        return self._follower.join(host, nonce)

    def welcome(self, frame: bytes) -> None:
        self._follower.welcome(frame)

    def handle(self, frame: bytes) -> list[bytes]:
        plan, answers = decode(frame), self._follower.handle(frame)
        if plan.client == SILENT:
            return []
        if plan.client != BAD or plan.round >= len(CASES):
            return answers
        return list(CASES[plan.round].answer(Exchange(plan, decode(answers[0]), self._proof)))


def _one(name: str, reason: str, make: Callable[[Exchange], bytes]) -> MemberCase:
    return MemberCase(name, lambda exchange: [make(exchange)], {reason: 1} if reason else {})


def _headers() -> Iterator[MemberCase]:
    for whose in (0, SILENT, BAD + 1, EVALUATOR, HOST, HOST - 1):
        yield _one(f"report-of-{whose}", "malformed", lambda exchange, own=whose: exchange.frame(client=own))
    rounds = {"to-come": 1, "far-off": 10**6, "before": -1, "long-ago": -10}
    for name, by in rounds.items():
        reason = "wrong-round" if by > 0 else "late"
        yield _one(
            f"report-of-a-round-{name}",
            reason,
            lambda exchange, own=by: exchange.frame(round=exchange.plan.round + own),
        )
    for by in (1, -1, 10**6):
        change = f"report-from-version-{by:+}"
        yield _one(change, "wrong-version", lambda exchange, own=by: exchange.frame(base=exchange.plan.base + own))
    for kind in (Kind.WELCOME, Kind.REFUSE, Kind.COMMIT, Kind.PLAN, Kind.BYE):
        yield _one(
            f"{kind.name.lower()}-for-a-report", "malformed", lambda exchange, own=kind: exchange.frame(kind=own)
        )
    yield _one("decline-with-a-reports-body", "bad-payload", lambda exchange: exchange.frame(kind=Kind.DECLINE))
    yield _one("decline-of-another", "malformed", lambda exchange: exchange.decline(client=0))
    yield _one("decline-of-a-round-before", "late", lambda exchange: exchange.decline(round=exchange.plan.round - 1))
    yield _one(
        "decline-from-a-version-to-come",
        "wrong-version",
        lambda exchange: exchange.decline(base=exchange.plan.base + 1),
    )
    yield _one("evaluation-for-a-report", "wrong-kind", lambda exchange: exchange.frame(kind=Kind.EVALUATION))
    yield _one("evaluation-of-the-evaluator", "malformed", lambda s: s.frame(kind=Kind.EVALUATION, client=EVALUATOR))
    yield _one("the-plan-sent-back", "malformed", lambda exchange: encode(exchange.plan)[0])


def _frames() -> Iterator[MemberCase]:
    """Bytes that are not an envelope."""
    noise = random.Random(5)
    for name, frame in {
        "of-no-bytes": b"",
        "of-zeros": bytes(100),
        "of-noise": noise.randbytes(100),
        "of-60-kib-of-noise": noise.randbytes(60_000),
        "of-a-reserved-byte": b"\xc1",
        "of-nil": b"\xc0",
        "of-a-map": b"\x80",
        "of-arrays-in-arrays": b"\x95" * 5000,
        "of-an-array-of-4-g": b"\xdd\xff\xff\xff\xff",
        "of-four": msgpack.packb([22, 7, 0, 0]),
        "of-six": msgpack.packb([22, 7, 0, 0, [], 0]),
        "of-floats": msgpack.packb([22.0, 7.0, 0.0, 0.0, []]),
        "of-bools": msgpack.packb([22, True, False, False, []]),
        "of-words": msgpack.packb(["REPORT", "7", "0", "0", []]),
        "of-another-format": msgpack.packb([2 * 16 + Kind.REPORT, 7, 0, 0, []]),
        "of-kind-0": msgpack.packb([16, 7, 0, 0, []]),
        "of-kind-11": msgpack.packb([27, 7, 0, 0, []]),
        "of-a-negative-round": msgpack.packb([22, 7, -1, 0, []]),
        "of-a-round-too-high": msgpack.packb([22, 7, 2**32, 0, []]),
        "with-a-word-for-a-body": msgpack.packb([22, 7, 0, 0, "body"]),
        "with-nil-for-a-body": msgpack.packb([22, 7, 0, 0, None]),
        "with-nil-in-its-body": msgpack.packb([22, 7, 0, 0, [None]]),
        "with-a-bool-in-its-body": msgpack.packb([22, 7, 0, 0, [True]]),
        "with-a-map-in-its-body": msgpack.packb([22, 7, 0, 0, [{}]]),
        "with-65-in-its-body": msgpack.packb([22, 7, 0, 0, [0] * 65]),
        "with-arrays-eight-deep": msgpack.packb([22, 7, 0, 0, [[[[[[[[]]]]]]]]]),
        "with-a-long-word": msgpack.packb([22, 7, 0, 0, ["a" * 5000]]),
        "with-numbers-written-long": b"\x95\x16\xcd\x00\x07\x00\x00\x90",
        "longer-than-any-report": msgpack.packb([22, 7, 0, 0, [bytes(66_000)]]),
    }.items():
        yield _one(f"envelope-{name}", "malformed", lambda exchange, own=frame: own)
    yield _one("report-cut-short", "malformed", lambda exchange: exchange.frame()[:-1])
    yield _one("report-with-a-trailing-byte", "malformed", lambda exchange: exchange.frame() + b"\0")


def _bodies() -> Iterator[MemberCase]:
    numbers = {"nan": (float("nan"), "not-finite"), "infinity": (float("inf"), "not-finite")}
    numbers |= {"minus-infinity": (-float("inf"), "not-finite"), "1e38": (1e38, "absurd"), "-1e13": (-1e13, "absurd")}
    for name, (value, reason) in numbers.items():
        first = struct.pack("<f", value)
        yield _one(f"scalar-{name}", reason, lambda exchange, own=first: exchange.scalars(lambda old: own + old[4:]))
        yield _one(
            f"last-scalar-{name}", reason, lambda exchange, own=first: exchange.scalars(lambda old: old[:-4] + own)
        )
    sizes: dict[str, Callable[[bytes], bytes]] = {
        "one-too-few": lambda old: old[4:],
        "one-too-many": lambda old: old + old[:4],
        "none": lambda old: b"",
        "a-byte-too-few": lambda old: old[1:],
        "sixty-thousand-bytes-of": lambda old: bytes(60_000),
    }
    for name, change in sizes.items():
        yield _one(f"scalars-{name}", "bad-payload", lambda exchange, own=change: exchange.scalars(own))
    bodies: dict[str, Callable[[list[Any]], list[Any]]] = {
        "empty": lambda body: [],
        "without-digests": lambda body: body[:1],
        "without-scalars": lambda body: body[1:],
        "twice": lambda body: body * 2,
        "the-other-way-round": lambda body: body[::-1],
        "of-words": lambda body: ["1.0", "2.0"],
        "of-numbers": lambda body: [1.0, 2.0, 3.0, body[1]],
        "of-64-empty-arrays": lambda body: [[]] * 64,
    }
    for name, make in bodies.items():
        yield _one(
            f"body-{name}", "bad-payload", lambda exchange, own=make: exchange.frame(body=own(exchange.report.body))
        )
    for name, body in {
        "nothing": [],
        "a-number": [1, ""],
        "for-no-reason": ["", ""],
        "for-a-reason-of-its-own": ["because", "I like it"],
        "at-length": ["overflow", "a" * 4000],
    }.items():
        yield _one(f"decline-{name}", "bad-payload", lambda exchange, own=body: exchange.decline(body=own))
    digests = {"wrong": bytes(16), "short": b"\1", "empty": b"", "long": bytes(50_000)}
    for name, digest in digests.items():
        yield _one(
            f"digests-{name}",
            "diverged",
            lambda exchange, own=digest: exchange.frame(body=[exchange.report.body[0], own]),
        )


def _joins() -> Iterator[MemberCase]:
    """A client may correct the version that the server believes it to be at, but only its own and with valid proofs."""
    yield _one("join-for-another", "claims-another", lambda exchange: exchange.join(BAD, (0, 0, 0)))
    yield _one("join-for-all", "claims-another", lambda exchange: exchange.join(BAD, (0, BAD, 0)))
    yield _one(
        "join-for-itself-and-another", "claims-another", lambda exchange: exchange.join(BAD, (BAD, BAD, 0), (0, 0, 0))
    )
    yield _one("join-for-thousand-millions", "claims-another", lambda exchange: exchange.join(BAD, (0, 2**32 - 1, 0)))
    yield _one("join-as-another", "malformed", lambda exchange: exchange.join(0, (0, 0, 0)))
    yield _one("join-as-a-host", "malformed", lambda exchange: exchange.join(HOST, (0, 5, 0)))
    yield MemberCase(
        "join-of-a-foreign-version", lambda exchange: [exchange.join(BAD, (BAD, BAD, 10**6))], {"foreign-version": 2}
    )
    yield _one("join-selftest-wrong", "selftest", lambda exchange: exchange.join(BAD, (BAD, BAD, 0), selftest=bytes(8)))
    yield MemberCase("join-x0-wrong", lambda exchange: [exchange.join(BAD, (BAD, BAD, 0), x0=bytes(8))], {"x0": 2})
    yield _one("join-with-a-reports-body", "bad-payload", lambda exchange: exchange.frame(kind=Kind.JOIN))
    yield _one("join-for-nobody", "", lambda exchange: exchange.join(BAD))
    yield _one("join-again-and-again", "joins-again", lambda exchange: exchange.join(BAD, (BAD, BAD, 0)))


def _several() -> Iterator[MemberCase]:
    yield MemberCase("nothing", lambda exchange: [], {})
    yield MemberCase("report-twice", lambda exchange: [exchange.frame()] * 2, {"duplicate": 1})
    yield MemberCase("report-64-times", lambda exchange: [exchange.frame()] * 64, {"duplicate": 63})
    yield MemberCase("two-reports", lambda s: [s.frame(), s.scalars(lambda old: old[::-1])], {"equivocates": 1})
    good_and_bad = {"equivocates": 1, "malformed": 1}
    yield MemberCase("report-nan-and-noise", lambda s: [s.frame(), s.scalars(_nan), b"noise"], good_and_bad)
    first_bad = {"not-finite": 1, "not-asked": 1}
    yield MemberCase("nan-and-then-the-report", lambda exchange: [exchange.scalars(_nan), exchange.frame()], first_bad)
    yield MemberCase("sixty-four-of-rubbish", lambda exchange: [b"rubbish"] * 64, {"malformed": 64})
    after = {"malformed": 63, "not-asked": 1}
    yield MemberCase("rubbish-and-then-the-report", lambda exchange: [b""] * 63 + [exchange.frame()], after)
    yield MemberCase("decline", lambda exchange: [exchange.decline()], {"overflow": 1})
    yield MemberCase("decline-64-times", lambda exchange: [exchange.decline()] * 64, {"overflow": 1, "duplicate": 63})
    # of messages that arrive at the same instant a report is handled first
    yield MemberCase("decline-and-report", lambda exchange: [exchange.decline(), exchange.frame()], {"duplicate": 1})
    yield MemberCase("reports-of-64-rounds", _of_many_rounds, {"wrong-round": 62})
    yield MemberCase("the-report-itself", lambda exchange: [exchange.frame()], {})


def _nan(scalars: bytes) -> bytes:
    return b"\xff" * len(scalars)


def _of_many_rounds(exchange: Exchange) -> list[bytes]:
    return [exchange.frame(round=exchange.plan.round + by) for by in range(63)]


CASES = [*_several(), *_headers(), *_frames(), *_bodies(), *_joins()]
