"""What a run will cost in bytes, time and memory, from a rehearsal of its messages and a trial of its work.

    seconds of all rounds   Σ_r b_r  +  c·Σ_r m_r·e_r  +  f·Σ_r lag_r·s_r  +  E·(number of evaluations)

The first three are summed over the rounds after those of the trial, which count as measured. b_r is the rehearsal's own
time of round r: messages, journal, ledger. m_r clients each evaluate the loss e_r times (for DeComFL K·(P + 1)), at a
cost c that the trial shows: forward passes, perturbation, and the commit's one fold. E is what an evaluation took. With
`verify` each client folds what it missed, lag_r commits in all of s_r = K·P scalars, at a cost f that is measured by
folding, and that times the reports of a commit where it holds each of them. This is docs/cost.md's model with its
constants measured on the scenario itself.

A rehearsal that was cut short is continued by its second half: bytes in proportion to the size of a round's commit, and
the round and the version in each message as long as later ones are. Rounds beyond the first 100,000 are added up in
steps, each by its first round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbus.agents.client.client_state import KEPT_DURABLE
from seedbus.agents.feature import Foreseen
from seedbus.algorithms.contract import Algorithm
from seedbus.algorithms.scalar_only.base import ScalarOnly
from seedbus.bus import wire
from seedbus.bus.clock import cpu_seconds
from seedbus.models.errors import DataError
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.accounting import offered_bytes
from seedbus.scenarios.running.limits import least_memory, peak_memory, replica_bytes
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.explain.rehearsal import Rehearsed, do_commits_vary, rehearse, try_out

Numbers = NDArray[np.float64]
MOST_STEPS = 10**5
FOLDS = 20  # commits folded to measure f; the first one is not timed


@dataclass(frozen=True)
class Traffic:
    """Messages of a whole run.

    Attributes:
        up: bytes from clients, or between nodes.
        down: bytes to clients.
        catchup: those of `down`, or between nodes, that are commits that clients had missed.
        framed, wire, resent: what wires carry, up and down, with all frames, with the headers of TCP and IP, and more
            if 1% of packets are lost (`bus.wire`); None: nodes have no server.
        simulated_s: the run's clock at its end.
        rounds: number of rounds.
        is_exact: whether the whole run was rehearsed, with its own cohorts and bytes; otherwise the figures are
            estimates.
        rehearsed: number of rounds that were rehearsed.
    """

    up: int
    down: int
    catchup: int
    simulated_s: float
    rounds: int
    is_exact: bool
    rehearsed: int
    framed: tuple[int, int] | None = None
    wire: tuple[int, int] | None = None
    resent: tuple[int, int] | None = None


@dataclass(frozen=True)
class Time:
    """Processor seconds of a whole run in one process on this machine: real ones, if nothing else runs.

    Attributes:
        start: imports, data and kernels before the first round, and the report after the last.
        trial: the rounds that were tried out, as measured.
        messages: messages, journal and ledger of all later rounds.
        work: local work of the clients in these.
        replay: folding of missed commits in these, by clients with replicas of their own.
        evaluation: evaluations of the model.
        tried: number of rounds that were tried out.
    """

    start: float
    trial: float
    messages: float
    work: float
    replay: float
    evaluation: float
    tried: int

    @property
    def total(self) -> float:
        return self.start + self.trial + self.messages + self.work + self.replay + self.evaluation


@dataclass(frozen=True)
class Memory:
    """Bytes of memory of a whole run in one process.

    Attributes:
        least: the calculated lower bound, `limits.least_memory`.
        tried: the most that this process had after the trial.
        replicas: the most distinct replicas of clients at a time.
        total: what the process had, and the replicas and the server's vectors of clients that the trial did not have.
    """

    least: int
    tried: int
    replicas: int
    total: int


@dataclass(frozen=True)
class Disk:
    """Bytes on the disk of what all clients of a whole run remember.

    Attributes:
        most: while it goes on.
        end: after it.
    """

    most: int
    end: int

    @staticmethod
    def of(scenario: Scenario, remembered: int) -> Disk:
        """Return those of a run; remembered: bytes of what one client remembers."""
        participation = scenario.participation
        clients = min(participation.clients, participation.asked * scenario.stop.most_rounds)
        return Disk(KEPT_DURABLE * remembered * clients, remembered * clients)


@dataclass(frozen=True)
class Spent:
    """What a whole run spends of what `stop.epsilon` limits.

    Attributes:
        epsilon: ε at its end.
        is_exact: whether it is known what each round spends; otherwise it is an estimate.
        ends_run: whether `stop.epsilon` ends it.
    """

    epsilon: float
    is_exact: bool
    ends_run: bool


@dataclass(frozen=True)
class Forecast:
    """What a run will cost.

    Attributes:
        traffic: its messages.
        rehearsal: the rehearsal behind that.
        spent: what it spends of what `stop.epsilon` limits; None: nothing.
        time: its processor time; None if it could not be tried out.
        memory: its memory; likewise.
        disk: what its clients' memories take there.
        why_not: why it could not be tried out, in a sentence.
        others: bytes of the rounds that were tried out, and of the same rounds in the rehearsal, if they differ.
    """

    traffic: Traffic
    rehearsal: Rehearsed
    spent: Spent | None = None
    time: Time | None = None
    memory: Memory | None = None
    disk: Disk = field(default=Disk(0, 0), kw_only=True)
    why_not: str = ""
    others: tuple[int, int] | None = None


@dataclass(frozen=True)
class Steps:
    """The rounds of a run, one by one at first and then in steps, so that there are never too many to add up.

    Attributes:
        first: the first round of each step.
        lengths: how many rounds it has.
    """

    first: NDArray[np.int64]
    lengths: Numbers

    @staticmethod
    def of(rounds: int, known: int) -> Steps:
        """Divide so many rounds, of which these first ones are known one by one."""
        single = min(rounds, max(known, MOST_STEPS))
        first = np.concatenate([np.arange(single), np.arange(single, rounds, -(-rounds // MOST_STEPS))])
        return Steps(first, np.diff(first, append=rounds).astype(np.float64))

    def work(self, algorithm: Algorithm) -> tuple[Numbers, Numbers]:
        """Return how often f is evaluated, and how many scalars a report has, at the beginning of each step."""
        evaluations, scalars = np.array([algorithm.work(round) for round in self.first.tolist()], np.float64).T
        return evaluations, scalars


def forecast(scenario: Scenario, seconds: float) -> Forecast:
    """Measure for about so many seconds what a run of the scenario will cost.

    Args:
        scenario: what to run.
        seconds: half of them for the trial, and half for the rehearsal; each has one round at least (`try_out`).

    Raises:
        ScenarioError: the scenario cannot run here.
    """
    imports_s, trial, why_not = cpu_seconds(), None, ""
    try:
        trial = try_out(scenario, seconds / 2)
    except DataError as error:
        why_not = str(error)
    tried_bytes = peak_memory()
    rehearsal = rehearse(scenario, seconds / 2)
    found = traffic(scenario, rehearsal)
    disk = Disk.of(scenario, rehearsal.remembered)
    if trial is None:
        return Forecast(found, rehearsal, _spent(scenario, rehearsal, found), why_not=why_not, disk=disk)
    others = None if _depends_on_losses(scenario) else _unlike(rehearsal, trial)
    found = replace(found, is_exact=found.is_exact and others is None)
    spent, memory = _spent(scenario, rehearsal, found), _memory(scenario, rehearsal, trial, tried_bytes)
    time = _time(scenario, found.rounds, rehearsal, trial, imports_s)
    return Forecast(found, rehearsal, spent, time, memory, others=others, disk=disk)


def traffic(scenario: Scenario, rehearsal: Rehearsed) -> Traffic:
    """Return the messages of the whole run whose rehearsal this is."""
    found, done = rehearsal.summary["traffic"], rehearsal.rounds
    stop, spending = scenario.stop, rehearsal.course.spending
    rounds = done if rehearsal.is_whole else stop.most_rounds if spending is None else spending.rounds(stop)
    so_far_s, limit_s = rehearsal.summary["simulated_s"], stop.simulated_s
    # without a server a round takes its interval, and the repair after the last one comes once
    round_s = so_far_s / done if scenario.round_s is None else scenario.round_s
    if stop.rounds is None and (scenario.clock == "wall" or not (rehearsal.is_whole or round_s)):
        why = f"how many rounds {limit_s:g} s have room for is not known before"
        raise ScenarioError(scenario.name, [f"stop.rounds is missing, and {why}; with `--set stop.rounds=N` it is"])
    if limit_s is not None and round_s and not rehearsal.is_whole:
        rounds = min(rounds, max(done, math.ceil(limit_s / round_s)))
    steps = Steps.of(rounds, done)
    sizes, numbers = _commit_sizes(scenario, steps), _number_sizes(scenario, steps, rehearsal)
    pairs_up, pairs_down = (found[way]["messages"] / done for way in ("up", "down"))
    if not scenario.has_server:  # a header has the round alone, and each commit its number and its round
        pairs_up = pairs_up / 2 + found["up"]["seeds"] / done
    of_all = (pairs_up + 2 * pairs_down) * numbers  # the commits in a plan have a version and a round, too
    sent = of_all + _continued(np.diff(rehearsal.course.bytes, prepend=0) - of_all[:done], sizes)
    if stop.bytes is not None and not rehearsal.is_whole:
        last = int(np.searchsorted(np.cumsum(sent), stop.bytes)) + 1
        sizes, sent, numbers = sizes[:last], sent[:last], numbers[:last]
        rounds = int(steps.lengths[:last].sum())
    more = float(sizes.sum() / sizes[:done].sum())
    longer = float(numbers.sum() - numbers[:done].sum() * more)
    up = round(found["up"]["bytes"] * more + pairs_up * longer)
    total = round(float(sent.sum()))
    other = (found["down"]["bytes"] - found["catchup_bytes"]) * more + pairs_down * longer
    catchup = max(0, total - up - round(other)) if found["catchup_bytes"] else 0
    simulated_s = so_far_s + (rounds - done) * round_s
    is_timed = limit_s is not None and scenario.clock == "wall"  # a rehearsal is in simulated time
    is_exact = rehearsal.is_whole and not (is_timed or _depends_on_losses(scenario))
    if not scenario.has_server:
        catchup = round(found["catchup_bytes"] * up / max(1, found["up"]["bytes"]))
        return Traffic(up, 0, catchup, simulated_s, rounds, is_exact, done)
    wires = _wire(scenario, rehearsal, (up, total - up), rounds / done, simulated_s)
    return Traffic(up, total - up, catchup, simulated_s, rounds, is_exact, done, *wires)


def _wire(
    scenario: Scenario, rehearsal: Rehearsed, sizes: tuple[int, int], times: float, lasts_s: float
) -> Iterator[tuple[int, int]]:
    """Yield what wires carry: framed, in all, and more at a loss of 1%; each up and down.

    Args:
        scenario: the run's.
        rehearsal: its rehearsal, whose rounds are repeated.
        sizes: bytes of all messages of the whole run.
        times: how many rounds the run has for each that was rehearsed.
        lasts_s: how long the run lasts.
    """
    found, clients = rehearsal.summary["traffic"], scenario.participation.clients
    beats = wire.heartbeats(clients, int(lasts_s * 1e9))
    so_far = wire.heartbeats(clients, int(rehearsal.summary["simulated_s"] * 1e9))
    opened = wire.connections(clients, offered_bytes(scenario))
    ways = []
    for number, (way, size) in enumerate(zip(("up", "down"), sizes, strict=True)):
        known, longer_messages = found["wire"][way], size - times * found[way]["bytes"]
        longer = opened[number].wire - known["bytes_of_connections"]  # the rehearsal offers another scenario
        rounds = known["bytes_of_rounds"] * (times - 1) + longer_messages
        lasts = beats[number].wire - so_far[number].wire
        more = round(rounds + lasts)
        grown = 1 + more / known["bytes"]
        framed = round(known["framed"] * grown) + longer
        ways.append((framed, known["bytes"] + more + longer, round(known["resent_of_percent"] * grown)))
    yield from zip(*ways, strict=True)


def is_spending_known(scenario: Scenario, found: Traffic, spending: Foreseen) -> bool:
    """Whether it is known what a run with these messages spends, and not only estimated."""
    stop = scenario.stop
    is_known = spending.is_known(scenario, found.rounds) and stop.bytes is None and stop.simulated_s is None
    return is_known or (found.is_exact and scenario.clock == "virtual")


def _spent(scenario: Scenario, rehearsal: Rehearsed, found: Traffic) -> Spent | None:
    spending, budget = rehearsal.course.spending, scenario.stop.epsilon
    if spending is None:
        return None
    commits = spending.commits(found.rounds)
    is_over = budget is not None and spending.epsilon(commits + 1) > budget
    ends_run = is_over and found.rounds < scenario.stop.most_rounds
    return Spent(spending.epsilon(commits), is_spending_known(scenario, found, spending), ends_run)


def _depends_on_losses(scenario: Scenario) -> bool:
    """Whether messages are known to depend on losses, so that a rehearsal has others."""
    return (
        do_commits_vary(scenario.algorithm)
        or scenario.participation.selection.needs_known
        or any(fault.follows_losses for fault in scenario.faults)
    )


def _unlike(rehearsal: Rehearsed, trial: Rehearsed) -> tuple[int, int] | None:
    """Return the bytes of the rounds that both have, of the trial and of the rehearsal, if those of any round differ.

    They do where messages depend on losses and this is not known beforehand: an algorithm or a codec of one's own may
    send more of what is not 0, and reports may be refused.
    """
    both = [*zip(trial.course.bytes, rehearsal.course.bytes, strict=False)]
    return both[-1] if any(tried != rehearsed for tried, rehearsed in both) else None


def _time(scenario: Scenario, rounds: int, rehearsal: Rehearsed, trial: Rehearsed, imports_s: float) -> Time:
    tried = np.array(trial.course.seconds)[:rounds]
    steps = Steps.of(rounds, max(rehearsal.rounds, tried.size))
    messages = _continued(rehearsal.course.seconds, steps.lengths)
    asked = _continued(rehearsal.course.asked, steps.lengths)
    passes, scalars = steps.work(scenario.algorithm)
    evaluations = passes * asked
    folds = np.zeros(asked.size)
    if scenario.verify and isinstance(scenario.algorithm, ScalarOnly):
        lags = _continued(rehearsal.course.lags, steps.lengths)
        folds = lags * _folds_a_commit(rehearsal) * fold_seconds(scenario) * scalars / scalars[0]
    counted = slice(1 if tried.size > 1 else 0, tried.size)  # the first round is slower than all others
    rest = float((tried[counted] - messages[counted] - folds[counted]).sum())
    each_s = max(0.0, rest) / max(1.0, float(evaluations[counted].sum()))
    later = slice(tried.size, None)
    measured = 1 + rounds // scenario.evaluation.every + (rounds % scenario.evaluation.every > 0)
    return Time(
        start=imports_s + trial.around_s,
        trial=float(tried.sum()),
        messages=float(messages[later].sum()),
        work=each_s * float(evaluations[later].sum()),
        replay=float(folds[later].sum()),
        evaluation=measured * trial.course.evaluation_s,
        tried=tried.size,
    )


def _memory(scenario: Scenario, rehearsal: Rehearsed, trial: Rehearsed, tried_bytes: int) -> Memory:
    replicas = max(rehearsal.course.replicas)
    more = max(0, replicas - max(trial.course.replicas))
    participation, sizes = scenario.participation, partial(scenario.algorithm.sizes, scenario.dimension)
    clients, tried = min(participation.clients, participation.asked * scenario.stop.most_rounds), trial.course.clients
    kept = sizes(max(clients, tried)).state - sizes(tried).state
    return Memory(
        least=least_memory(scenario, scenario.participation.clients),
        tried=tried_bytes,
        replicas=replicas,
        total=tried_bytes + more * replica_bytes(scenario) + kept,
    )


def _folds_a_commit(rehearsal: Rehearsed) -> float:
    """Return how many commits of one report are as much to fold as one that clients had missed in the rehearsal.

    More than 1 for late terms and for the reports of `fedscalar`; less where plans were lost, or clients got the model.
    """
    folded, missed = rehearsal.summary["traffic"]["replayed"], sum(rehearsal.course.lags)
    return folded / missed if folded and missed else 1.0


def fold_seconds(scenario: Scenario) -> float:
    """Return the processor seconds that a commit of round 0 takes for all coordinates but one, the rehearsal's."""
    return max(0.0, _fold_seconds(scenario, scenario.dimension) - _fold_seconds(scenario, 1))


