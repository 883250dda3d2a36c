"""`seedbus stress`: runs random scenarios in simulated time and checks invariants of every run.

This is simulation testing in the manner of FoundationDB and TigerBeetle. A seed determines a whole scenario (faults,
policies, links, algorithm), which runs on the virtual clock; `invariants` says what must be true of it. A seed that
fails is run again with smaller and smaller scenarios, until nothing can be removed.
"""

from __future__ import annotations

import math
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seedbus.agents.errors import TooFew
from seedbus.bus.clock import wall_seconds
from seedbus.scenarios.errors import Interrupted
from seedbus.studies.stress.fault_files import files
from seedbus.studies.stress.invariants import check_run
from seedbus.studies.stress.random_scenarios import SECTIONS, WITHOUT_SERVER, document

MAX_SHRINKS = 60  # runs to shrink a failing scenario
_REMOVED = ("network", "compute", *(name for name, _, _ in SECTIONS if name not in WITHOUT_SERVER))
"""Sections without which a scenario is smaller."""
RUN_S = 120.0  # real seconds after which a run is considered hanging
SHRINK_S = 600.0  # real seconds to shrink a failing scenario


@dataclass(slots=True)
class Verdict:
    """The result of examining one seed.

    Attributes:
        seed: the seed.
        rounds: rounds of its run.
        messages: messages of its run.
        faults: fault name → how many the scenario has.
        problem: one sentence, with the code location that raised it; None if all invariants hold.
        smallest: the smallest scenario found that fails.
        is_cut: the time was over before there was a result.
    """

    seed: int
    rounds: int = 0
    messages: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    problem: str | None = None
    smallest: dict[str, Any] | None = None
    is_cut: bool = False

    @classmethod
    def failed(cls, seed: int, why: str) -> Verdict:
        """Return that on a seed without a result; why: the last line says it."""
        return cls(seed, problem=why.strip().splitlines()[-1], smallest=document(seed))

    @property
    def files(self) -> dict[str, str]:
        """The files that the faults of the smallest scenario follow: name → text."""
        return {} if self.smallest is None else files(self.smallest)


class NoTime(Exception):
    """The time to examine seeds is over."""


class _Alarm(KeyboardInterrupt):
    """The time of a run is over. It is raised in the middle of the run, and propagates like Ctrl-C."""


def examine(seed: int, folder: Path | None = None, until_s: float = math.inf) -> Verdict:
    """Draw the seed's scenario, run and check it, and shrink it if it fails.

    Args:
        folder: where the runs' temporary folders are made; default: the system's folder.
        until_s: time of `wall_seconds` at which to stop, even in the middle of a run.
    """
    drawn = document(seed)
    verdict = Verdict(seed, faults=dict(Counter(fault["fault"] for fault in drawn["faults"])))
    with TemporaryDirectory(prefix="stress-", dir=folder, ignore_cleanup_errors=True) as name:
        runs = Path(name)
        try:
            verdict.problem = _problem(drawn, runs, until_s, verdict)
            if verdict.problem is not None:
                verdict.smallest, until_s = drawn, min(until_s, wall_seconds() + SHRINK_S)

                def still_fails(smaller: dict[str, Any]) -> bool:
                    is_same = _kind(_problem(smaller, runs, until_s)) == _kind(verdict.problem)
                    verdict.smallest = smaller if is_same else verdict.smallest
                    return is_same

                shrink(drawn, still_fails)
        except NoTime:
            verdict.is_cut = verdict.problem is None
    return verdict


def shrink(failing: dict[str, Any], still_fails: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the smallest document found that still fails. Parts are removed, and numbers are halved."""
    remaining = MAX_SHRINKS
    while True:
        for smaller in _smaller(failing):
            if not remaining:
                return failing
            remaining -= 1
            if still_fails(smaller):
                failing = smaller
                break
        else:
            return failing


def _problem(drawn: dict[str, Any], runs: Path, until_s: float, verdict: Verdict | None = None) -> str | None:
    """Run a scenario and return what is wrong with the run, or None. Raises `NoTime`.

    runs: a folder for the runs.
    """
    _import_all()
    left_s = until_s - wall_seconds()
    alarm = _AlarmClock(min(left_s, RUN_S))
    try:
        with alarm:
            results = check_run(drawn, runs)
    except TooFew:
        return None  # some scenarios cannot be finished with the clients that they leave; the run stops and says so
    except (Exception, Interrupted, _Alarm) as error:
        # Interrupted code may raise any exception. The alarm may ring a moment before the clock reaches the time.
        if wall_seconds() >= until_s or (alarm.has_rung and left_s < RUN_S):
            raise NoTime from None
        if alarm.has_rung or isinstance(error, KeyboardInterrupt):
            return f"Broken: the run has not ended after {RUN_S:.0f} s"
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(last.filename).name}, {last.name})"
    if verdict is not None:
        verdict.rounds = results.summary["rounds"]
        verdict.messages = sum(results.summary["traffic"]["fates"].values())
    return None


@cache
def _import_all() -> None:
    """Import the packages that runs import lazily.

    An alarm during an import leaves a half-initialised package, and of a run's memory theirs is no part.
    """
    for package in ("numba", "pyarrow.parquet", "torch", "cryptography", "dp_accounting"):
        with suppress(ImportError):  # of a package that is not installed
            import_module(package)


class _AlarmClock:
    """A context that raises `_Alarm` in code that takes longer than `seconds`. It works on the main thread only.

    Attributes:
        has_rung: whether the time was exceeded. The interrupted code may turn `_Alarm` into another exception, or
            finish normally.
    """

    def __init__(self, seconds: float) -> None:
        if seconds <= 0:
            raise NoTime
        self._seconds = seconds
        self.has_rung = False

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _ring(self, *_: object) -> None:
        self.has_rung = True
        raise _Alarm


def _kind(problem: str | None) -> str | None:
    return None if problem is None else problem.partition(":")[0]


def _smaller(drawn: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield smaller variants of a scenario, each with one part removed or reduced."""
    for number in range(len(drawn["faults"])):
        yield drawn | {"faults": drawn["faults"][:number] + drawn["faults"][number + 1 :]}
    for name in _REMOVED:
        if name in drawn:
            yield {key: value for key, value in drawn.items() if key != name}
    policy = drawn["participation"]
    for name in ("buffer", "late", "deadline", "over_selection", "selection", "every_s"):
        if name in policy and not (name == "late" and "buffer" in policy):
            yield drawn | {"participation": {key: value for key, value in policy.items() if key != name}}
    for section, names in (
        ("stop", ("simulated_s", "bytes", "target", "epsilon")),
        ("algorithm", ("compression", "channel")),
    ):
        for name in names:
            if name in drawn[section]:
                yield drawn | {section: {key: value for key, value in drawn[section].items() if key != name}}
    rounds = drawn["stop"]["rounds"]
    for fewer in (rounds // 2, rounds - 1):
        if 1 <= fewer < rounds:
            yield drawn | {"stop": drawn["stop"] | {"rounds": fewer}}
    plain = {"perturbations": 2, "local_steps": 1, "estimator": "forward"}
    if drawn["algorithm"] | plain != drawn["algorithm"]:
        yield drawn | {"algorithm": drawn["algorithm"] | plain}
    if drawn["task"] != {"name": "quadratic", "dimension": 2}:
        yield drawn | {"task": {"name": "quadratic", "dimension": 2}}
