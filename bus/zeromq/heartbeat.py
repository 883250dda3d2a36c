"""A heartbeat in real time for any asyncio loop, also for one of simulated time, whose timers do not follow the wall's.

A thread measures the time, and wakes the loop through a pipe. It also watches the memory of the process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from seedbus.bus.clock import wall_seconds

WATCH_S = 0.01  # between two measurements of memory
SOON_S = 0.005  # the same, after an alarm
REST_S = 0.002  # the usual pause of a reader that is overloaded
MOST_REST_S = 0.05  # the longest one
ALARMS = 3  # alarms for one growth of memory: the later ones, soon after, show whether it goes on
LOOKS = 16  # calls of `look` in every heartbeat
GROWTH = 4 * 2**20  # bytes of memory between one or two measurements that cause an alarm


class Heartbeat:
    """Calls functions on a loop, at times that a thread measures.

    Args:
        loop: where they are called.
        every_s: the interval of heartbeats.
        tick: called once a heartbeat.
        look: called `LOOKS` times a heartbeat.
        alarm: called when the memory of the process grows fast.
        rested: called after the time that `rest` was called with.
        at_once: called on the heartbeat's own thread, before `alarm`, which waits until the loop comes to it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        every_s: float,
        tick: Callable[[], None],
        look: Callable[[], None],
        alarm: Callable[[], None],
        rested: Callable[[], None],
        at_once: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._calls = {b"!": alarm, b",": rested, b"?": look, b".": tick}  # by the byte that is written for each
        self._at_once = at_once
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._wake = threading.Event()
        self._is_over = False
        self._rest_s = REST_S
        self._thread = threading.Thread(target=self._beat, args=(every_s,), name="heartbeat", daemon=True)
        loop.add_reader(self._reading, self._call)
        self._thread.start()

    def rest(self, seconds: float) -> None:
        """Have `rested` called after so many seconds, `MOST_REST_S` at most."""
        self._rest_s = seconds
        self._wake.set()

    def close(self) -> None:
        """Stop the thread; nothing is called any more."""
        self._is_over = True
        self._wake.set()
        self._thread.join()
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        os.close(self._writing)

    def _beat(self, every_s: float) -> None:
        due_s = wall_seconds() + every_s
        look_s = wall_seconds()
        last_bytes = resident_bytes()
        alarms = 0
        while not self._is_over:
            signs = b""
            if self._wake.wait(min(SOON_S if alarms else WATCH_S, max(0.0, due_s - wall_seconds()))):
                self._wake.clear()
                threading.Event().wait(min(self._rest_s, MOST_REST_S))
                signs = b","
            now_bytes = resident_bytes()
            if now_bytes > last_bytes + GROWTH:
                alarms = ALARMS
            if now_bytes > last_bytes + GROWTH or now_bytes < last_bytes:
                last_bytes = now_bytes
            if alarms:
                signs += b"!"
                alarms -= 1
                self._at_once()
            if wall_seconds() >= look_s:
                signs += b"?"
                look_s = wall_seconds() + every_s / LOOKS
            if wall_seconds() >= due_s:
                signs += b"."
                due_s = wall_seconds() + every_s
            with suppress(BlockingIOError):  # a full pipe holds every sign already
                os.write(self._writing, signs)

    def _call(self) -> None:
        signs = b""
        with suppress(BlockingIOError):
            signs = os.read(self._reading, 4096)  # heartbeats that were missed count as one
        for sign, call in self._calls.items():
            if sign in signs:
                call()


def resident_bytes() -> int:
    """Return the bytes of memory that this process occupies; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0


_PAGE = os.sysconf("SC_PAGE_SIZE")
