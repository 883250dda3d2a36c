"""What an actor reads: letters, in the order of their arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from seedbus.bus.clock import Clock


class Mailbox:
    """An actor's incoming messages, in the order of their arrival."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._letters: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, letter: Any) -> None:
        """Add a letter: an envelope, or a note that an actor writes to itself (a deadline that passed)."""
        self._letters.append(letter)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self) -> Any:
        """The next letter; waits for one."""
        while not self._letters:
            self._reader = asyncio.get_running_loop().create_future()
            self._clock.waiting[self.name] = None
            try:
                await self._reader
            finally:
                self._clock.waiting.pop(self.name, None)
                self._reader = None
        return self._letters.popleft()
