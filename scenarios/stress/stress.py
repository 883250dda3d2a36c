"""`seedbus stress`: random scenarios in simulated time, and what must be true of every one of them.

Simulation testing in the manner of FoundationDB and TigerBeetle: a seed draws a whole scenario (faults, policies,
links, algorithm), it runs on the virtual clock, and these are checked:

- after every round: no commit is skipped or doubled, rounds follow each other;
- always: no replica diverges (every report carries its digests), no follower is told what it cannot use;
- the run ends, whatever happens to its clients;
- the ledger balances: every message that was sent was delivered, refused, dropped or is still under way;
- memory is bounded;
- the journal alone rebuilds the final model, bit for bit;
- a run that is stopped and resumed ends like one that is not (every third seed);
- where clients break the protocol: nobody honest is refused for it, every refusal is counted by reason and client, the
  model is the one of the run in which they are silent instead, and over sockets the run is the same (every seventh);
- with an evaluator that lies the run ends, or stops with a sentence (every fifth).

A failure is a seed: it is run again with ever less in its scenario, until nothing can be left out.
"""

from __future__ import annotations

import math
import resource
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from seedbus.agents.errors import TooFew
from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import Mark, Reason, Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.bus.clock import wall_seconds
from seedbus.bus.keyed_random import with_random
from seedbus.scenarios.cli_errors import exit_code
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.faults import hostile
from seedbus.scenarios.faults.byzantine import Byzantine
from seedbus.scenarios.faults.hostile import Hostile
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.stress.lying_evaluator import lying
from seedbus.scenarios.stress.random_scenarios import HOSTILE, document
from seedbus.scenarios.transports.placement import Placement

OUR_FAULT = Reason.marked(Mark.DISHONEST) | {"bad-commit", "bad-plan", "bad-fetch", "unexpected"}
"""What no honest client is refused for, and what no follower is to note, whatever befalls its messages."""
GROWTH = 2**28  # bytes that a run of so small a task may need, imports included
STOPPED = 3  # every so many seeds one is stopped and resumed as well
OVER_SOCKETS = 7  # every so many seeds with liars one runs over sockets as well
DECEIVED = 5  # every so many seeds one runs with an evaluator that lies as well
SHRINKS = 60  # runs that making a failure smaller may take
RUN_S = 120.0  # real seconds after which a run is taken to hang
SHRINK_S = 600.0  # real seconds that making a failure smaller may take


@dataclass(slots=True)
class Verdict:
    """What came of one seed. problem: one sentence, and where it came from; None if all is well. is_cut: there was no
    time to tell."""

    seed: int
    rounds: int = 0
    messages: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    problem: str | None = None
    smallest: dict[str, Any] | None = None
    is_cut: bool = False


class Broken(AssertionError):
    """Something that must always be true is not."""


class NoTime(Exception):
    """The time for examining seeds is over."""


class _Alarm(KeyboardInterrupt):
    """It is time to end a run: raised wherever that is, and passed on by whatever passes on Ctrl-C."""


class _Inspector(NullObserver):
    """Watches a run from round to round.

    stop_after: raise Ctrl-C once so many rounds are closed; round, version: where it begins.
    refusals: reason → who → how often, as it was told.
    """

    def __init__(self, scenario: Scenario, *, stop_after: int | None = None, round: int = 0, version: int = 0) -> None:
        self._stop_after, self.round, self.version = stop_after, round, version
        self._again = round > 0
        self._hostile = _hostile(scenario)
        self._our_fault = OUR_FAULT
        if any(isinstance(fault, Byzantine) for fault in scenario.faults):
            self._our_fault -= {"bad-payload"}
        if self._hostile:
            self._our_fault -= {"bad-snapshot"}  # a snapshot that a liar has made up
        self.refusals: dict[str, dict[str, int]] = {}

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if self._again and closed.round == self.round - 1:
            self._again = False  # a resumed run begins with its last round
            return
        if closed.round != self.round:
            raise Broken(f"round {closed.round} follows round {self.round - 1}")
        if closed.version != self.version + (closed.commit is not None):
            raise Broken(f"version {closed.version} follows version {self.version} in round {closed.round}")
        if closed.commit is not None and closed.commit.version != closed.version:
            raise Broken(f"commit {closed.commit.version} is the {closed.version}th")
        self.round, self.version = closed.round + 1, closed.version
        if self.round == self._stop_after:
            raise KeyboardInterrupt

    def refused(self, refusal: Refusal) -> None:
        by_whom = self.refusals.setdefault(refusal.reason, {})
        by_whom[str(refusal.client)] = by_whom.get(str(refusal.client), 0) + 1
        if refusal.reason in self._our_fault and refusal.client not in self._hostile:
            raise Broken(f"round {refusal.round}: refused ({refusal.reason}): {refusal.detail}")

    def noted(self, event: str, **facts: Any) -> None:
        if event in self._our_fault:
            raise Broken(f"{event}: {facts}")


