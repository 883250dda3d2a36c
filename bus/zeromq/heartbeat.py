"""A heartbeat in real time on any loop: a loop of simulated time has no timer that tells it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from seedbus.bus.clock import wall_seconds

WATCH_S = 0.01
SOON_S = 0.005
REST_S = 0.002
MOST_REST_S = 0.05
ALARMS = 3  # a second and a third look, soon after the first, tell what goes on from what has happened
LOOKS = 16  # in every heartbeat
GROWTH = 4 * 2**20  # bytes of memory within a look or two that are worth an alarm


class Heartbeat:
    """Calls `tick` on the loop every `every_s` seconds, `look` `LOOKS` times as often, `alarm` when the memory of the
    process grows fast, and `rested` some time after it was asked to."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        every_s: float,
        tick: Callable[[], None],
        look: Callable[[], None],
        alarm: Callable[[], None],
        rested: Callable[[], None],
    ) -> None:
        self._loop, self._calls = loop, {b"!": alarm, b",": rested, b"?": look, b".": tick}
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._wake, self._is_over = threading.Event(), False
        self._rest_s = REST_S
        self._thread = threading.Thread(target=self._beat, args=(every_s,), name="heartbeat", daemon=True)
        loop.add_reader(self._reading, self._beaten)
        self._thread.start()

    def rest(self, seconds: float) -> None:
        """Ask for a call of `rested` after so long."""
        self._rest_s = seconds
        self._wake.set()

    def close(self) -> None:
        self._is_over = True
        self._wake.set()
        self._thread.join()
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        os.close(self._writing)

    def _beat(self, every_s: float) -> None:
        due_s, before, alarms = wall_seconds() + every_s, resident_bytes(), 0
        look_s = wall_seconds()
        while not self._is_over:
            sign = b""
            if self._wake.wait(min(SOON_S if alarms else WATCH_S, max(0.0, due_s - wall_seconds()))):
                self._wake.clear()
                threading.Event().wait(min(self._rest_s, MOST_REST_S))
                sign = b","
            now = resident_bytes()
            if now > before + GROWTH:
                alarms = ALARMS
            if now > before + GROWTH or now < before:
                before = now
            if alarms:
                sign, alarms = sign + b"!", alarms - 1
            if wall_seconds() >= look_s:
                sign, look_s = sign + b"?", wall_seconds() + every_s / LOOKS
            if wall_seconds() >= due_s:
                sign, due_s = sign + b".", wall_seconds() + every_s
            with suppress(BlockingIOError):  # it is full of what nobody has read: there is notice enough
                os.write(self._writing, sign)

    def _beaten(self) -> None:
        signs = b""
        with suppress(BlockingIOError):
            signs = os.read(self._reading, 4096)  # beats that were missed count as one
        for sign, call in self._calls.items():
            if sign in signs:
                call()


def resident_bytes() -> int:
    """Bytes of memory that this process has, as far as the system tells."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0


_PAGE = os.sysconf("SC_PAGE_SIZE")
