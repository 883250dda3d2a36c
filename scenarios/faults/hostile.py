"""Clients that do not keep to the protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, get_args

from pydantic import Field

from seedbus.agents import chunks, messages
from seedbus.agents.chunks import Chunk, Title
from seedbus.agents.client.forging import Occasion
from seedbus.bus import EVALUATOR, HOST, Envelope, KeyedRandom, Kind, encode
from seedbus.scenarios.faults.base import RoundSelector

T = TypeVar("T")
Name = Literal["silence", "header", "twice", "body", "noise", "digest", "join", "decline", "snapshot", "evaluation"]
_OWED = frozenset({Kind.WAKE, Kind.REFUSE})
_FAR = 10**6
_LONG = 60_000  # bytes of an answer, and entries in it: with more a process would break the transport, not a client
_MOST = 60
_FOREIGN = 2**31


class Hostile(RoundSelector):
    """Let the selected clients answer with what breaks the protocol, each time in a way that is drawn.

    It strikes the answers to plans, to snapshots and to requests for one; a client that comes back says it beside its
    JOIN. A report that is sent `twice` counts once; all other lies are refused, and the report does not count. For
    numbers that lie, in reports that are in order, there is `byzantine`.
    """

    fault: Literal["hostile"] = "hostile"
    kinds: list[Name] | None = Field(
        default=None,
        min_length=1,
        description="what to draw from; default: all. silence: nothing; header: another round, version, sender or "
        "kind; twice: the same up to sixty times; body: too few, too many or other parts; noise: bytes that are no "
        "message; digest: a false one; join: a JOIN for others or from elsewhere; decline: a DECLINE for any reason; "
        "snapshot: PULL and PIECE out of turn; evaluation: an EVALUATION",
    )

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def forges(self, client: int, round: int, random: KeyedRandom) -> bool:
        """Whether what a client says in a round is forged, all of it."""
        return self.strikes_client(client, round, random)

    def forge(self, occasion: Occasion, random: KeyedRandom) -> list[bytes] | None:
        """The frames in the place of the honest ones; None if this does not strike."""
        asked = occasion.asked
        if not self.forges(asked.client, asked.round, random):
            return None
        liar = _Liar(occasion, random)
        able = [name for name in self.kinds or get_args(Name) if name in liar.lies]
        if not able:
            return None
        # a client that is back was told so by the simulation: what comes on top of its JOIN is forged, for without one
        # the server would wait for it as it never waits for a client that is merely silent
        kept = occasion.answers if asked.kind in _OWED else []
        return _bounded(liar.lies[liar.one(able)]()) + [encode(answer)[0] for answer in kept]


class _Liar:
    """One answer of one client. What is drawn depends on all that it was sent."""

    def __init__(self, occasion: Occasion, random: KeyedRandom) -> None:
        self._random, self._count = random, 0
        self._key = hashlib.blake2b(occasion.frame, digest_size=8).hexdigest()
        self._asked, self._answers, self._proofs = occasion.asked, occasion.answers, occasion.proofs
        self._has_digests = occasion.has_digests
        self.lies: dict[str, Callable[[], list[bytes]]] = {
            "silence": list,
            "header": self._header,
            "twice": self._twice,
            "body": self._body,
            "noise": self._noise,
        }
        kind = occasion.asked.kind
        if kind is Kind.PLAN:
            self.lies |= {"digest": self._digest, "decline": self._decline, "evaluation": self._evaluation}
        if kind is not Kind.SNAPSHOT:  # a JOIN in answer to it would say that it is installed
            self.lies |= {"join": self._join}
        if kind is not Kind.WAKE:
            self.lies |= {"snapshot": self._snapshot}

    def one(self, choices: Sequence[T]) -> T:
        return choices[self.whole(0, len(choices) - 1)]

    def whole(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        self._count += 1
        return low + int((high - low + 1) * self._random.draw(self._asked.client, self._key, self._count))

    def filling(self, count: int) -> bytes:
        return hashlib.shake_256(f"{self._key} {self.whole(0, 2**32)}".encode()).digest(count)

    # -- lies

    def _twice(self) -> list[bytes]:
        frames = [encode(answer)[0] for answer in self._answers]
        return frames * max(2, min(self.whole(2, 64), _MOST // len(frames), _LONG // sum(map(len, frames))))

    def _header(self) -> list[bytes]:
        said, (_, client, round, base, _) = self._answers[0], self._asked
        neighbour = client - 1 if client else client + 1
        lies = [
            said._replace(round=round + self.one((1, 2, _FAR))),
            said._replace(round=max(0, round - self.one((1, 10))), base=base + _FAR),
            said._replace(base=base + self.one((1, _FAR))),
            said._replace(client=self.one((neighbour, client + 1, 2**20))),
            said._replace(client=self.one((EVALUATOR, HOST, HOST - 1))),
            said._replace(kind=self.one((Kind.WELCOME, Kind.REFUSE, Kind.COMMIT, Kind.BYE))),
        ]
        if self._asked.kind is not Kind.WAKE:  # which would tell the simulation of a snapshot
            lies.append(self._asked)
        return self._frame(self.one(lies))

    def _body(self) -> list[bytes]:
        said = self._answers[0]
        body: list[Any] = list(said.body)
        first = body[0] if body and isinstance(body[0], bytes) else b""
        changed: list[Any] = self.one(
            [
                [],
                body[1:],
                body * 2,
                [first[1:], *body[1:]],
                [first + first[:4] + b"\0", *body[1:]],
                [bytes(self.one((1, 17, _LONG))), *body[1:]],
                ["1.0", "2.0"],
                [1.0, 2.0, 3.0],
                [[]] * 64,
                [*body, b"more", b"than", b"that"],
            ]
        )
        return [encode(said._replace(body=changed if changed != body else [[[]]]))[0]]

    def _noise(self) -> list[bytes]:
        frame = encode(self._answers[0])[0]
        found: list[bytes] = self.one(
            [
                [b""],
                [frame[: self.whole(0, len(frame) - 1)]],
                [frame + bytes(self.whole(1, 9))],
                [b"\0" + self.filling(self.whole(0, 200))],
                [b"\x95" * self.one((5, 5000))],
                [b"\xdd\xff\xff\xff\xff"],
                [b"\x80"] * self.one((1, 64)),
                [bytes(66_000)],
            ]
        )
        return found

    def _digest(self) -> list[bytes]:
        said = self._answers[0]
        body = said.body[:-1] if self._has_digests else said.body
        false = self.one((b"", b"\1", bytes(16), self.filling(8), self.filling(24), bytes(_LONG)))
        return self._frame(said._replace(body=[*body, false]))

    def _join(self) -> list[bytes]:
        client, version = self._asked.client, self._asked.base
        spans, proofs = [(client, client, 0)], dict(self._proofs)
        match self.whole(0, 8):
            case 0:
                spans = [(client + 1, client + 1, version)]
            case 1:
                spans = [(0, client + 1, 0)]
            case 2:
                spans = [(client, client, 0), (client + 1, client + 1, 0)]
            case 3:
                spans = [(client, client, _FOREIGN + self.whole(0, 9))]
            case 4:
                spans = []
            case 5:
                spans = [(0, 2**32 - 1, 0)]
            case 6:
                proofs |= {self.one(tuple(proofs)): self.filling(8)}
            case 7:
                proofs |= {self.one(tuple(proofs)): bytes(500)}
        sender = self.one((client, client, client, client + 1, HOST))
        join = messages.Join(sender, tuple(messages.Span(*span) for span in spans), **proofs).pack()
        frames = self._frame(join._replace(round=self._asked.round)) * self.one((1, 1, 3))
        # alone in answer to a plan it would tell the simulation that the client stands elsewhere
        return [*frames, b""] if self._asked.kind is Kind.PLAN else frames

    def _decline(self) -> list[bytes]:
        body: list[Any] = self.one(
            (["overflow", "too large"], ["because", "I like it"], ["", ""], [1, ""], [], ["x", "a" * 4000])
        )
        decline = Envelope(Kind.DECLINE, self._asked.client, self._asked.round, self._asked.base, body)
        return self._frame(decline) * self.one((1, 1, 9))

    def _snapshot(self) -> list[bytes]:
        _, client, round, base, body = self._asked
        digest = body[1] if self._asked.kind is Kind.SNAPSHOT else self.filling(chunks.DIGEST_BYTES)
        title = Title(base, self.one((1, 3, 2**31)), digest)
        index = self.one((0, title.count - 1))
        piece = Chunk(title, index, self.filling(self.one((1, 64, 256)))).pack(Kind.PIECE, client, round)
        false = [
            Chunk(got.title, got.index, self.filling(len(got.data))).pack(Kind.PIECE, client, round)
            for got in map(chunks.unpack, (each for each in self._answers if each.kind is Kind.PIECE))
            if isinstance(got, Chunk)
        ]
        said: list[Envelope] = self.one(
            [
                [chunks.pull(title, [index], client, round)],
                [chunks.pull(title, [], client, round)],
                [chunks.pull(title, range(2**16), client, round)] * 3,
                [chunks.description(title, client, round)],
                [chunks.description(Title(base, 0, b""), client, round)],
                [piece],
                false or [piece] * 2,
            ]
        )
        return [encode(each)[0] for each in said]

    def _evaluation(self) -> list[bytes]:
        _, client, round, base, _ = self._asked
        metrics = self.one(({"accuracy": 1.0}, {"event": float("nan")}, {}))
        found = messages.Evaluation(round, base, metrics, {"x": self.filling(8)}).pack()
        return self._frame(found._replace(client=self.one((client, EVALUATOR))))

    def _frame(self, envelope: Envelope) -> list[bytes]:
        return [encode(envelope)[0]]


def _bounded(frames: list[bytes]) -> list[bytes]:
    """As many as one answer takes on every transport."""
    found, size = list[bytes](), 0
    for frame in frames[:_MOST]:
        size += len(frame) + 8
        if size > 2**16 + 2**13:
            break
        found.append(frame)
    return found
