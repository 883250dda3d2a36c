"""Clients that violate the protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, get_args

from pydantic import Field

from seedbus.agents import messages
from seedbus.agents.catch_up import chunks
from seedbus.agents.catch_up.chunks import Chunk, Title
from seedbus.agents.client.forging import Occasion
from seedbus.agents.secure.sharing import SHARE_BYTES
from seedbus.agents.secure.stages import Stage
from seedbus.bus import EVALUATOR, HOST, Envelope, KeyedRandom, Kind, encode
from seedbus.bus.pending_replies import JOIN_REQUESTS
from seedbus.pieces import Frame
from seedbus.scenarios.faults.base import ROUND_KEY, RoundSelector

T = TypeVar("T")
Forgery = Literal[
    "silence", "header", "twice", "body", "noise", "digest", "join", "decline", "snapshot", "evaluation", "mask"
]
_LARGE_OFFSET = 10**6
# at most so many bytes in an answer, and entries in it: more would break the transport of the whole process
_LONG_BYTES = 60_000
_MAX_FRAMES = 60  # of one answer
_FOREIGN_VERSION = 2**31  # a version that no run reaches
_MAX_ANSWER_BYTES = 2**16 + 2**13  # that every transport carries


class Hostile(RoundSelector):
    """Let the selected clients answer with messages that violate the protocol, in ways drawn at random.

    This concerns answers to plans, to snapshots and to requests for a snapshot. A client that returns sends the forged
    messages in addition to its JOIN. A report that is sent `twice` counts once; all other forged messages are refused,
    and the report does not count. But with `precision: sign` any bits are a valid report. For false numbers in valid
    reports see `byzantine`.
    """

    keyed_as = f"Hostile {ROUND_KEY} kinds"

    fault: Literal["hostile"] = "hostile"
    kinds: list[Forgery] | None = Field(
        default=None,
        min_length=1,
        description="violations to draw from; default: all. silence: no answer; header: a wrong round, version, sender "
        "or kind; twice: the answer repeated up to sixty times; body: missing, additional or wrong parts; noise: bytes "
        "that are no message; digest: a false digest; join: a JOIN for other clients or another version; decline: a "
        "DECLINE with any reason; snapshot: unexpected PULL and PIECE; evaluation: an EVALUATION; mask: false keys, "
        "shares or refusals in secure aggregation",
    )

    @property
    def may_lose(self) -> bool:
        return self.probability > 0

    def forges(self, client: int, round: int, random: KeyedRandom) -> bool:
        """True if all of the client's answers in a round are forged."""
        return self.strikes_client(client, round, random)

    def forge(self, occasion: Occasion, random: KeyedRandom) -> list[Frame] | None:
        """Return the frames that replace the honest answers, or None if these stay.

        Args:
            occasion: the message that the client has received, and its honest answers.
            random: the fault's own draws.
        """
        asked = occasion.asked
        if not self.forges(asked.client, asked.round, random):
            return None
        forger = _Forger(occasion, random)
        possible = [name for name in self.kinds or get_args(Forgery) if name in forger.forgeries]
        if not possible:
            return None
        # a returning client keeps its honest JOIN: without it, it would not be back
        kept = occasion.answers if asked.kind in JOIN_REQUESTS else []
        return _bounded(forger.forgeries[forger.choose(possible)]()) + [encode(answer)[0] for answer in kept]


