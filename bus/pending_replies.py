"""What followers owe: an answer to each message that they were delivered, and where they stand once it is there.

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
from seedbus.bus.envelope import PLAN, REFUSE, REPORT, SNAPSHOT, Kind
from seedbus.bus.in_flight import Answer, Key
from seedbus.bus.transport import Transport

SETS_BACK = frozenset({Kind.WAKE, REFUSE})
_NOTES, _JOINS = first_bytes(Kind.WAKE), first_bytes(Kind.JOIN)
_BRINGS_ON = frozenset({PLAN, Kind.COMMIT, SNAPSHOT})


class PendingReplies:
    """The answers to come. speak: what happens at the moment at which a follower says it; noted: what is told of the
    bytes of a client's words to the simulation, which are not sent."""

    def __init__(
        self,
        clock: Clock,
        transport: Transport,
        *,
        speak: Callable[[Answer], None],
        noted: Callable[[int, list[bytes]], None],
    ) -> None:
        self._clock, self._transport, self._speak, self._noted = clock, transport, speak, noted
        self.stands: dict[int, int] = {}
        """follower → version to which what it was sent, and has answered, brought it."""
        self.partial_downloads: dict[int, bytes] = {}
        """client → what it says that it has of a snapshot, a frame; opaque here."""
        self.moved: set[int] = set()
        """Those of whom either has changed since somebody last cleared this."""
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
        joins, notes = 0, list[bytes]()
        for frame in frames:
            first = frame[:2]
            if first == _NOTES:
                notes.append(frame)
            elif first == _JOINS:
                joins += 1
        has_joined = 0 < joins == len(frames) - len(notes)  # a JOIN that is not alone is what a liar says
        answer.frames = [frame for frame in frames if frame[:2] != _NOTES] if notes else frames
        self._missing -= 1
        self._learn(answer, has_joined, notes)
        if answer.is_late:
            answer.is_late = False
            self._clock.release()
            del self._awaited[answer]
            self._speak(answer)
        if not self._missing and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    def _learn(self, answer: Answer, has_joined: bool, notes: list[bytes]) -> None:
        """Where a follower stands now that it has answered; notes: its word to the simulation."""
        kind, client, _, _, _ = answer.key
        base, before = answer.base, self.stands.get(client, 0)
        sets_back = kind is not PLAN and kind in SETS_BACK
        if sets_back:  # it may have lost its state
            self.stands[client] = min(base, before)
        elif base >= before and has_joined == (kind is SNAPSHOT) and (kind is PLAN or kind in _BRINGS_ON):
            # a plan is answered with a JOIN by who cannot follow it, a snapshot by who has all of it;
            # and what comes late brings nobody back
            self.stands[client] = base
        if (notes or client in self.partial_downloads) and (kind is SNAPSHOT or sets_back):
            self.partial_downloads[client] = notes[-1] if notes else b""
            self._noted(client, notes)
        self.moved.add(client)

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