def _fold_seconds(scenario: Scenario, dimension: int) -> float:
    """Return the processor seconds in which a replica folds a commit, one of several at once as after a lag."""
    algorithm: Any = scenario.algorithm.sized(dimension)
    replica = algorithm.replica(np.zeros(dimension, np.float32))
    commits = []
    for version in range(FOLDS):
        plan = algorithm.plan(0, version, version)
        commits.append(algorithm.aggregate(None, plan, {0: algorithm.example(plan)})[0])
    algorithm.apply(replica, commits[:1])  # loads the kernels
    began_s = cpu_seconds()
    algorithm.apply(replica, commits)
    return (cpu_seconds() - began_s) / (FOLDS - 1)


def _continued(values: object, weights: Numbers) -> Numbers:
    """Return values of the first rounds, continued to all steps by their second half.

    Args:
        values: of each rehearsed round, at most as many as there are weights.
        weights: of each step, positive; later values are in proportion to them.
    """
    known = np.asarray(values, np.float64)[: weights.size]
    half = known.size // 2
    rate = known[half:].sum() / weights[half : known.size].sum()
    return np.concatenate([known, rate * weights[known.size :]])


def _commit_sizes(scenario: Scenario, steps: Steps) -> Numbers:
    """Return what the bytes of each step grow with: its rounds' scalars and seeds, each of which is as long as two."""
    each = 1 if scenario.algorithm.facts.is_dense else steps.work(scenario.algorithm)[1] + 2
    return steps.lengths * each


def _number_sizes(scenario: Scenario, steps: Steps, rehearsal: Rehearsed) -> Numbers:
    """Return the bytes of a round and a version in a message of each round, summed over each step; [steps].

    msgpack has a number in one byte below 128, two below 256, three below 65,536, and otherwise five. Without a server
    the number of a node's commit, which is about that of the round, takes the place of the version.
    """
    commits_a_round = 1.0 if not scenario.has_server else rehearsal.summary["version"] / rehearsal.rounds
    numbers = np.outer([1.0, commits_a_round], steps.first)
    lengths = np.array([1, 2, 3, 5])[np.searchsorted([128, 256, 65_536], numbers, "right")]
    pairs: Numbers = steps.lengths * lengths.sum(axis=0)
    return pairs