class _Forger:
    """Forges one answer of one client. The draws are keyed by the message that it answers.

    They are not keyed by the bytes of that message, which depend on losses and, in secure aggregation, on chance. So a
    rehearsal without losses has the forgeries of the run.
    """

    def __init__(self, occasion: Occasion, random: KeyedRandom) -> None:
        self._random = random
        self._draws = 0
        asked = occasion.asked
        stage = f" {asked.body[0]}" if asked.kind is Kind.ASK else ""
        asks = f"{asked.kind.name} {asked.round} {asked.base}{stage}".encode()
        self._key = hashlib.blake2b(asks, digest_size=8).hexdigest()
        self._asked = asked
        self._answers = occasion.answers
        self._proofs = occasion.proofs
        self._has_digests = occasion.has_digests
        self.forgeries: dict[str, Callable[[], list[Frame]]] = {
            "silence": list,
            "header": self._header,
            "twice": self._twice,
            "body": self._body,
            "noise": self._noise,
        }
        kind = occasion.asked.kind
        if kind is Kind.ASK:
            self.forgeries |= {"mask": self._mask}
        if kind is Kind.PLAN:
            self.forgeries |= {"digest": self._digest, "decline": self._decline, "evaluation": self._evaluation}
        if kind is not Kind.SNAPSHOT:  # a JOIN in answer to a snapshot would say that it is installed
            self.forgeries |= {"join": self._join}
        if kind is not Kind.WAKE:
            self.forgeries |= {"snapshot": self._snapshot}

    def choose(self, choices: Sequence[T]) -> T:
        return choices[self.integer(0, len(choices) - 1)]

    def integer(self, low: int, high: int) -> int:
        """Draw an integer from low to high, both included."""
        self._draws += 1
        return low + int((high - low + 1) * self._random.draw(self._asked.client, self._key, self._draws))

    def random_bytes(self, count: int) -> bytes:
        return hashlib.shake_256(f"{self._key} {self.integer(0, 2**32)}".encode()).digest(count)

    # -- forgeries

    def _twice(self) -> list[Frame]:
        frames: list[Frame] = [encode(answer)[0] for answer in self._answers]
        return frames * max(
            2, min(self.integer(2, 64), _MAX_FRAMES // len(frames), _LONG_BYTES // sum(map(len, frames)))
        )

    def _header(self) -> list[Frame]:
        honest = self._answers[0]
        _, client, round, base, _ = self._asked
        neighbour = client - 1 if client else client + 1
        forged = [
            honest._replace(round=round + self.choose((1, 2, _LARGE_OFFSET))),
            honest._replace(round=max(0, round - self.choose((1, 10))), base=base + _LARGE_OFFSET),
            honest._replace(base=base + self.choose((1, _LARGE_OFFSET))),
            honest._replace(client=self.choose((neighbour, client + 1, 2**20))),
            honest._replace(client=self.choose((EVALUATOR, HOST, HOST - 1))),
            honest._replace(kind=self.choose((Kind.WELCOME, Kind.REFUSE, Kind.COMMIT, Kind.BYE))),
        ]
        if self._asked.kind is not Kind.WAKE:  # the simulation would take a returned WAKE for news of a snapshot
            forged.append(self._asked)
        return self._frame(self.choose(forged))

    def _body(self) -> list[Frame]:
        honest = self._answers[0]
        body: list[Any] = list(honest.body)
        first = body[0] if body and isinstance(body[0], bytes) else b""
        changed: list[Any] = self.choose(
            [
                [],
                body[1:],
                body * 2,
                [first[1:], *body[1:]],
                [first + first[:4] + b"\0", *body[1:]],
                [bytes(self.choose((1, 17, _LONG_BYTES))), *body[1:]],
                ["1.0", "2.0"],
                [1.0, 2.0, 3.0],
                [[]] * 64,
                [*body, b"more", b"than", b"that"],
            ]
        )
        return [encode(honest._replace(body=changed if changed != body else [[[]]]))[0]]

    def _noise(self) -> list[Frame]:
        frame = encode(self._answers[0])[0]
        frames: list[Frame] = self.choose(
            [
                [b""],
                [frame[: self.integer(0, len(frame) - 1)]],
                [frame + bytes(self.integer(1, 9))],
                [b"\0" + self.random_bytes(self.integer(0, 200))],
                [b"\x95" * self.choose((5, 5000))],
                [b"\xdd\xff\xff\xff\xff"],
                [b"\x80"] * self.choose((1, 64)),
                [bytes(66_000)],
            ]
        )
        return frames

    def _digest(self) -> list[Frame]:
        honest = self._answers[0]
        body = honest.body[:-1] if self._has_digests else honest.body
        false = self.choose((b"", b"\1", bytes(16), self.random_bytes(8), self.random_bytes(24), bytes(_LONG_BYTES)))
        return self._frame(honest._replace(body=[*body, false]))

    def _join(self) -> list[Frame]:
        client, version = self._asked.client, self._asked.base
        spans = [(client, client, 0)]
        proofs = dict(self._proofs)
        match self.integer(0, 8):
            case 0:
                spans = [(client + 1, client + 1, version)]
            case 1:
                spans = [(0, client + 1, 0)]
            case 2:
                spans = [(client, client, 0), (client + 1, client + 1, 0)]
            case 3:
                spans = [(client, client, _FOREIGN_VERSION + self.integer(0, 9))]
            case 4:
                spans = []
            case 5:
                spans = [(0, 2**32 - 1, 0)]
            case 6:
                proofs |= {self.choose(tuple(proofs)): self.random_bytes(8)}
            case 7:
                proofs |= {self.choose(tuple(proofs)): bytes(500)}
        sender = self.choose((client, client, client, client + 1, HOST))
        join = messages.Join(sender, tuple(messages.Span(*span) for span in spans), **proofs).pack()
        frames = self._frame(join._replace(round=self._asked.round)) * self.choose((1, 1, 3))
        # alone in answer to a plan, the JOIN would tell the simulation that the client has another version
        return [*frames, b""] if self._asked.kind is Kind.PLAN else frames

    def _decline(self) -> list[Frame]:
        body: list[Any] = self.choose(
            (["overflow", "too large"], ["because", "I like it"], ["", ""], [1, ""], [], ["x", "a" * 4000])
        )
        decline = Envelope(Kind.DECLINE, self._asked.client, self._asked.round, self._asked.base, body)
        return self._frame(decline) * self.choose((1, 1, 9))

    def _snapshot(self) -> list[Frame]:
        _, client, round, base, body = self._asked
        digest = body[1] if self._asked.kind is Kind.SNAPSHOT else self.random_bytes(chunks.DIGEST_BYTES)
        title = Title(base, self.choose((1, 3, 2**31)), digest)
        index = self.choose((0, title.count - 1))
        piece = Chunk(title, index, self.random_bytes(self.choose((1, 64, 256)))).pack(Kind.PIECE, client, round)
        false_pieces = [
            Chunk(chunk.title, chunk.index, self.random_bytes(len(chunk.data))).pack(Kind.PIECE, client, round)
            for chunk in map(chunks.unpack, (each for each in self._answers if each.kind is Kind.PIECE))
            if isinstance(chunk, Chunk)
        ]
        forged: list[Envelope] = self.choose(
            [
                [chunks.pull(title, [index], client, round)],
                [chunks.pull(title, [], client, round)],
                [chunks.pull(title, range(2**16), client, round)] * 3,
                [chunks.description(title, client, round)],
                [chunks.description(Title(base, 0, b""), client, round)],
                [piece],
                false_pieces or [piece] * 2,
            ]
        )
        return [encode(each)[0] for each in forged]

    def _mask(self) -> list[Frame]:
        """Lie about keys and shares. No lie is a valid share of a self mask: that makes the sum a random one."""
        honest = self._answers[0]
        stage, part = honest.body[0], honest.body[1]
        neighbours = len(part) // SHARE_BYTES - 1 if stage == Stage.UNMASK else 0
        everybody = (2 ** max(0, neighbours) - 1).to_bytes(-(-max(0, neighbours) // 8), "little")
        body: list[Any] = self.choose(
            [
                [stage, bytes(len(part))] if stage != Stage.UNMASK else [stage, b"\xff" * len(part)],
                [stage, part[1:]],
                [stage, part + part[:17]],
                [self.choose((0, 1, 2, 3, -1)), b""],
                [stage, self.choose(("asks-for-both", "no-masks", "because")), "I like it" * self.choose((1, 60))],
                [str(stage), part],
                [stage, "bad-shares", "they lie", b"", everybody, everybody],
            ]
        )
        return self._frame(honest._replace(body=body)) * self.choose((1, 1, 3))

    def _evaluation(self) -> list[Frame]:
        _, client, round, base, _ = self._asked
        metrics = self.choose(({"accuracy": 1.0}, {"event": float("nan")}, {}))
        evaluation = messages.Evaluation(round, base, metrics, {"x": self.random_bytes(8)}).pack()
        return self._frame(evaluation._replace(client=self.choose((client, EVALUATOR))))

    def _frame(self, envelope: Envelope) -> list[Frame]:
        return [encode(envelope)[0]]


def _bounded(frames: list[Frame]) -> list[Frame]:
    """Return the first of the frames, as many as one answer may have on every transport."""
    kept = list[Frame]()
    size = 0
    for frame in frames[:_MAX_FRAMES]:
        size += len(frame) + 8
        if size > _MAX_ANSWER_BYTES:
            break
        kept.append(frame)
    return kept
