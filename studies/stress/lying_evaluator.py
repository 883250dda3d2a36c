"""A lying evaluator for `seedbus stress`.

This is not a fault of the scenario schema. The evaluator belongs to the operator of the server, and its digests are the
reference that replicas are compared with. A run with a lying evaluator therefore has no expected result. What is
required is that the server continues, or stops with an error message.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, TypeVar

from seedbus.agents import messages
from seedbus.agents.messages import Evaluation
from seedbus.bus import EVALUATOR, Envelope, Follower, Kind, MalformedEnvelope, Offer, Recruit, decode, encode
from seedbus.bus.keyed_random import uniform
from seedbus.pieces import Frame

T = TypeVar("T")
_LIE_PROBABILITY = 0.3  # of each answer
_NAMES = (
    "event",
    "self",
    "method_name",
    "round",
    "time_s",
    "[/nope]",
    "\x1b]0;title\x07",
    "",
    "a" * 4000,
    "\ud7ff\u202e",
)
_VALUES = (math.nan, math.inf, -math.inf, 1e308, -0.0)


def lying(seed: int, recruit: Recruit) -> Recruit:
    """Wrap the followers that `recruit` creates, so that their evaluator lies in some of its answers."""
    return lambda offer: _LyingFollower(recruit(offer), seed, offer)


class _LyingFollower:
    def __init__(self, honest: Follower, seed: int, offer: Offer) -> None:
        self._honest = honest
        self._seed = seed
        self.join = honest.join
        self.welcome = honest.welcome

    def handle(self, frame: Frame) -> list[Frame]:
        answers = self._honest.handle(frame)
        try:
            request = decode(frame)
        except MalformedEnvelope:
            return answers
        if request.client != EVALUATOR or request.kind is not Kind.COMMIT:
            return answers
        draw = _Draw(self._seed, frame)
        return draw.lie(request, answers) if draw.number() < _LIE_PROBABILITY else answers


class _Draw:
    """Random draws for one answer, keyed by the frame that is answered."""

    def __init__(self, seed: int, frame: Frame) -> None:
        self._seed = seed
        self._count = 0
        self._key = hashlib.blake2b(bytes(frame), digest_size=8).hexdigest()

    def number(self) -> float:
        self._count += 1
        return uniform(self._seed, "lying evaluator", self._key, self._count)

    def one(self, choices: Sequence[T]) -> T:
        return choices[int(len(choices) * self.number())]

    def lie(self, request: Envelope, answers: list[Frame]) -> list[Frame]:
        """Return the frames to send in place of the honest answers, which are one EVALUATION or none."""
        honest = Evaluation.unpack(decode(answers[0])) if answers else Evaluation(request.round, request.base)
        _, _, round, version, _ = request
        value, false = self.one(_VALUES), bytes(self.one((0, 1, 7, 8, 9, 500, 5_000)))
        evaluation: Envelope = Evaluation(round, version, honest.metrics, honest.digests).pack()
        changed: list[Evaluation] = [
            Evaluation(round, version, {**honest.metrics, self.one(_NAMES): value}, honest.digests),
            Evaluation(round, version, {self.one(_NAMES): value}, honest.digests),
            Evaluation(round, version, dict.fromkeys(honest.metrics, value), honest.digests),
            Evaluation(round, version, {f"m{number}": value for number in range(64)}, {}),
            Evaluation(round, version + self.one((1, 10**6)), honest.metrics, honest.digests),
            Evaluation(round + self.one((1, 10**6)), version, honest.metrics, honest.digests),
            Evaluation(round, version, honest.metrics, dict.fromkeys(honest.digests, false)),
            Evaluation(round, version, honest.metrics, {name: false for name in _NAMES}),
            Evaluation(round, version, honest.metrics, {}),
            Evaluation(round, version, {}, honest.digests),
            Evaluation(round, version, {}, {}),
        ]
        bodies: list[list[Any]] = [
            [],
            [[]] * 64,
            ["loss"],
            [[1], bytes(8), []],
            [["loss"], b"", []],
            [[], b"", [["x"]]],
        ]
        strange = [
            evaluation._replace(body=self.one(bodies)),
            evaluation._replace(client=self.one((0, -3))),
            *(
                evaluation._replace(kind=kind)
                for kind in (Kind.REPORT, Kind.DECLINE, Kind.PULL, Kind.PIECE, Kind.COMMIT)
            ),
            messages.Join(EVALUATOR, (messages.Span(0, 0, 0),), bytes(8), bytes(8)).pack(),
        ]
        frames: list[list[Frame]] = [
            [],
            answers * 3,
            [*answers, encode(self.one(changed).pack())[0]],
            [encode(self.one(strange))[0], *answers],
            [b"", *answers],
            [answers[0][:-1] if answers else b"\xc1"],
        ]
        is_mild = self.number() < 0.7
        return [encode(self.one(changed).pack())[0]] if is_mild else self.one(frames)
