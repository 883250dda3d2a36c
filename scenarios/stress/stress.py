"""`seedbus stress`: runs random scenarios in simulated time and checks invariants of every run.

This is simulation testing in the manner of FoundationDB and TigerBeetle. A seed determines a whole scenario (faults,
policies, links, algorithm), which runs on the virtual clock. The invariants are:

- after every round: no commit is skipped or doubled, and rounds are consecutive;
- always: no replica diverges (every report carries its digests), and no follower receives a message that it cannot use;
- the run ends, whatever happens to its clients;
- the ledger balances: every message that was sent is delivered, refused, dropped or in flight;
- memory is bounded;
- the journal alone rebuilds the final model, bit for bit;
- a run that is stopped and resumed ends like one that is not (every third seed; where reports are masked and a
  question of a closed round was under way, with the same model if no link has a bandwidth: secrets are not stored);
- with clients that violate the protocol: no honest client is refused, every refusal is counted by reason and client,
  the final model is that of a run in which these clients are silent (unless reports are masked: clients that share no
  masks change how many have to help), and a run over sockets has the same results (every seventh seed);
- with a lying evaluator, the run ends, or stops with an error message (every fifth seed).

A seed that fails is run again with smaller and smaller scenarios, until nothing can be removed.
"""

from __future__ import annotations

import math
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np

from seedbus.agents.errors import TooFew
from seedbus.agents.launcher import MESSAGES
from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import Mark, Reason, Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.bus import Kind, read_ledger
from seedbus.bus.clock import wall_seconds
from seedbus.bus.keyed_random import with_random
from seedbus.bus.ledger import Columns
from seedbus.bus.network import Throttle
from seedbus.scenarios.cli_errors import exit_code
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.faults import hostile
from seedbus.scenarios.faults.byzantine import Byzantine
from seedbus.scenarios.faults.hostile import Hostile
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.running.limits import peak_memory
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.stress.lying_evaluator import lying
from seedbus.scenarios.stress.random_scenarios import HOSTILE, document
from seedbus.scenarios.transports.placement import Placement

OUR_FAULT = Reason.marked(Mark.DISHONEST) | {"bad-ask", "bad-commit", "bad-plan", "bad-fetch", "unexpected"}
"""Refusal reasons and events that must never occur for an honest client, whatever happens to its messages."""
MAX_GROWTH = 2**28  # bytes of memory that a run of so small a task may need, imports included
STOPPED_EVERY = 3  # one of so many seeds is also stopped and resumed
OVER_SOCKETS_EVERY = 7  # one of so many seeds with hostile clients also runs over sockets
DECEIVED_EVERY = 5  # one of so many seeds also runs with a lying evaluator
MAX_SHRINKS = 60  # runs to shrink a failing scenario
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
    faults: Counter[str] = field(default_factory=Counter)
    problem: str | None = None
    smallest: dict[str, Any] | None = None
    is_cut: bool = False


class Broken(AssertionError):
    """An invariant is violated."""


class NoTime(Exception):
    """The time to examine seeds is over."""


class _Alarm(KeyboardInterrupt):
    """The time of a run is over. It is raised in the middle of the run, and propagates like Ctrl-C."""


class _Inspector(NullObserver):
    """Checks the invariants of a run after every round, and of every refusal and event.

    Args:
        stop_after: number of closed rounds after which to raise `KeyboardInterrupt`, like Ctrl-C.
        round: the next round when the run begins.
        version: the model's version when the run begins.

    Attributes:
        round: the next round.
        version: the current version.
        refusals: reason → client → count.
    """

    def __init__(self, scenario: Scenario, *, stop_after: int | None = None, round: int = 0, version: int = 0) -> None:
        self._stop_after = stop_after
        self.round = round
        self.version = version
        self._expects_repeat = round > 0  # a resumed run first reports its last round again
        self._hostile = _hostile(scenario)
        self._our_fault = OUR_FAULT
        if any(isinstance(fault, Byzantine) for fault in scenario.faults):
            self._our_fault -= {"bad-payload"}
        if self._hostile:
            self._our_fault -= {"bad-snapshot"}  # a hostile client may have made up a snapshot
        self.refusals: dict[str, dict[str, int]] = {}

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if self._expects_repeat and closed.round == self.round - 1:
            self._expects_repeat = False
            return
        if closed.round != self.round:
            raise Broken(f"round {closed.round} follows round {self.round - 1}")
        if closed.version != self.version + (closed.commit is not None):
            raise Broken(f"version {closed.version} follows version {self.version} in round {closed.round}")
        if closed.commit is not None and closed.commit.version != closed.version:
            raise Broken(f"commit {closed.commit.version} is the {closed.version}th")
        self.round = closed.round + 1
        self.version = closed.version
        if self.round == self._stop_after:
            raise KeyboardInterrupt

    def refused(self, refusal: Refusal) -> None:
        by_client = self.refusals.setdefault(refusal.reason, {})
        by_client[str(refusal.client)] = by_client.get(str(refusal.client), 0) + 1
        if refusal.reason in self._our_fault and refusal.client not in self._hostile:
            raise Broken(f"round {refusal.round}: refused ({refusal.reason}): {refusal.detail}")

    def noted(self, event: str, **facts: Any) -> None:
        if event in self._our_fault:
            raise Broken(f"{event}: {facts}")


