"""A rehearsal leaves the model out, and has the messages, times and faults of the run itself."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import DECOMFL, HISO, go, lossy, scenario

from seedbus.algorithms.contract import Work
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.models.errors import DataError
from seedbus.scenarios.run_folder import MEMORY
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.loading import load
from seedbus.scenarios.schema.plugins import load_plugin
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.studies.explain import forecast
from seedbus.studies.explain.explain import _costs, explain
from seedbus.studies.explain.rehearsal import Course, Rehearsed, rehearse, try_out

SLOW: dict[str, Any] = {"evaluation": {"distribution": "lognormal", "median": 0.05, "sigma": 1.0}}
LONG = {"rounds": 60}
SHARED: dict[str, Any] = {"name": "fedscalar-shared", "local_steps": 2}
CHURN = {
    "fault": "churn",
    "stays": {"distribution": "exponential", "mean": 5},
    "away": {"distribution": "exponential", "mean": 5},
}
DIGITS: dict[str, Any] = {"task": {"name": "digits", "model": "softmax"}, "verify": False}
SCENARIOS: dict[str, Scenario] = {
    "lossy": lossy(compute=SLOW),
    "leaving": lossy(algorithm=HISO, faults=[CHURN], stop=LONG),
    "snapshots": lossy(algorithm=HISO, lag={"snapshot_after_commits": 3, "chunk_bytes": 512}, network={"up_mbps": 0.1}),
    "masked and stacked": scenario(  # a client's JOIN, after a snapshot, has both proofs
        task={"name": "digits", "model": "softmax", "forward": "stacked"},
        mask={"rule": "random", "density": 0.1},
        lag={"snapshot_after_commits": 1},
        network={"up_mbps": 0.01},
    ),
    "late": lossy(
        compute=SLOW, participation={"clients": 8, "cohort": 4, "deadline_s": 0.5, "late": {"max_staleness": 5}}
    ),
    "lies": lossy(faults=[{"fault": "byzantine", "attack": "nan", "fraction": 0.25}, {"fault": "duplicate"}]),
    "forgeries": lossy(
        participation={"clients": 8, "cohort": 3, "deadline_s": 2},
        lag={"snapshot_after_commits": 3, "chunk_bytes": 512, "source": "peer"},
        faults=[{"fault": "hostile", "fraction": 0.5}],
    ),
    "schedule": lossy(algorithm=DECOMFL | {"perturbations": {0: 2, 10: 9}}, stop={"rounds": 40, "bytes": 20_000}),
    "private": scenario(
        algorithm={"name": "decomfl", "arithmetic": "integer", "precision": "int32", "unit_bits": 24},
        participation={"clients": 8, "cohort": 4, "quorum": 4},
        privacy={"clip": 2_000_000, "noise_multiplier": 8},
        stop={"rounds": 40, "epsilon": 1},
    ),
    "fedscalar": lossy(
        compute=SLOW, algorithm={"name": "fedscalar", "perturbations": 3}, lag={"snapshot_after_bytes": 500}
    ),
    "fedavg": lossy(algorithm={"name": "fedavg", "epochs": 1}, compute=SLOW, **DIGITS),
    "outputs": scenario(
        algorithm={"name": "moon", "local_steps": 1}, task={"name": "digits", "model": "cnn"}, verify=False
    ),
    "compressed": scenario(
        algorithm={"name": "scaffold", "local_steps": 1, "compression": {"kind": "qsgd", "levels": 16}}, **DIGITS
    ),
}
SAME = ("simulated_s", "faults", "participation", "lag", "round_times")


def measured(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the figures that do not depend on losses."""
    both = ("messages", "bytes", "scalars", "seeds")
    traffic = {way: {name: summary["traffic"][way][name] for name in both} for way in ("up", "down")}
    refused = {reason: sum(peers.values()) for reason, peers in summary["refusals"].items()}
    figures: dict[str, Any] = {name: summary[name] for name in SAME}
    return figures | traffic | {"catchup": summary["traffic"]["catchup_bytes"], "refused": refused}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_rehearsal_sends_the_messages_of_the_run_to_the_byte(name: str, tmp_path: Path) -> None:
    rehearsed = rehearse(SCENARIOS[name], 60)
    assert rehearsed.is_whole
    run = go(tmp_path / "run", SCENARIOS[name]).summary
    assert measured(rehearsed.summary) == measured(run)
    assert rehearsed.course.bytes[-1] == run["traffic"]["bytes"] and rehearsed.rounds == run["rounds"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_plugins")
def test_an_own_algorithm_that_sends_vectors_is_rehearsed_with_all_of_them(tmp_path: Path) -> None:
    own = _own(tmp_path, {"name": "logged"})
    rehearsed, run = rehearse(own, 60), go(tmp_path / "run", own).summary
    assert run["version"] and run["traffic"]["catchup_bytes"] > run["version"] * 4 * 300
    assert measured(rehearsed.summary) == measured(run)


@pytest.mark.slow
@pytest.mark.usefixtures("no_plugins")
def test_bytes_that_turn_out_to_depend_on_losses_are_an_estimate(tmp_path: Path) -> None:
    """A codec that leaves out zeros, which is all that a rehearsal has."""
    own = _own(tmp_path, {"name": "fedavg", "compression": "nonzero"})
    explained = explain(own, 2.0)
    assert not explained["traffic"]["is_exact"]
    assert [each for each in explained["assumes"] if "the rounds tried out sent" in each]
    plain = explain(_own(tmp_path, {"name": "fedavg"}), 2.0)
    assert plain["traffic"]["is_exact"] and not plain["assumes"]


def _own(folder: Path, algorithm: dict[str, Any]) -> Scenario:
    path = folder / "mine.py"
    path.write_text(OWN)
    load_plugin(path)
    return lossy(algorithm={"local_steps": 1, **algorithm}, stop={"rounds": 40}, verify=False)


OWN = """
from dataclasses import replace
from typing import Literal
import numpy as np
from seedbus.algorithms.dense.base import FedAvg
from seedbus.plugin import Compression

class Logged(FedAvg):
    name: Literal["logged"] = "logged"

    @property
    def facts(self):
        return replace(super().facts, is_dense=False)

class Nonzero(Compression):
    kind: Literal["nonzero"] = "nonzero"

    def encode(self, vector, key):
        at = np.flatnonzero(vector)
        return [at.astype("<u4").tobytes(), vector[at].astype("<f4").tobytes()]

    def decode(self, body, dimension):
        at, values = body
        decoded = np.zeros(dimension, np.float32)
        decoded[np.frombuffer(at, "<u4")] = np.frombuffer(values, "<f4")
        return decoded

    def most_bytes(self, dimension):
        return 8 * dimension + 64
"""


def test_the_bytes_of_commits_that_depend_on_losses_are_estimated(tmp_path: Path) -> None:
    pool = lossy(algorithm={"name": "fedkseed", "smoothing": {0: 0.1, 5: 0.01}}, stop={"rounds": 10})
    guess = forecast.traffic(pool, rehearse(pool, 60))
    sent = go(tmp_path / "run", pool).summary["traffic"]
    assert not guess.is_exact and guess.up == sent["up"]["bytes"]
    assert guess.catchup == pytest.approx(sent["catchup_bytes"], rel=0.1)


def test_of_a_selection_that_looks_at_reports_the_bytes_are_an_estimate() -> None:
    choosy = scenario(participation={"clients": 8, "cohort": 3, "selection": {"policy": "power-of-choice"}})
    assert not forecast.traffic(choosy, rehearse(choosy, 60)).is_exact


def test_of_refusals_that_depend_on_losses_the_bytes_are_an_estimate() -> None:
    def is_exact(**changes: Any) -> bool:
        fault = {"fault": "byzantine", "attack": "scale", "by": 1e30}
        liars = lossy(faults=[fault | changes], stop={"rounds": 2})
        return forecast.traffic(liars, rehearse(liars, 60)).is_exact

    assert not is_exact() and is_exact(probability=0)


def test_the_repair_after_the_last_round_of_a_run_without_a_server_comes_once() -> None:
    gossip = scenario(
        algorithm={"name": "decomfl", "arithmetic": "integer"},
        participation={"clients": 4},
        topology={"kind": "gossip", "graph": "ring"},
        faults=[{"fault": "partition", "clients": [0], "for_s": 30}],
        stop={"rounds": 10},
    )
    begun = rehearse(gossip, 60)
    twice = gossip.model_copy(update={"stop": gossip.stop.model_copy(update={"rounds": 20})})
    cut = Rehearsed(begun.course, begun.summary, begun.around_s, is_whole=False)
    assert begun.summary["simulated_s"] >= 30
    assert forecast.traffic(gossip, begun).simulated_s == begun.summary["simulated_s"]
    assert forecast.traffic(twice, cut).simulated_s == begun.summary["simulated_s"] + 10


@pytest.mark.slow
def test_a_trial_is_the_beginning_of_the_run(tmp_path: Path) -> None:
    whole = try_out(lossy(stop=LONG), 60)
    begun = try_out(lossy(stop=LONG), 0)
    assert (begun.rounds, begun.is_whole, whole.rounds, whole.is_whole) == (1, False, 60, True)
    assert begun.course.bytes == whole.course.bytes[:1]
    assert whole.summary["digest"] == go(tmp_path / "run", lossy(stop=LONG)).digest


@pytest.mark.slow
def test_clients_share_replicas_by_the_round_that_asked_them_last_unless_each_has_its_own() -> None:
    alone = rehearse(scenario(stop=LONG), 60).course
    shared = rehearse(scenario(stop=LONG, verify=False), 60).course
    assert alone.replicas[0] == 3 and alone.replicas[-1] == 8  # those of the first cohort, and of all clients
    assert shared.replicas[0] == 1 and all(most <= 6 for most in shared.replicas)  # 3 of 8 have the newest version
    assert shared.asked == [3] * 60 and shared.lags == alone.lags


@pytest.mark.slow
def test_a_rehearsal_that_was_cut_short_is_continued_by_its_second_half() -> None:
    """Also where the size of a commit changes after the end of the rehearsal."""
    schedule = DECOMFL | {"perturbations": {0: 4, 150: 12}}
    long = lossy(algorithm=schedule, stop={"rounds": 300}, verify=False)
    short = rehearse(long.model_copy(update={"stop": long.stop.model_copy(update={"rounds": 100})}), 60)
    cut = Rehearsed(short.course, short.summary, short.around_s, is_whole=False)
    guess, known = forecast.traffic(long, cut), forecast.traffic(long, rehearse(long, 60))
    assert (guess.is_exact, known.is_exact) == (False, True)
    for name in ("up", "down", "catchup", "simulated_s"):
        assert getattr(guess, name) == pytest.approx(getattr(known, name), rel=0.15), name


HEADERS: dict[str, tuple[dict[str, Any], float]] = {
    "scalars": ({"algorithm": {"name": "feedsign"}}, 0.01),
    "models": (
        {"algorithm": {"name": "fedavg", "local_steps": 1}, "task": {"name": "quadratic", "dimension": 10}},
        1e-3,
    ),
    "nodes": (
        {
            "algorithm": {"name": "decomfl", "arithmetic": "integer", "perturbations": 1},
            "topology": {"kind": "gossip", "graph": "ring"},
            "participation": {"clients": 8},
        },
        0.05,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_grow_with_the_number_of_the_round_are_continued_as_they_grow(name: str) -> None:
    """Rounds have numbers of one byte in the rehearsal, and of up to three in the run."""
    world, accuracy = HEADERS[name]
    long, short = (scenario(**world | {"stop": {"rounds": rounds}, "verify": False}) for rounds in (400, 60))
    begun = rehearse(short, 60)
    guess, known = forecast.traffic(long, replace(begun, is_whole=False)), forecast.traffic(long, rehearse(long, 60))
    assert guess.up == pytest.approx(known.up, rel=0.05 if name == "nodes" else 0)
    assert guess.down == pytest.approx(known.down, rel=accuracy)


@pytest.mark.slow
def test_a_budget_of_bytes_ends_a_rehearsal_that_is_continued() -> None:
    long = lossy(stop={"rounds": 1000, "bytes": 100_000}, verify=False)
    short = rehearse(long.model_copy(update={"stop": long.stop.model_copy(update={"rounds": 100})}), 60)
    guess = forecast.traffic(long, Rehearsed(short.course, short.summary, short.around_s, is_whole=False))
    known = rehearse(long, 60)
    assert guess.rounds == pytest.approx(known.rounds, rel=0.1) and guess.up + guess.down >= 100_000


@pytest.mark.slow
def test_a_limit_of_simulated_time_ends_a_rehearsal_that_is_continued() -> None:
    long = lossy(stop={"rounds": 10**6, "simulated_s": 150}, verify=False)
    short = rehearse(long.model_copy(update={"stop": long.stop.model_copy(update={"rounds": 100})}), 60)
    cut = Rehearsed(short.course, short.summary, short.around_s, is_whole=False)
    guess, known = forecast.traffic(long, cut), forecast.traffic(long, rehearse(long, 60))
    assert guess.rounds == pytest.approx(known.rounds, rel=0.1) and known.is_exact and not guess.is_exact
    assert guess.simulated_s == pytest.approx(150, rel=0.02) and 150 <= known.simulated_s < 151
    assert not forecast.traffic(long.model_copy(update={"clock": "wall"}), rehearse(long, 60)).is_exact
    gossip = load("gossip-digits", ["stop.rounds=100000", "stop.simulated_s=250"])
    begun = rehearse(gossip.model_copy(update={"stop": gossip.stop.model_copy(update={"rounds": 3})}), 60)
    assert gossip.topology is not None
    rounds = math.ceil(250 / gossip.topology.interval_s)
    assert forecast.traffic(gossip, replace(begun, is_whole=False)).rounds == rounds


def test_the_time_of_a_run_that_was_tried_whole_is_that_of_the_trial() -> None:
    small = scenario(verify=False)
    found = forecast.forecast(small, 60)
    assert found.time is not None and found.memory is not None
    assert found.time.tried == 20 and found.time.messages == found.time.work == found.time.replay == 0
    assert found.time.total == pytest.approx(found.time.start + found.time.trial + found.time.evaluation)
    assert found.memory.total >= found.memory.tried > found.memory.least


def test_the_time_of_the_rounds_after_a_trial_is_in_proportion_to_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round asks 3 clients, each evaluates the loss 4 times and folds what it missed: 2 commits in all."""
    long = scenario(stop={"rounds": 23}, evaluation={"every": 5})

    def taking(seconds: list[float], evaluation_s: float = 0) -> Rehearsed:
        course: Any = Course(is_verified=True)
        course.closed_s = np.cumsum(seconds).tolist()
        course.measured_s = course.closed_s[-1] + evaluation_s
        course.bytes, course.asked = [100 * (number + 1) for number in range(len(seconds))], [3] * len(seconds)
        course.lags, course.replicas = [2] * len(seconds), [3] * len(seconds)
        return Rehearsed(course, begun.summary, 2.0, is_whole=len(seconds) == 23)

    begun = rehearse(long, 0)
    # the trial's first round is slow, for it loads kernels, and before it x₀ is evaluated
    monkeypatch.setattr(forecast, "try_out", lambda *_: taking([5.25, 1.0, 1.0], 0.25))
    monkeypatch.setattr(forecast, "rehearse", lambda *_: taking([0.1] * 23))
    monkeypatch.setattr(forecast, "fold_seconds", lambda _: 0.01)
    monkeypatch.setattr(forecast, "cpu_seconds", lambda: 4.0)
    time = forecast.forecast(long, 1).time
    assert time is not None and (time.start, time.trial, time.tried) == (6.0, 7.0, 3)
    assert time.messages == pytest.approx(20 * 0.1) and time.replay == pytest.approx(20 * 2 * 0.01)
    assert time.work == pytest.approx(20 * (1.0 - 0.1 - 2 * 0.01))
    assert time.evaluation == pytest.approx(6 * 0.25), "of x₀, after every fifth round, and of the last"


def test_a_commit_that_holds_three_reports_takes_three_times_as_long_to_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "try_out", lambda of, _: try_out(of, 0))
    monkeypatch.setattr(forecast, "fold_seconds", lambda _: 0.01)
    times = [forecast.forecast(scenario(algorithm=name), 120).time for name in (SHARED, SHARED | {"name": "fedscalar"})]
    one, three = (time.replay if time is not None else 0 for time in times)
    assert one and three == pytest.approx(3 * one)


def test_the_updates_that_a_server_keeps_of_clients_count_as_memory() -> None:
    """Of MIFA's clients a trial of two rounds asks six at most; the others' updates come later."""
    d = 10**5
    keeps = scenario(algorithm={"name": "mifa"}, task={"name": "null", "dimension": d}, verify=False)
    memory = forecast.forecast(keeps, 0).memory
    asked = try_out(keeps, 0).course.clients
    assert 3 < asked <= 6 and memory is not None and memory.total - memory.tried >= 4 * d * (8 - asked)


def test_a_trial_shows_the_reports_of_two_rounds_where_they_are_vectors() -> None:
    """Clients keep what they reported in the last round and in this one, which the first round alone does not show."""
    assert try_out(scenario(algorithm={"name": "fedavg"}, task={"name": "null", "dimension": 9}), 0).rounds == 2
    assert try_out(scenario(task={"name": "null", "dimension": 9}), 0).rounds == 1


def test_the_time_of_folding_a_commit_is_measured_for_reports_of_pairs() -> None:
    for rates in (0.001, 9e36, 1.1e-37):
        pairs = scenario(algorithm={"name": "fedkseed", "perturbations": 3, "local_steps": 2, "learning_rate": rates})
        assert forecast.fold_seconds(pairs) >= 0
    algorithm: Any = pairs.algorithm
    plan = algorithm.plan(0, 0, 0)
    commit, _ = algorithm.aggregate(None, plan, {0: algorithm.example(plan)})
    assert commit.numbers.tolist() == [-1] * 6


def test_the_room_that_memories_take_on_the_disk_is_that_of_the_run(tmp_path: Path) -> None:
    what = scenario(algorithm={"name": "feddyn", "learning_rate": 0.01}, stop={"rounds": 12})
    run(what, tmp_path / "run")
    stored = sum(file.stat().st_size for file in (tmp_path / "run" / MEMORY).glob("*/*"))
    disk = forecast.forecast(what, 0.5).disk
    assert disk.end == stored and disk.most == 2 * stored
    assert forecast.forecast(scenario(), 0).disk == forecast.Disk(0, 0)
    said = explain(what, 0.5)
    assert said["disk"] == {"most": disk.most, "end": disk.end}
    ((_, sentences),) = [row for row in _costs(said) if row[0] == "disk"]
    assert sentences[0].startswith("about 9.") and "of what clients remember" in sentences[0]


def test_a_model_that_fits_into_no_memory_is_a_sentence_with_what_needs_less() -> None:
    huge = scenario(algorithm={"name": "fedavg"}, task={"name": "null", "dimension": 10**12})
    with pytest.raises(DataError, match=r"no memory for 3\.64 TiB more .*; expected algorithm: {name: decomfl"):
        rehearse(huge, 0)


def test_billions_of_rounds_are_added_up_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(self: DeComFL, round: int) -> Work:
        calls.append(round)
        assert len(calls) < 10**6, "every round is asked for"
        return Work(evaluations=4, scalars=4 if round < 2**31 else 8)

    calls: list[int] = []
    endless = scenario(stop={"rounds": 2**32 - 1}, verify=False)
    short = rehearse(endless.model_copy(update={"stop": endless.stop.model_copy(update={"rounds": 20})}), 60)
    cut = Rehearsed(short.course, short.summary, short.around_s, is_whole=False)
    monkeypatch.setattr(DeComFL, "work", work)
    found = forecast.traffic(endless, cut)
    sent, reports = (short.summary["traffic"]["up"][name] / 20 for name in ("bytes", "messages"))
    assert found.rounds == 2**32 - 1
    # a seed is as long as two scalars; round and version have a byte each in the rehearsal, and five later
    expected = (sent - 2 * reports) * (2**31 + 2**31 * 10 / 6) + 2 * 5 * reports * 2**32
    assert found.up == pytest.approx(expected, rel=1e-3)
