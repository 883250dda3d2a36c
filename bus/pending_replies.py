"""The answers that followers owe: one to each message that was delivered to them.

An answer counts as sent when the scenario's compute time has passed. If it is not there by then, simulated time stands
still for it; in real time nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from seedbus.bus.clock import Clock
from seedbus.bus.codec import first_bytes
from seedbus.bus.envelope import REFUSE, REPORT, Kind
from seedbus.bus.in_flight import Answer, Key
from seedbus.bus.transport import Transport

SETS_BACK = frozenset({Kind.WAKE, REFUSE})
_NOTES = first_bytes(Kind.WAKE)


Learned = Callable[[Key, int, list[bytes], list[bytes]], bool]
"""Called with each answer as soon as it is there: the message that it answers, that message's version, the frames to be
sent, and the notes to the simulation, which are not sent. Returns whether the notes are counted as carried bytes."""


class PendingReplies:
    """The answers to come.

    speak: called at the moment at which a follower says its answer.
    noted: called with a follower's notes to the simulation, whose bytes were carried and not sent.
    learned: see `Learned`.
    """

    def __init__(
        self,
        clock: Clock,
        transport: Transport,
        *,
        speak: Callable[[Answer], None],
        noted: Callable[[int, list[bytes]], None],
        learned: Learned,
    ) -> None:
        self._clock = clock
        self._transport = transport
        self._speak = speak
        self._noted = noted
        self._learned = learned
        self._awaited: dict[Answer, None] = {}
        self._missing = 0
        self._quiet: asyncio.Future[None] | None = None
        self._is_closed = False

    def promise(self, to: Key, base: int, due_ns: int) -> Callable[[list[bytes]], None]:
        """Expect an answer to a message, to be said at `due_ns`; returns what takes it."""
        answer = Answer(due_ns, to, base)
        self._missing += 1
        self._expect(answer)
        return partial(self._answered, answer)

    async def all_given(self) -> None:
        """Wait until every follower has answered what it was sent; in real time nobody waits for anybody."""
        while self._clock.is_virtual and self._missing:
            self._transport.flush()
            self._quiet = asyncio.get_running_loop().create_future()
            self._clock.hold()
            try:
                await self._quiet
            finally:
                self._clock.release()
                self._quiet = None

    @property
    def awaited(self) -> list[int]:
        """The addresses that time stands still for."""
        late = [answer for answer in self._awaited if answer.is_late or self._quiet is not None]
        return sorted({answer.key[1] for answer in late if answer.frames is None})

    def checkpoint(self) -> list[Any]:
        """Every answer that is there and not said yet."""
        answers = sorted(self._awaited, key=lambda answer: answer.key)
        return [answer.pack() for answer in answers if answer.frames is not None]

    def restore(self, checkpoint: list[Any]) -> None:
        for answer in map(Answer.unpack, checkpoint):
            self._expect(answer)

    def close(self) -> list[Answer]:
        """Nothing is said from now on; returns what will not have been."""
        self._is_closed = True
        unsaid = list(self._awaited)
        self._awaited.clear()
        return unsaid

    def _expect(self, answer: Answer) -> None:
        self._awaited[answer] = None
        kind, client, round, occurrence, copy = answer.key
        key = (REPORT, client, round, occurrence, copy, kind)  # after a message of that name, which has no sixth part
        self._clock.post(answer.due_ns, key, self._due, answer)

    def _answered(self, answer: Answer, frames: list[bytes]) -> None:
        if self._is_closed or answer.frames is not None:
            return
        notes = [frame for frame in frames if frame[:2] == _NOTES]
        answer.frames = [frame for frame in frames if frame[:2] != _NOTES] if notes else frames
        self._missing -= 1
        if self._learned(answer.key, answer.base, answer.frames, notes):
            self._noted(answer.key[1], notes)
        if answer.is_late:
            answer.is_late = False
            self._clock.release()
            del self._awaited[answer]
            self._speak(answer)
        if not self._missing and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    def _due(self, answer: Answer) -> None:
        if self._is_closed:
            return
        if answer.frames is None:
            answer.is_late = True
            self._clock.hold()
            self._transport.flush()
        else:
            del self._awaited[answer]
            self._speak(answer)