def examine(seed: int, folder: Path | None = None, until_s: float = math.inf) -> Verdict:
    """Draw the seed's scenario, run and check it, and shrink it if it fails.

    Args:
        folder: where the runs' temporary folders are made; default: the system's folder.
        until_s: time of `wall_seconds` at which to stop, even in the middle of a run.
    """
    drawn = document(seed)
    verdict = Verdict(seed, faults=Counter(fault["fault"] for fault in drawn["faults"]))
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
            results = _checked(drawn, runs)
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
    """Import the modules that runs import lazily, since an alarm during an import leaves a half-initialised package."""
    import numba  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import torch  # noqa: F401


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


def _checked(drawn: dict[str, Any], runs: Path) -> Results:
    """Run a scenario and check all its invariants. Raises `Broken`, and whatever the run raises."""
    scenario = validate(drawn, drawn["name"])
    for path in runs.iterdir():
        shutil.rmtree(path)
    before, inspector = peak_memory(), _Inspector(scenario)
    results = run(scenario, runs / "run", observer=inspector)
    if peak_memory() - before > MAX_GROWTH:
        raise Broken(f"the run took {(peak_memory() - before) / 2**20:.0f} MiB more than this process ever had")
    if inspector.refusals != results.summary["refusals"]:
        raise Broken(f"refusals are counted as {results.summary['refusals']}, and reported as {inspector.refusals}")
    replayed = replay(runs / "run")
    if replayed.digest != results.digest:
        raise Broken(f"the journal rebuilds {replayed.digest}, and the run ended at {results.digest}")
    if drawn["seed"] % STOPPED_EVERY == 0 and scenario.stop.rounds > 1:
        _check_resuming(scenario, runs, results)
    if _hostile(scenario):
        if scenario.secure_aggregation is None:
            _check_silenced(drawn, runs)
        if drawn["seed"] % OVER_SOCKETS_EVERY == 0:
            wired = run(scenario, runs / "wired", observer=_Inspector(scenario), placement=Placement("inproc"))
            _check_equal("over sockets", wired, results)
    if drawn["seed"] % DECEIVED_EVERY == 0:
        _check_deceived(scenario, runs)
    return results


def _check_resuming(scenario: Scenario, runs: Path, uninterrupted: Results) -> None:
    """Check that a run which is stopped and resumed ends like one that is not."""
    first = _Inspector(scenario, stop_after=1 + scenario.seed % (scenario.stop.rounds - 1))
    try:
        run(scenario, runs / "cut", observer=first)
    except Interrupted:
        pass
    second = _Inspector(scenario, round=first.round, version=first.version)
    resumed = run(scenario, runs / "cut", resume=True, observer=second)
    how = f"stopped after round {first.round} and resumed"
    if scenario.secure_aggregation is None or not _is_late(read_ledger(runs / "run" / MESSAGES), first.round):
        _check_equal(how, resumed, uninterrupted)
    elif not _has_bandwidth(scenario):
        _check_equal(how, resumed, uninterrupted, ("digest", "rounds", "version", "metrics"))


def _is_late(ledger: Columns, round: int) -> bool:
    """Whether a question of an earlier round was still under way when one of the last two rounds before `round` closed.

    In a run that is stopped and resumed there the client is a new process without the secrets of the earlier round, so
    its answer has another length: the ledger differs, and on links with a bandwidth also times, and so who meets a
    deadline (docs/secure-aggregation.md).
    """
    is_question = np.isin(ledger["kind"], (Kind.ASK, Kind.PLAN))
    for begun in (round - 1, round):
        began_ns = ledger["sent_ns"][ledger["round"] == begun].min(initial=2**63 - 1)
        if (is_question & (ledger["round"] < begun) & (ledger["arrived_ns"] >= began_ns)).any():
            return True
    return False


def _has_bandwidth(scenario: Scenario) -> bool:
    """Whether the time that a message takes may depend on its length."""
    network = scenario.network
    mbps = (network.up_mbps, network.down_mbps, network.shared_up_mbps, network.shared_down_mbps)
    return any(each is not None for each in mbps) or any(isinstance(fault, Throttle) for fault in scenario.faults)


