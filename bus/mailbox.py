"""What an actor reads: letters, in the order of their arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from seedbus.bus.clock import Clock


class Mailbox:
    """An actor's incoming messages, in the order of their arrival.

    An actor that reads with `read` is called for each letter as it arrives; with `get` it wakes for each.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._letters: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._act: Callable[[Any], bool] | None = None
        self._is_acting = False

    def put(self, letter: Any) -> None:
        """Add a letter: an envelope, or a note that an actor writes to itself (a deadline that passed)."""
        self._letters.append(letter)
        reader = self._reader
        if reader is None or self._is_acting or reader.done():
            return
        if self._act is None:
            reader.set_result(None)
        else:
            self._hand_over(self._act, reader)

    async def get(self) -> Any:
        """The next letter; waits for one."""
        while not self._letters:
            await self._wait()
        return self._letters.popleft()

    async def read(self, act: Callable[[Any], bool]) -> None:
        """Let `act` have each letter, those that wait first, until it says that this was the last; raises what it
        raises. Whatever arrives while it acts waits its turn."""
        while self._letters:
            if act(self._letters.popleft()):
                return
        self._act = act
        try:
            await self._wait()
        finally:
            self._act = None

    def _hand_over(self, act: Callable[[Any], bool], reader: asyncio.Future[None]) -> None:
        self._is_acting = True
        try:
            while self._letters:
                if act(self._letters.popleft()):
                    break
            else:
                return
            if not reader.done():  # an interrupt may have cancelled it meanwhile
                reader.set_result(None)
        except Exception as error:
            if not reader.done():
                reader.set_exception(error)
        finally:
            self._is_acting = False

    async def _wait(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        self._clock.waiting[self.name] = None
        try:
            await self._reader
        finally:
            self._clock.waiting.pop(self.name, None)
            self._reader = None
