"""Which answers of a process a fault may replace, and what it is told of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from seedbus.agents.client.forging import Forging, Occasion, forges
from seedbus.bus import EVALUATOR, Envelope, Kind, encode

LIAR = 2
FORGED = [b"\xc1 is no message", b""]


def frame(kind: Kind, client: int = LIAR, base: int = 3, body: Sequence[Any] = ()) -> bytes:
    return encode(Envelope(kind, client, 7, base, list(body)))[0]


NOTE, JOIN, REPORT = (frame(kind) for kind in (Kind.WAKE, Kind.JOIN, Kind.REPORT))


class Honest:
    """Followers that give the answers of a test, and record what they are asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.calls = list(answers), list[Any]()
        self.host = SimpleNamespace(member_proof={"x0": b"before"})
        self.longest = 2**30

    def try_first_round(self, cohort: int) -> None:
        self.calls.append(("try", cohort))

    def join(self, host: int, nonce: bytes = b"") -> list[bytes]:
        self.calls.append(("join", host, nonce))
        self.host.member_proof = {"x0": b"after"}
        return self.answers

    def welcome(self, frame: bytes) -> None:
        self.calls.append(("welcome", frame))

    def handle_all(self, frames: Sequence[bytes]) -> Iterator[list[bytes]]:
        self.calls.append(list(frames))
        return iter([list(self.answers) for _ in frames])


class Liar:
    """A fault that forges all answers, and keeps what it was told of the last."""

    def __init__(self, frames: list[bytes] | None, name: str = "liar") -> None:
        self.frames, self.name, self.seen = frames, name, list[Occasion]()

    def __repr__(self) -> str:
        return self.name

    def forge(self, occasion: Occasion, random: Any) -> list[bytes] | None:
        self.seen.append(occasion)
        return self.frames


def forging(honest: Honest, *faults: Any, verify_every: int = 0) -> Forging:
    followers: Any = honest
    return Forging(followers, faults, seed=1, clients=5, verify_every=verify_every)


@pytest.mark.parametrize(
    ("asked", "answers", "sent"),
    [
        (frame(Kind.PLAN), [REPORT], FORGED),
        (frame(Kind.PLAN, client=0), [frame(Kind.REPORT, client=0)], FORGED),
        (frame(Kind.PLAN), [NOTE, REPORT, NOTE], [*FORGED, NOTE, NOTE]),
        (frame(Kind.WAKE), [JOIN, NOTE], [*FORGED, NOTE]),
        (frame(Kind.PLAN), [JOIN], [JOIN]),
        (frame(Kind.SNAPSHOT), [frame(Kind.PULL), JOIN, NOTE], [frame(Kind.PULL), JOIN, NOTE]),
        (frame(Kind.SNAPSHOT), [frame(Kind.PULL)], FORGED),
        (frame(Kind.SNAPSHOT), [NOTE], [NOTE]),
        (frame(Kind.PLAN), [], []),
        (frame(Kind.FETCH, client=EVALUATOR), [frame(Kind.PIECE, client=EVALUATOR)], None),
        (b"\xc1", [REPORT], [REPORT]),
    ],
    ids=[
        "a report",
        "the first client's",
        "beside notes",
        "a join of a client that returns",
        "a join that tells a version",
        "one beside a request",
        "a request",
        "notes alone",
        "nothing",
        "the evaluator's",
        "an answer to what is no message",
    ],
)
def test_a_client_may_forge_its_answers_but_neither_notes_nor_what_tells_the_simulation_its_version(
    asked: bytes, answers: list[bytes], sent: list[bytes] | None
) -> None:
    assert forging(Honest(*answers), Liar(FORGED)).handle(asked) == (answers if sent is None else sent)
    assert forging(Honest(*answers), Liar(None), object()).handle(asked) == answers


@pytest.mark.parametrize(("verify_every", "has_digests"), [(0, False), (1, True), (2, False), (3, True)])
def test_a_fault_is_told_what_was_asked_what_would_be_answered_and_what_its_process_can_show(
    verify_every: int, has_digests: bool
) -> None:
    liar, honest = Liar(None), Honest(NOTE, REPORT)
    followers = forging(honest, liar, verify_every=verify_every)
    asked = Envelope(Kind.PLAN, LIAR, 7, 3, [1, 2])
    followers.handle(encode(asked)[0])
    answer = Envelope(Kind.REPORT, LIAR, 7, 3, [])
    assert liar.seen == [Occasion(asked, [answer], {"x0": b"before"}, has_digests)]
    assert followers.join(-4, b"nonce") == [NOTE, REPORT]
    followers.handle(encode(asked)[0])
    assert liar.seen[-1].proofs == {"x0": b"after"}


def test_the_first_fault_that_applies_forges_whatever_their_order() -> None:
    one, two, silent = Liar([b"one"], "b"), Liar([b"two"], "c"), Liar(None, "a")
    for faults in ((one, two, silent), (two, silent, one)):
        assert forging(Honest(REPORT), *faults).handle(frame(Kind.PLAN)) == [b"one"]
    assert not two.seen and forges([object(), silent]) and not forges([object()])


def test_all_else_is_done_by_the_honest_followers() -> None:
    honest = Honest(REPORT)
    followers = forging(honest, Liar(FORGED))
    followers.try_first_round(5)
    followers.welcome(b"welcome")
    assert followers.join(-4, b"nonce") == [REPORT]
    plans = [frame(Kind.PLAN), frame(Kind.PLAN, client=1)]
    assert list(followers.handle_all(plans)) == [FORGED, FORGED]
    assert honest.calls == [("try", 5), ("welcome", b"welcome"), ("join", -4, b"nonce"), plans]
