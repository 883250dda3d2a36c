"""Members that turn bad: they joined as they should, and answer plans as nobody should."""

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
class Said:
    """What the client was told, and what it would have answered. proof: its process's self-test and x₀."""

    plan: Envelope
    report: Envelope
    proof: Mapping[str, bytes]

    def frame(self, **changes: Any) -> bytes:
        """The report, but for the changes."""
        return encode(self.report._replace(**changes))[0]

    def decline(self, **changes: Any) -> bytes:
        """In the report's place, that there is none."""
        return self.frame(**({"kind": Kind.DECLINE, "body": ["overflow", "too large"]} | changes))

    def scalars(self, pack: Callable[[bytes], bytes]) -> bytes:
        """The report with other scalars, and the digests that belong to it."""
        return self.frame(body=[pack(self.report.body[0]), *self.report.body[1:]])

    def join(self, sender: int, *spans: tuple[int, int, int], **changes: bytes) -> bytes:
        proof = {**self.proof, **changes}
        return encode(Join(sender, tuple(Span(*span) for span in spans), **proof).pack())[0]


@dataclass(frozen=True)
class MemberCase:
    """What the client answers, and what it is refused for in that round, how often."""

    name: str
    answer: Callable[[Said], Sequence[bytes]]
    refusals: Mapping[str, int]

    def __str__(self) -> str:
        return self.name


def spoiled(made: Recruit) -> Recruit:
    """Followers of whom two clients turn bad."""
    return lambda offer: _Spoiled(made(offer), offer)


class _Spoiled:
    def __init__(self, good: Follower, offer: Offer) -> None:
        self._good = good
        self._proof = Join.unpack(decode(good.join(offer.host, b"")[0])).proofs

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        return self._good.join(host, nonce)

    def welcome(self, frame: bytes) -> None:
        self._good.welcome(frame)

    def handle(self, frame: bytes) -> list[bytes]:
        plan, answers = decode(frame), self._good.handle(frame)
        if plan.client == SILENT:
            return []
        if plan.client != BAD or plan.round >= len(CASES):
            return answers
        return list(CASES[plan.round].answer(Said(plan, decode(answers[0]), self._proof)))


def _one(name: str, reason: str, make: Callable[[Said], bytes]) -> MemberCase:
    return MemberCase(name, lambda said: [make(said)], {reason: 1} if reason else {})


def _headers() -> Iterator[MemberCase]:
    for whose in (0, SILENT, BAD + 1, EVALUATOR, HOST, HOST - 1):
        yield _one(f"report-of-{whose}", "malformed", lambda said, own=whose: said.frame(client=own))
    rounds = {"to-come": 1, "far-off": 10**6, "before": -1, "long-ago": -10}
    for name, by in rounds.items():
        reason = "wrong-round" if by > 0 else "late"
        yield _one(f"report-of-a-round-{name}", reason, lambda said, own=by: said.frame(round=said.plan.round + own))
    for by in (1, -1, 10**6):
        change = f"report-from-version-{by:+}"
        yield _one(change, "wrong-version", lambda said, own=by: said.frame(base=said.plan.base + own))
    for kind in (Kind.WELCOME, Kind.REFUSE, Kind.COMMIT, Kind.PLAN, Kind.BYE):
        yield _one(f"{kind.name.lower()}-for-a-report", "malformed", lambda said, own=kind: said.frame(kind=own))
    yield _one("decline-with-a-reports-body", "bad-payload", lambda said: said.frame(kind=Kind.DECLINE))
    yield _one("decline-of-another", "malformed", lambda said: said.decline(client=0))
    yield _one("decline-of-a-round-before", "late", lambda said: said.decline(round=said.plan.round - 1))
    yield _one("decline-from-a-version-to-come", "wrong-version", lambda said: said.decline(base=said.plan.base + 1))
    yield _one("evaluation-for-a-report", "wrong-kind", lambda said: said.frame(kind=Kind.EVALUATION))
    yield _one("evaluation-of-the-evaluator", "malformed", lambda s: s.frame(kind=Kind.EVALUATION, client=EVALUATOR))
    yield _one("the-plan-sent-back", "malformed", lambda said: encode(said.plan)[0])


def _frames() -> Iterator[MemberCase]:
    """Bytes that are no envelope at all."""
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
        yield _one(f"envelope-{name}", "malformed", lambda said, own=frame: own)
    yield _one("report-cut-short", "malformed", lambda said: said.frame()[:-1])
    yield _one("report-with-a-trailing-byte", "malformed", lambda said: said.frame() + b"\0")


