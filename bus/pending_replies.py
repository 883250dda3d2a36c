"""The answers that followers owe: one to each message that was delivered to them.

An answer counts as sent once the scenario's compute time has passed. If it has not come by then, simulated time stands
still until it does. In real time nothing waits for it: it is sent when it comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from seedbus.bus.clock import Clock
from seedbus.bus.codec import first_bytes
from seedbus.bus.envelope import REFUSE, REPORT, Kind
from seedbus.bus.in_flight import Answer, AnswerState, Key
from seedbus.bus.transport import Transport
from seedbus.pieces import Frame, stored

JOIN_REQUESTS = frozenset({Kind.WAKE, REFUSE})
"""Kinds after which a client may have lost its state; it answers them with a JOIN."""
_SHORT = 1024  # bytes of a short answer
_NOTE_PREFIX = first_bytes(Kind.WAKE)


OnAnswer = Callable[[Key, int, list[Frame], list[Frame]], bool]
"""Called as soon as an answer has come, with the key of the message that it answers, that message's version, the frames
to send, and the notes to the simulation, which are not sent. Returns whether the notes count as carried bytes."""


class PendingReplies:
    """The answers that have not been sent.

    Args:
        clock: stands still while a due answer has not come.
        transport: is flushed when an answer is waited for.
        send: called when an answer counts as sent.
        record_notes: called with a follower and its notes to the simulation, whose bytes were carried but not sent.
        on_answer: see `OnAnswer`.
    """

    def __init__(
        self,
        clock: Clock,
        transport: Transport,
        *,
        send: Callable[[Answer], None],
        record_notes: Callable[[int, list[Frame]], None],
        on_answer: OnAnswer,
    ) -> None:
        self._clock = clock
        self._transport = transport
        self._send = send
        self._record_notes = record_notes
        self._on_answer = on_answer
        self._unsent: dict[Answer, None] = {}
        self._short: deque[tuple[Answer, Frame]] = deque()  # that have come; see `take_short`
        self._missing = 0
        self._all_here: asyncio.Future[None] | None = None
        self._is_closed = False

    def expect(self, to: Key, base: int, due_ns: int) -> Callable[[list[Frame]], None]:
        """Expect an answer to a delivered message.

        Args:
            to: identity of the message.
            base: the model version of the message.
            due_ns: when the answer counts as sent.

        Returns:
            The callback to which the transport gives the answer's frames.
        """
        answer = Answer(due_ns, to, base)
        self._missing += 1
        self._schedule(answer)
        return partial(self._receive, answer)

    async def all_received(self) -> None:
        """Wait until all answers have come from the followers; in real time return at once."""
        while self._clock.is_virtual and self._missing:
            self._transport.flush()
            self._all_here = asyncio.get_running_loop().create_future()
            self._clock.hold()
            try:
                await self._all_here
            finally:
                self._clock.release()
                self._all_here = None

    def take_short(self, most: int) -> list[tuple[Answer, Frame]]:
        """Return the oldest short answers of one frame that have come, each once, with their frames."""
        short = self._short
        return [short.popleft() for _ in range(min(most, len(short)))]

    def __len__(self) -> int:
        return len(self._unsent)

    @property
    def awaited(self) -> list[int]:
        """Addresses of the followers for which simulated time stands still, in ascending order."""
        late = [answer for answer in self._unsent if answer.is_late or self._all_here is not None]
        return sorted({answer.key[1] for answer in late if answer.frames is None})

    @property
    def keys(self) -> Iterator[Key]:
        """The messages whose answers have not been sent."""
        return (answer.key for answer in self._unsent)

    def checkpoint(self) -> list[AnswerState]:
        """Return the answers that have come and have not been sent."""
        answers = sorted(self._unsent, key=lambda answer: answer.key)
        return [
            (each.due_ns, *each.key, each.base, list(map(stored, each.frames)))
            for each in answers
            if each.frames is not None
        ]

    def restore(self, checkpoint: list[AnswerState]) -> None:
        """Schedule the answers that `checkpoint` returned."""
        for answer in map(Answer.unpack, checkpoint):
            self._schedule(answer)

    def close(self) -> list[Answer]:
        """Send no more answers; return those that have not been sent."""
        self._is_closed = True
        unsent, self._unsent = list(self._unsent), {}
        return unsent

    def _schedule(self, answer: Answer) -> None:
        self._unsent[answer] = None
        kind, client, round, occurrence, copy = answer.key
        # Sorted as a REPORT, after an arriving message of the same key, which has no sixth part.
        key = (REPORT, client, round, occurrence, copy, kind)
        self._clock.post(answer.due_ns, key, self._on_due, answer)

    def _receive(self, answer: Answer, frames: list[Frame]) -> None:
        if self._is_closed or answer.frames is not None:
            return
        notes: list[Frame] = []
        for frame in frames:  # no comprehension, which in Python 3.11 is a call
            if frame[:2] == _NOTE_PREFIX:
                notes.append(frame)
        answer.frames = [frame for frame in frames if frame[:2] != _NOTE_PREFIX] if notes else frames
        self._missing -= 1
        if len(answer.frames) == 1 and len(answer.frames[0]) <= _SHORT:
            self._short.append((answer, answer.frames[0]))
        if self._on_answer(answer.key, answer.base, answer.frames, notes):
            self._record_notes(answer.key[1], notes)
        if answer.is_late:
            self._clock.release()
            del self._unsent[answer]
            self._send(answer)
        if not self._missing and self._all_here is not None and not self._all_here.done():
            self._all_here.set_result(None)

    def _on_due(self, answer: Answer) -> None:
        if self._is_closed:
            return
        if answer.frames is None:
            answer.is_late = True
            self._clock.hold()
            if self._clock.is_virtual:  # real time does not stand still, and the bus has flushed
                self._transport.flush()
        else:
            del self._unsent[answer]
            self._send(answer)
