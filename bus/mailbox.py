"""The mailbox: the queue of messages that have been delivered to an actor."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from seedbus.bus.clock import Clock


class Mailbox:
    """An actor's incoming messages, in the order of their arrival.

    `read` calls a function for each message as it arrives, without a task switch. `get` wakes the waiting task.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._messages: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._handler: Callable[[Any], bool] | None = None
        self._is_handling = False

    def put(self, message: Any) -> None:
        """Add a message: an envelope, or an actor's notice to itself, such as a deadline that has passed."""
        self._messages.append(message)
        reader = self._reader
        if reader is None or self._is_handling or reader.done():
            return
        if self._handler is None:
            reader.set_result(None)
        else:
            self._dispatch(self._handler, reader)

    def __len__(self) -> int:
        return len(self._messages)

    async def get(self) -> Any:
        """Return the next message; wait if there is none."""
        while not self._messages:
            await self._wait()
        return self._messages.popleft()

    async def read(self, handler: Callable[[Any], bool]) -> None:
        """Call `handler` for each message, the queued ones first, until it returns True.

        Messages that arrive while `handler` runs are queued. An exception of `handler` is raised from here.
        """
        while self._messages:
            if handler(self._messages.popleft()):
                return
        self._handler = handler
        try:
            await self._wait()
        finally:
            self._handler = None

    def _dispatch(self, handler: Callable[[Any], bool], reader: asyncio.Future[None]) -> None:
        self._is_handling = True
        try:
            while self._messages:
                if handler(self._messages.popleft()):
                    break
            else:
                return
            if not reader.done():  # an interrupt may have cancelled it meanwhile
                reader.set_result(None)
        except Exception as error:
            if not reader.done():
                reader.set_exception(error)
        finally:
            self._is_handling = False

    async def _wait(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        self._clock.waiting[self.name] = None
        try:
            await self._reader
        finally:
            self._clock.waiting.pop(self.name, None)
            self._reader = None