def _bodies() -> Iterator[MemberCase]:
    numbers = {"nan": (float("nan"), "not-finite"), "infinity": (float("inf"), "not-finite")}
    numbers |= {"minus-infinity": (-float("inf"), "not-finite"), "1e38": (1e38, "absurd"), "-1e13": (-1e13, "absurd")}
    for name, (value, reason) in numbers.items():
        first = struct.pack("<f", value)
        yield _one(f"scalar-{name}", reason, lambda said, own=first: said.scalars(lambda old: own + old[4:]))
        yield _one(f"last-scalar-{name}", reason, lambda said, own=first: said.scalars(lambda old: old[:-4] + own))
    sizes: dict[str, Callable[[bytes], bytes]] = {
        "one-too-few": lambda old: old[4:],
        "one-too-many": lambda old: old + old[:4],
        "none": lambda old: b"",
        "a-byte-too-few": lambda old: old[1:],
        "sixty-thousand-bytes-of": lambda old: bytes(60_000),
    }
    for name, change in sizes.items():
        yield _one(f"scalars-{name}", "bad-payload", lambda said, own=change: said.scalars(own))
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
        yield _one(f"body-{name}", "bad-payload", lambda said, own=make: said.frame(body=own(said.report.body)))
    for name, body in {
        "nothing": [],
        "a-number": [1, ""],
        "for-no-reason": ["", ""],
        "for-a-reason-of-its-own": ["because", "I like it"],
        "at-length": ["overflow", "a" * 4000],
    }.items():
        yield _one(f"decline-{name}", "bad-payload", lambda said, own=body: said.decline(body=own))
    digests = {"wrong": bytes(16), "short": b"\1", "empty": b"", "long": bytes(50_000)}
    for name, digest in digests.items():
        yield _one(f"digests-{name}", "diverged", lambda said, own=digest: said.frame(body=[said.report.body[0], own]))


def _joins() -> Iterator[MemberCase]:
    """A client may say that it is elsewhere than the server believes; not so."""
    yield _one("join-for-another", "claims-another", lambda said: said.join(BAD, (0, 0, 0)))
    yield _one("join-for-all", "claims-another", lambda said: said.join(BAD, (0, BAD, 0)))
    yield _one("join-for-itself-and-another", "claims-another", lambda said: said.join(BAD, (BAD, BAD, 0), (0, 0, 0)))
    yield _one("join-for-thousand-millions", "claims-another", lambda said: said.join(BAD, (0, 2**32 - 1, 0)))
    yield _one("join-as-another", "malformed", lambda said: said.join(0, (0, 0, 0)))
    yield _one("join-as-a-host", "malformed", lambda said: said.join(HOST, (0, 5, 0)))
    yield MemberCase(
        "join-of-a-foreign-version", lambda said: [said.join(BAD, (BAD, BAD, 10**6))], {"foreign-version": 2}
    )
    yield _one("join-selftest-wrong", "selftest", lambda said: said.join(BAD, (BAD, BAD, 0), selftest=bytes(8)))
    yield MemberCase("join-x0-wrong", lambda said: [said.join(BAD, (BAD, BAD, 0), x0=bytes(8))], {"x0": 2})
    yield _one("join-with-a-reports-body", "bad-payload", lambda said: said.frame(kind=Kind.JOIN))
    yield _one("join-for-nobody", "", lambda said: said.join(BAD))
    yield _one("join-again-and-again", "joins-again", lambda said: said.join(BAD, (BAD, BAD, 0)))


def _several() -> Iterator[MemberCase]:
    yield MemberCase("nothing", lambda said: [], {})
    yield MemberCase("report-twice", lambda said: [said.frame()] * 2, {"duplicate": 1})
    yield MemberCase("report-64-times", lambda said: [said.frame()] * 64, {"duplicate": 63})
    good_and_bad = {"duplicate": 1, "malformed": 1}
    yield MemberCase("report-nan-and-noise", lambda s: [s.frame(), s.scalars(_nan), b"noise"], good_and_bad)
    first_bad = {"not-finite": 1, "not-asked": 1}
    yield MemberCase("nan-and-then-the-report", lambda said: [said.scalars(_nan), said.frame()], first_bad)
    yield MemberCase("sixty-four-of-rubbish", lambda said: [b"rubbish"] * 64, {"malformed": 64})
    after = {"malformed": 63, "not-asked": 1}
    yield MemberCase("rubbish-and-then-the-report", lambda said: [b""] * 63 + [said.frame()], after)
    yield MemberCase("decline", lambda said: [said.decline()], {"overflow": 1})
    yield MemberCase("decline-64-times", lambda said: [said.decline()] * 64, {"overflow": 1, "duplicate": 63})
    # of what arrives at one instant a report comes first
    yield MemberCase("decline-and-report", lambda said: [said.decline(), said.frame()], {"duplicate": 1})
    yield MemberCase("reports-of-64-rounds", _of_many_rounds, {"wrong-round": 62})
    yield MemberCase("the-report-itself", lambda said: [said.frame()], {})


def _nan(scalars: bytes) -> bytes:
    return b"\xff" * len(scalars)


def _of_many_rounds(said: Said) -> list[bytes]:
    return [said.frame(round=said.plan.round + by) for by in range(63)]


CASES = [*_several(), *_headers(), *_frames(), *_bodies(), *_joins()]