EQUAL = ("digest", "ledger_hash", "rounds", "version", "metrics", "refusals", "faults", "simulated_s")


def _check_equal(how: str, actual: Results, expected: Results, names: tuple[str, ...] = EQUAL) -> None:
    for name in names:
        if actual.summary[name] != expected.summary[name]:
            raise Broken(f"{how}: {name} is {actual.summary[name]} and not {expected.summary[name]}")


def _hostile(scenario: Scenario) -> frozenset[int]:
    """Return the clients that may violate the protocol."""
    clients = scenario.participation.clients
    faults = with_random(scenario.faults, scenario.seed, clients)
    chosen = (fault.chosen(clients, random) for fault, random in faults if isinstance(fault, Hostile))
    return frozenset(client for some in chosen for client in some)


def _check_silenced(drawn: dict[str, Any], runs: Path) -> None:
    """Check that refused reports have no effect: hostile clients must have the same effect as silent ones.

    All runs have ideal links, no late reports and no other faults. Otherwise the reports in time would depend on which
    clients the server waits for. The clients are hostile, or silent, in all rounds: a message without a valid round
    number may cause an honest report of its sender in the next round to be refused. Changed headers have a run of their
    own: after answers of several messages a client is behind, and a report that it sends for a later round counts if it
    arrives in that.
    """
    (drawn_fault,) = (fault for fault in drawn["faults"] if fault["fault"] == HOSTILE)
    # these leave a report that counts: it is sent twice, or only the masks are lied about
    counting = {"twice", "mask"}
    if drawn["algorithm"]["name"] == "feedsign":
        counting |= {"body"}  # any bits are valid signs
    kinds = [kind for kind in drawn_fault["kinds"] or get_args(hostile.Forgery) if kind not in counting]
    clients = sorted(_hostile(validate(drawn, drawn["name"])))
    undisturbed = {name: value for name, value in drawn.items() if name not in ("network", "compute", "lag")}
    policy = {name: drawn["participation"][name] for name in ("clients", "cohort", "quorum", "deadline_s")}
    faults: dict[str, dict[str, Any]] = {
        "silent": {"fault": "dropout", "when": "after-training", "clients": clients},
        "lying": {"fault": HOSTILE, "kinds": [kind for kind in kinds if kind != "header"], "clients": clients},
        "misplaced": {"fault": HOSTILE, "kinds": [kind for kind in kinds if kind == "header"], "clients": clients},
    }
    results = dict[str, Results]()
    for name, fault in faults.items():
        if fault.get("kinds") != []:
            scenario = validate(undisturbed | {"participation": policy, "faults": [fault]}, name)
            results[name] = run(scenario, runs / name, observer=_Inspector(scenario))
    silent = results.pop("silent").summary
    for hostile_run in results.values():
        for name in ("digest", "rounds", "version"):
            if hostile_run.summary[name] != silent[name]:
                difference = f"{name} is {hostile_run.summary[name]}, and {silent[name]} where they are silent"
                raise Broken(f"with hostile clients {clients}: {difference}")


def _check_deceived(scenario: Scenario, runs: Path) -> None:
    """Check that a run with a lying evaluator ends, or stops with an error that the user can act upon."""
    deceived = Placement(wrap=partial(lying, scenario.seed))
    # a false loss that is not finite would end the run before the next lie
    scenario = scenario.model_copy(update={"stop": scenario.stop.model_copy(update={"diverged": "continue"})})
    try:
        run(scenario, runs / "deceived", placement=deceived)
    except Exception as error:
        if exit_code(error) is None:
            raise


def _smaller(drawn: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield smaller variants of a scenario, each with one part removed or reduced."""
    for number in range(len(drawn["faults"])):
        yield drawn | {"faults": drawn["faults"][:number] + drawn["faults"][number + 1 :]}
    for name in ("network", "compute", "lag", "secure_aggregation"):
        if name in drawn:
            yield {key: value for key, value in drawn.items() if key != name}
    policy = drawn["participation"]
    for name in ("buffer", "late", "deadline", "over_selection", "selection"):
        if name in policy and not (name == "late" and "buffer" in policy):
            yield drawn | {"participation": {key: value for key, value in policy.items() if key != name}}
    rounds = drawn["stop"]["rounds"]
    for fewer in (rounds // 2, rounds - 1):
        if 1 <= fewer < rounds:
            yield drawn | {"stop": drawn["stop"] | {"rounds": fewer}}
    plain = {"perturbations": 2, "local_steps": 1, "estimator": "forward"}
    if drawn["algorithm"] | plain != drawn["algorithm"]:
        yield drawn | {"algorithm": drawn["algorithm"] | plain}
    if drawn["task"] != {"name": "quadratic", "dimension": 2}:
        yield drawn | {"task": {"name": "quadratic", "dimension": 2}}