def examine(seed: int, folder: Path | None = None, until_s: float = math.inf) -> Verdict:
    """Draw the seed's scenario, run it and check it; make it smaller if it fails. until_s: the `wall_seconds` at which
    this ends, wherever it is."""
    drawn = document(seed)
    verdict = Verdict(seed, faults=Counter(fault["fault"] for fault in drawn["faults"]))
    with TemporaryDirectory(prefix="stress-", dir=folder, ignore_cleanup_errors=True) as name:
        where = Path(name)
        try:
            verdict.problem = _problem(drawn, where, until_s, verdict)
            if verdict.problem is not None:
                verdict.smallest, until_s = drawn, min(until_s, wall_seconds() + SHRINK_S)

                def still_fails(smaller: dict[str, Any]) -> bool:
                    is_same = _kind(_problem(smaller, where, until_s)) == _kind(verdict.problem)
                    verdict.smallest = smaller if is_same else verdict.smallest
                    return is_same

                shrink(drawn, still_fails)
        except NoTime:
            verdict.is_cut = verdict.problem is None
    return verdict


def shrink(failing: dict[str, Any], still_fails: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The smallest document found that still fails, by leaving out and halving."""
    left = SHRINKS
    while True:
        for smaller in _smaller(failing):
            if not left:
                return failing
            left -= 1
            if still_fails(smaller):
                failing = smaller
                break
        else:
            return failing


def _problem(drawn: dict[str, Any], where: Path, until_s: float, verdict: Verdict | None = None) -> str | None:
    """What is wrong with a scenario's run, or None. Raises `NoTime`."""
    _import_all()
    left_s = until_s - wall_seconds()
    alarm = _AlarmClock(min(left_s, RUN_S))
    try:
        with alarm:
            results = _checked(drawn, where)
    except TooFew:
        return None  # a scenario can be drawn that nobody can finish; it says so and ends
    except (Exception, Interrupted, _Alarm) as error:
        # What was interrupted may raise anything. The alarm may ring a moment before the clock says so.
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
    """Load what runs load as they need it: an import that an alarm interrupts leaves half a package behind."""
    import numba  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import torch  # noqa: F401


class _AlarmClock:
    """Raises `_Alarm` in what takes longer than `seconds`, on the main thread alone: a signal comes there.

    has_rung: whether it did; what is interrupted may turn `_Alarm` into another exception, or finish all the same.
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


def _checked(drawn: dict[str, Any], where: Path) -> Results:
    scenario = validate(drawn, drawn["name"])
    for path in where.iterdir():
        shutil.rmtree(path)
    before, inspector = _highest(), _Inspector(scenario)
    results = run(scenario, where / "run", observer=inspector)
    if _highest() - before > GROWTH:
        raise Broken(f"the run took {(_highest() - before) / 2**20:.0f} MiB more than this process ever had")
    if inspector.refusals != results.summary["refusals"]:
        raise Broken(f"refusals are counted as {results.summary['refusals']}, and were told as {inspector.refusals}")
    again = replay(where / "run")
    if again.digest != results.digest:
        raise Broken(f"the journal rebuilds {again.digest}, and the run ended at {results.digest}")
    if drawn["seed"] % STOPPED == 0 and scenario.stop.rounds > 1:
        _check_resuming(scenario, where, results)
    if _hostile(scenario):
        _check_silenced(drawn, where)
        if drawn["seed"] % OVER_SOCKETS == 0:
            wired = run(scenario, where / "wired", observer=_Inspector(scenario), placement=Placement("inproc"))
            _check_alike("over sockets", wired, results)
    if drawn["seed"] % DECEIVED == 0:
        _check_deceived(scenario, where)
    return results


def _highest() -> int:
    """Bytes of memory that this process ever held."""
    kibibytes: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes * (1 if sys.platform == "darwin" else 1024)


def _check_resuming(scenario: Scenario, where: Path, whole: Results) -> None:
    first = _Inspector(scenario, stop_after=1 + scenario.seed % (scenario.stop.rounds - 1))
    try:
        run(scenario, where / "cut", observer=first)
    except Interrupted:
        pass
    second = _Inspector(scenario, round=first.round, version=first.version)
    resumed = run(scenario, where / "cut", resume=True, observer=second)
    _check_alike(f"stopped after round {first.round} and resumed", resumed, whole)


def _check_alike(how: str, mine: Results, theirs: Results) -> None:
    for name in ("digest", "ledger_hash", "rounds", "version", "metrics", "refusals", "faults", "simulated_s"):
        if mine.summary[name] != theirs.summary[name]:
            raise Broken(f"{how}: {name} is {mine.summary[name]} and not {theirs.summary[name]}")


def _hostile(scenario: Scenario) -> frozenset[int]:
    """The clients that may break the protocol."""
    clients = scenario.participation.clients
    said = with_random(scenario.faults, scenario.seed, clients)
    chosen = (fault.chosen(clients, random) for fault, random in said if isinstance(fault, Hostile))
    return frozenset(client for some in chosen for client in some)


def _check_silenced(drawn: dict[str, Any], where: Path) -> None:
    """Reports that are refused do nothing: liars might as well be silent.

    On ideal links, without late reports and other faults, so that who is in time does not depend on who waits for whom;
    and in all rounds, for bytes that name no round may spoil what their sender says honestly in the next.
    """
    (lie,) = (fault for fault in drawn["faults"] if fault["fault"] == HOSTILE)
    kinds = [kind for kind in lie["kinds"] or get_args(hostile.Forgery) if kind != "twice"]  # which counts, once
    liars = sorted(_hostile(validate(drawn, drawn["name"])))
    calm = {name: value for name, value in drawn.items() if name not in ("network", "compute", "lag")}
    policy = {name: drawn["participation"][name] for name in ("clients", "cohort", "quorum", "deadline_s")}
    found = list[Results]()
    lines: dict[str, dict[str, Any]] = {
        "lying": {"fault": HOSTILE, "kinds": kinds or ["silence"]},
        "silent": {"fault": "dropout", "when": "after-training"},
    }
    for name, line in lines.items():
        scenario = validate(calm | {"participation": policy, "faults": [line | {"clients": liars}]}, name)
        found.append(run(scenario, where / name, observer=_Inspector(scenario)))
    lying, silent = found
    for name in ("digest", "rounds", "version"):
        if lying.summary[name] != silent.summary[name]:
            what = f"{name} is {lying.summary[name]}, and {silent.summary[name]} where they are silent"
            raise Broken(f"with liars {liars}: {what}")


def _check_deceived(scenario: Scenario, where: Path) -> None:
    """With an evaluator that lies the run ends all the same, or stops with a sentence that a person can act upon."""
    deceived = Placement(wrap=partial(lying, scenario.seed))
    try:
        run(scenario, where / "deceived", placement=deceived)
    except Exception as error:
        if exit_code(error) is None:
            raise


def _smaller(drawn: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Scenarios with a little less in them."""
    for number in range(len(drawn["faults"])):
        yield drawn | {"faults": drawn["faults"][:number] + drawn["faults"][number + 1 :]}
    for name in ("network", "compute", "lag"):
        if name in drawn:
            yield {key: value for key, value in drawn.items() if key != name}
    policy = drawn["participation"]
    for name in ("buffer", "late", "deadline", "over_selection", "selection"):
        if name in policy and not (name == "late" and "buffer" in policy):
            yield drawn | {"participation": {key: value for key, value in policy.items() if key != name}}
    rounds = drawn["stop"]["rounds"]
    for fewer in (rounds // 2, rounds - 1):
        if 1 <= fewer < rounds:
            yield drawn | {"stop": {"rounds": fewer}}
    plain = {"perturbations": 2, "local_steps": 1, "estimator": "forward"}
    if drawn["algorithm"] | plain != drawn["algorithm"]:
        yield drawn | {"algorithm": drawn["algorithm"] | plain}
    if drawn["task"] != {"name": "quadratic", "dimension": 2}:
        yield drawn | {"task": {"name": "quadratic", "dimension": 2}}
