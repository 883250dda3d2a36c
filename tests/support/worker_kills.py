"""Workers killed at random moments, and the comparison with an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import threading

from clusters import RunWatcher
from processes import kill, workers_of
from worlds import outcome

from seedbus.scenarios.reporting.results import Results


def alike(results: Results, whole: Results) -> bool:
    """Whether two runs are equal in all but refusals, which depend on when processes connect."""
    (mine, my_lines), (theirs, their_lines) = outcome(results), outcome(whole)
    apart = {"refusals": None, "refusal_details": None}
    return {**mine, **apart} == {**theirs, **apart} and my_lines == their_lines


def killing(watcher: RunWatcher, kills: int, seed: int, done: threading.Event) -> int:
    """Kill workers of this process at random moments of the rounds."""
    draw, count = random.Random(seed), 0
    while count < kills and not done.is_set():
        before = watcher.rounds
        done.wait(draw.uniform(0.0, 0.3))
        workers = workers_of(os.getpid())
        if workers and watcher.rounds > before:
            kill(draw.choice(workers), signal.SIGKILL)
            count += 1
    return count
