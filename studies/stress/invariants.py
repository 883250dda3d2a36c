"""What must be true of every run of a random scenario:

- after every round: no commit is skipped or doubled, and rounds are consecutive;
- always: no replica diverges (every report carries its digests), and no follower receives a message that it cannot use;
- the run ends, whatever happens to its clients;
- the ledger balances: every message that was sent is delivered, refused, dropped or in flight;
- memory is bounded;
- the journal alone rebuilds the final model, bit for bit, and with it all that was measured of it (without a server one
  node is measured, which may lack commits), and journal and ledger give all that the results say;
- a run that is stopped and resumed ends like one that is not (every third seed; where reports are masked and a
  question of a closed round was under way, with the same model if no link has a bandwidth: secrets are not stored);
- with clients that violate the protocol: no honest client is refused, every refusal is counted by reason and client,
  the final model is that of a run in which these clients are silent (unless reports are masked: clients that share no
  masks change how many have to help), and a run over sockets has the same results (every seventh seed);
- with a lying evaluator, the run ends, or stops with an error message (every fifth seed).
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from seedbus.agents.observer import NullObserver
from seedbus.agents.refusals import Mark, Reason, Refusal
from seedbus.agents.round_record import ClosedRound
from seedbus.bus import Kind, read_ledger
from seedbus.bus.ledger import MESSAGES, Columns
from seedbus.bus.network import ChangingLinks, Throttle
from seedbus.scenarios.cli_errors import exit_code
from seedbus.scenarios.errors import Interrupted
from seedbus.scenarios.faults import hostile
from seedbus.scenarios.faults.byzantine import Byzantine
from seedbus.scenarios.faults.hostile import Hostile
from seedbus.scenarios.reporting.results import Results, write
from seedbus.scenarios.running.limits import peak_memory
from seedbus.scenarios.running.replay import Replayed, replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.running.verify import verify
from seedbus.scenarios.schema.loading import validate
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.transports.placement import Placement
from seedbus.studies.stress.fault_files import files
from seedbus.studies.stress.lying_evaluator import lying
from seedbus.studies.stress.random_scenarios import HOSTILE

OUR_FAULT = Reason.marked(Mark.DISHONEST) | {"bad-ask", "bad-commit", "bad-plan", "bad-fetch", "unexpected"}
"""Refusal reasons and events that must never occur for an honest client, whatever happens to its messages."""
MAX_GROWTH = 2**28  # bytes of memory that a run of so small a task may need, imports included
STOPPED_EVERY = 3  # one of so many seeds is also stopped and resumed
OVER_SOCKETS_EVERY = 7  # one of so many seeds with hostile clients also runs over sockets
DECEIVED_EVERY = 5  # one of so many seeds also runs with a lying evaluator


class Broken(AssertionError):
    """An invariant is violated."""


class Inspector(NullObserver):
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
        self._hostile = hostile_clients(scenario)
        self._our_fault = OUR_FAULT
        if any(isinstance(fault, Byzantine) for fault in scenario.faults):
            self._our_fault -= {"bad-payload"}
        self.refusals: dict[str, dict[str, int]] = {}

    def round_closed(self, closed: ClosedRound, now_ns: int, bytes_so_far: int) -> None:
        if self._expects_repeat and closed.round == self.round - 1:
            self._expects_repeat = False
            return
        if closed.round != self.round:
            raise Broken(f"round {closed.round} follows round {self.round - 1}")
        commits = closed.commit if isinstance(closed.commit, list) else [closed.commit] if closed.commit else []
        made = [commit.version for commit in commits]  # without a server, of many nodes
        if made != list(range(self.version + 1, closed.version + 1)):
            raise Broken(f"round {closed.round} goes from version {self.version} to {closed.version} by commits {made}")
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


def check_run(drawn: dict[str, Any], runs: Path) -> Results:
    """Run a scenario and check all its invariants. Raises `Broken`, and whatever the run raises."""
    for path in runs.iterdir():
        shutil.rmtree(path)
    folder = runs / "files"
    folder.mkdir()
    for name, text in files(drawn).items():
        write(folder / name, text)
    scenario = validate(drawn, drawn["name"], folder)
    before, inspector = peak_memory(), Inspector(scenario)
    results = run(scenario, runs / "run", observer=inspector)
    if peak_memory() - before > MAX_GROWTH:
        raise Broken(f"the run took {(peak_memory() - before) / 2**20:.0f} MiB more than this process ever had")
    if inspector.refusals != results.summary["refusals"]:
        raise Broken(f"refusals are counted as {results.summary['refusals']}, and reported as {inspector.refusals}")
    replayed = replay(runs / "run")
    if replayed.digest != results.digest:
        raise Broken(f"the journal rebuilds {replayed.digest}, and the run ended at {results.digest}")
    for difference in verify(runs / "run").differences:
        raise Broken(str(difference))
    if scenario.has_server:
        _check_measured(replayed, results, scenario.evaluation.split)
    if drawn["seed"] % STOPPED_EVERY == 0 and results.summary["rounds"] > 1:
        _check_resuming(scenario, runs, results)
    if hostile_clients(scenario):
        if not _has_secrets(scenario):
            _check_silenced(drawn, scenario, runs)
        if drawn["seed"] % OVER_SOCKETS_EVERY == 0:
            wired = run(scenario, runs / "wired", observer=Inspector(scenario), placement=Placement("inproc"))
            _check_equal("over sockets", wired, results)
    if drawn["seed"] % DECEIVED_EVERY == 0 and scenario.has_server:
        check_deceived(scenario, runs)
    return results


def _check_measured(replayed: Replayed, results: Results, split: str) -> None:
    """Check that the model which the journal rebuilds is the one that was evaluated at the end."""
    found, measured = replayed.problem.evaluate(replayed.point, split), results.metrics.iloc[-1]
    if not all(np.array_equal(value, measured[name], equal_nan=True) for name, value in found.items()):
        told = {name: float(measured[name]) for name in found}
        raise Broken(f"of the model that the journal rebuilds {found} is measured, and the run ended with {told}")


def _check_resuming(scenario: Scenario, runs: Path, uninterrupted: Results) -> None:
    """Check that a run which is stopped and resumed ends like one that is not."""
    first = Inspector(scenario, stop_after=1 + scenario.seed % (uninterrupted.summary["rounds"] - 1))
    try:
        run(scenario, runs / "cut", observer=first)
    except Interrupted:
        pass
    second = Inspector(scenario, round=first.round, version=first.version)
    resumed = run(scenario, runs / "cut", resume=True, observer=second)
    how = f"stopped after round {first.round} and resumed"
    if not _has_secrets(scenario) or not is_late(read_ledger(runs / "run" / MESSAGES), first.round):
        _check_equal(how, resumed, uninterrupted)
    elif not _has_bandwidth(scenario):
        _check_equal(how, resumed, uninterrupted, ("digest", "rounds", "version", "metrics"))


def is_late(ledger: Columns, round: int) -> bool:
    """Whether a question of an earlier round was still under way when one of the last two rounds before `round` closed.

    In a run that is stopped and resumed there the client is a new process without the secrets of the earlier round, so
    its answer has another length: the ledger differs, and on links with a bandwidth also times, and so who meets a
    deadline.
    """
    is_question = np.isin(ledger["kind"], (Kind.ASK, Kind.PLAN))
    for begun in (round - 1, round):
        began_ns = ledger["sent_ns"][ledger["round"] == begun].min(initial=2**63 - 1)
        if (is_question & (ledger["round"] < begun) & (ledger["arrived_ns"] >= began_ns)).any():
            return True
    return False


def _has_secrets(scenario: Scenario) -> bool:
    return any(feature.draws_secrets for feature in scenario.features)


def _has_bandwidth(scenario: Scenario) -> bool:
    """Whether the time that a message takes may depend on its length."""
    network = scenario.network
    mbps = (network.up_mbps, network.down_mbps, network.shared_up_mbps, network.shared_down_mbps)
    return any(each is not None for each in mbps) or any(
        isinstance(fault, Throttle | ChangingLinks) for fault in scenario.faults
    )


EQUAL = ("digest", "ledger_hash", "rounds", "version", "metrics", "refusals", "faults", "simulated_s")


def _check_equal(how: str, actual: Results, expected: Results, names: tuple[str, ...] = EQUAL) -> None:
    for name in names:
        if actual.summary[name] != expected.summary[name]:
            raise Broken(f"{how}: {name} is {actual.summary[name]} and not {expected.summary[name]}")


def hostile_clients(scenario: Scenario) -> frozenset[int]:
    """Return the clients that may violate the protocol."""
    clients = scenario.participation.clients
    faults = scenario.faults_with_draws
    chosen = (fault.chosen(clients, random) for fault, random in faults if isinstance(fault, Hostile))
    return frozenset(client for some in chosen for client in some)


def _check_silenced(drawn: dict[str, Any], disturbed: Scenario, runs: Path) -> None:
    """Check that refused reports have no effect: hostile clients must have the same effect as silent ones.

    All runs have ideal links, no late reports, no other faults and no end by time, bytes or a metric. Otherwise the
    reports in time, or the rounds, would depend on which clients the server waits for. The clients are hostile, or
    silent, in all rounds: a message without a valid round number may cause an honest report of its sender in the next
    round to be refused. Changed headers have a run of their own: after answers of several messages a client is behind,
    and a report that it sends for a later round counts if it arrives in that.
    """
    (drawn_fault,) = (fault for fault in drawn["faults"] if fault["fault"] == HOSTILE)
    # these leave a report that counts: it is sent twice, or only the masks are lied about
    counting = {"twice", "mask"}
    if drawn["algorithm"]["name"] == "feedsign":
        counting |= {"body"}  # any bits are valid signs
    kinds = [kind for kind in drawn_fault["kinds"] or get_args(hostile.Forgery) if kind not in counting]
    clients = sorted(hostile_clients(disturbed))
    undisturbed = {name: value for name, value in drawn.items() if name not in ("network", "compute", "lag")}
    undisturbed["stop"] = {
        name: drawn["stop"][name] for name in ("rounds", "diverged", "epsilon") if name in drawn["stop"]
    }
    kept = ("clients", "cohort", "quorum", "deadline_s")
    policy = {name: value for name, value in drawn["participation"].items() if name in kept}
    faults: dict[str, dict[str, Any]] = {
        "silent": {"fault": "dropout", "when": "after-training", "clients": clients},
        "lying": {"fault": HOSTILE, "kinds": [kind for kind in kinds if kind != "header"], "clients": clients},
        "misplaced": {"fault": HOSTILE, "kinds": [kind for kind in kinds if kind == "header"], "clients": clients},
    }
    results = dict[str, Results]()
    for name, fault in faults.items():
        if fault.get("kinds") != []:
            scenario = validate(undisturbed | {"participation": policy, "faults": [fault]}, name)
            results[name] = run(scenario, runs / name, observer=Inspector(scenario))
    silent = results.pop("silent").summary
    for hostile_run in results.values():
        for name in ("digest", "rounds", "version"):
            if hostile_run.summary[name] != silent[name]:
                difference = f"{name} is {hostile_run.summary[name]}, and {silent[name]} where they are silent"
                raise Broken(f"with hostile clients {clients}: {difference}")


def check_deceived(scenario: Scenario, runs: Path) -> None:
    """Check that a run with a lying evaluator ends, or stops with an error that the user can act upon."""
    deceived = Placement(wrap=partial(lying, scenario.seed))
    # a false loss that is not finite would end the run before the next lie
    scenario = scenario.model_copy(update={"stop": scenario.stop.model_copy(update={"diverged": "continue"})})
    try:
        run(scenario, runs / "deceived", placement=deceived)
    except Exception as error:
        if exit_code(error) is None:
            raise
