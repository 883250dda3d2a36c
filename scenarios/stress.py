"""`seedbus stress`: random scenarios in simulated time, and what must be true of every one of them.

Simulation testing in the manner of FoundationDB and TigerBeetle: a seed draws a whole scenario (faults, policies,
links, algorithm), it runs on the virtual clock, and these are checked:

- after every round: no commit is skipped or doubled, rounds follow each other;
- always: no replica diverges (every report carries its digests), no follower is told what it cannot use;
- the run ends, whatever happens to its clients;
- the ledger balances: every message that was sent was delivered, refused, dropped or is still under way;
- memory is bounded;
- the journal alone rebuilds the final model, bit for bit;
- a run that is stopped and resumed ends like one that is not (every third seed).

A failure is a seed: it is run again with ever less in its scenario, until nothing can be left out.
"""

from __future__ import annotations

import resource
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seedbus.agents.coordinator import Closed
from seedbus.agents.errors import TooFew
from seedbus.agents.observer import Nobody
from seedbus.agents.refusals import Refusal
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.loading import validate
from seedbus.scenarios.random_scenarios import document
from seedbus.scenarios.replay import replay
from seedbus.scenarios.results import Results
from seedbus.scenarios.run import run
from seedbus.scenarios.schema import Scenario

OUR_FAULT = frozenset(
    "diverged wrong-version wrong-kind bad-payload bad-commit bad-plan bad-snapshot bad-fetch unexpected".split()
)
GROWTH = 2**28  # bytes that a run of so small a task may need, imports included
STOPPED = 3  # every so many seeds one is stopped and resumed as well
SHRINKS = 60  # runs that making a failure smaller may take


@dataclass(slots=True)
class Verdict:
    """What came of one seed. problem: one sentence, and where it came from; None if all is well."""

    seed: int
    rounds: int = 0
    messages: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    problem: str | None = None
    smallest: dict[str, Any] | None = None


class Broken(AssertionError):
    """Something that must always be true is not."""


class _Inspector(Nobody):
    """Watches a run from round to round.

    has_liars: clients may say what does not fit; stop_after: raise Ctrl-C once so many rounds are closed.
    """

    def __init__(self, *, has_liars: bool, stop_after: int | None = None, round: int = 0, version: int = 0) -> None:
        self._stop_after, self.round, self.version = stop_after, round, version
        self._again = round > 0
        self._our_fault = OUR_FAULT - {"bad-payload"} if has_liars else OUR_FAULT

    def round_closed(self, closed: Closed, now_ns: int, bytes_so_far: int) -> None:
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
        if refusal.reason in self._our_fault:
            raise Broken(f"round {refusal.round}: refused ({refusal.reason}): {refusal.detail}")

    def noted(self, event: str, **facts: Any) -> None:
        if event in self._our_fault:
            raise Broken(f"{event}: {facts}")


def examine(seed: int, folder: Path | None = None) -> Verdict:
    """Draw the seed's scenario, run it and check it; make it smaller if it fails."""
    drawn = document(seed)
    verdict = Verdict(seed, faults=Counter(fault["fault"] for fault in drawn["faults"]))
    with TemporaryDirectory(prefix="stress-", dir=folder, ignore_cleanup_errors=True) as name:
        where = Path(name)
        problem = _problem(drawn, where, verdict)
        if problem is not None:
            verdict.problem = problem
            verdict.smallest = shrink(drawn, lambda smaller: _kind(_problem(smaller, where)) == _kind(problem))
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


def _problem(drawn: dict[str, Any], where: Path, verdict: Verdict | None = None) -> str | None:
    """What is wrong with a scenario's run, or None."""
    try:
        results = _checked(drawn, where)
    except TooFew:
        return None  # a scenario can be drawn that nobody can finish; it says so and ends
    except (Exception, Interrupted) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(last.filename).name}, {last.name})"
    if verdict is not None:
        verdict.rounds = results.summary["rounds"]
        verdict.messages = sum(results.summary["traffic"]["fates"].values())
    return None


def _kind(problem: str | None) -> str | None:
    return None if problem is None else problem.partition(":")[0]


def _checked(drawn: dict[str, Any], where: Path) -> Results:
    scenario = validate(drawn, drawn["name"])
    for path in where.iterdir():
        shutil.rmtree(path)
    has_liars = any(fault["fault"] == "byzantine" for fault in drawn["faults"])
    before = _highest()
    results = run(scenario, where / "run", observer=_Inspector(has_liars=has_liars))
    if _highest() - before > GROWTH:
        raise Broken(f"the run took {(_highest() - before) / 2**20:.0f} MiB more than this process ever had")
    again = replay(where / "run")
    if again.digest != results.digest:
        raise Broken(f"the journal rebuilds {again.digest}, and the run ended at {results.digest}")
    if drawn["seed"] % STOPPED == 0 and scenario.stop.rounds > 1:
        _check_resuming(scenario, where, results, has_liars)
    return results


def _highest() -> int:
    """Bytes of memory that this process ever held."""
    kibibytes: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes * (1 if sys.platform == "darwin" else 1024)


def _check_resuming(scenario: Scenario, where: Path, whole: Results, has_liars: bool) -> None:
    first = _Inspector(has_liars=has_liars, stop_after=1 + scenario.seed % (scenario.stop.rounds - 1))
    try:
        run(scenario, where / "cut", observer=first)
    except Interrupted:
        pass
    second = _Inspector(has_liars=has_liars, round=first.round, version=first.version)
    resumed = run(scenario, where / "cut", resume=True, observer=second)
    for name in ("digest", "ledger_hash", "rounds", "version", "metrics", "refusals", "faults", "simulated_s"):
        if resumed.summary[name] != whole.summary[name]:
            found = f"{name} is {resumed.summary[name]} and not {whole.summary[name]}"
            raise Broken(f"stopped after round {first.round} and resumed: {found}")


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
