"""Workers killed at random moments, and the comparison with an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

from clusters import RunWatcher
from processes import kill, workers_of
from worlds import outcome

from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement


def alike(results: Results, whole: Results) -> bool:
    """Whether two runs are equal in all but refusals, which depend on when processes connect."""
    (mine, my_lines), (theirs, their_lines) = outcome(results), outcome(whole)
    apart = {"refusals": None, "refusal_details": None}
    return {**mine, **apart} == {**theirs, **apart} and my_lines == their_lines


def run_and_kill(what: Scenario, folder: Path, kills: int, *, seed: int = 5) -> tuple[Results, int]:
    """Run a scenario in two workers that are killed at random moments. Return the results, and how many were killed."""
    watcher, done, found = RunWatcher(), threading.Event(), list[int]()
    killer = threading.Thread(target=lambda: found.append(_killing(watcher, kills, seed, done)))
    killer.start()
    try:
        results = run(what, folder, observer=watcher, placement=Placement("tcp", 2))
    finally:
        done.set()
        killer.join()
    print(f"{found[0]} kills in {watcher.rounds} rounds")
    return results, found[0]


def _killing(watcher: RunWatcher, kills: int, seed: int, done: threading.Event) -> int:
    draw, count = random.Random(seed), 0
    while count < kills and not done.is_set():
        before = watcher.rounds
        done.wait(draw.uniform(0.0, 0.3))
        workers = workers_of(os.getpid())
        if workers and watcher.rounds > before:
            kill(draw.choice(workers), signal.SIGKILL)
            count += 1
    return count
