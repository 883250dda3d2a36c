"""What `seedbus study --dry-run` expects of scalar-only runs, against the runs themselves."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import Command
from rich.console import Console
from worlds import HISO, go, lossy, scenario

from seedbus.scenarios.errors import Exit
from seedbus.scenarios.reporting.meter import Work
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.study.estimate import Estimate, Wanted, _dense, estimate, rehearsed
from seedbus.studies.study.pool import Answer, Job, Pool

SENT: dict[str, Any] = {
    "snapshots": lossy(algorithm=HISO, lag={"snapshot_after_commits": 3}, stop={"rounds": 20}),
    "budget": lossy(stop={"rounds": 100, "bytes": 5_000}),
    "epsilon": scenario(
        algorithm={"name": "decomfl", "arithmetic": "integer", "precision": "int32", "unit_bits": 24},
        participation={"clients": 4, "cohort": 2, "quorum": 2},
        privacy={"clip": 2_000_000, "noise_multiplier": 20},
        stop={"rounds": 1_000, "epsilon": 2.5},
    ),
    "none": scenario(
        algorithm={"name": "decomfl", "arithmetic": "integer", "precision": "int32", "unit_bits": 24},
        participation={"clients": 4, "cohort": 2, "quorum": 2},
        privacy={"clip": 2_000_000, "noise_multiplier": 1},
        stop={"rounds": 10, "epsilon": 0.1},
    ),
    "pool": lossy(algorithm={"name": "fedkseed", "perturbations": 5, "smoothing": 0.1}, stop={"rounds": 20}),
    "nodes": scenario(
        algorithm={"name": "decomfl", "arithmetic": "integer"},
        participation={"clients": 4},
        topology={"kind": "gossip", "graph": "ring"},
        faults=[{"fault": "partition", "clients": [0], "for_s": 30}],
    ),
    "time": scenario(stop={"simulated_s": 40}),
}


@pytest.mark.parametrize(
    "name",
    [
        "budget",
        "pool",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("snapshots", "nodes", "epsilon", "none", "time")),
    ],
)
def test_rounds_and_bytes_are_those_of_the_run(name: str, tmp_path: Path) -> None:
    found = go(tmp_path / "run", SENT[name]).summary
    rounds, sent = rehearsed(SENT[name])
    assert rounds == found["rounds"] and sent == pytest.approx(found["traffic"]["bytes"], rel=0.1)


def test_of_dense_runs_time_and_bytes_are_those_of_the_rounds_that_were_tried() -> None:
    """One trial stands for runs that differ in seeds, rounds and rates; one that failed leaves its runs out."""

    class Trials:
        def do(self, jobs: list[Job]) -> Iterator[Any]:
            for job in jobs:
                asked.append(job)
                failed = "it has no data" if job.facts["scenario"]["algorithm"]["name"] == "scaffold" else None
                facts = {
                    "start_s": 5.0,
                    "round_s": 0.5,
                    "round_bytes": 300.0,
                    "evaluation_s": 2.0,
                    "parts": (7.0, 0.01),
                }
                yield SimpleNamespace(job=job, failure=failed, facts=facts)

    def dense(name: str, rounds: int, **changes: Any) -> Scenario:
        algorithm = {"name": name, "learning_rate": changes.pop("rate", 0.1)}
        return scenario(algorithm=algorithm, stop={"rounds": rounds} | changes.pop("stop", {}), **changes)

    asked: list[Job] = []
    scenarios = [
        *(dense("fedavg", 10, seed=seed) for seed in (1, 2)),
        dense("fedavg", 40, stop={"bytes": 4000}),  # after 14 rounds these are sent
        dense("fedavg", 10**6, stop={"simulated_s": 13.5}, network={"latency": 0.5}),  # in the 14th these are over
        dense("fedavg", 10**6, stop={"simulated_s": 7}, clock="wall"),  # of real time, 14 rounds
        *(dense("scaffold", 10, seed=seed) for seed in (1, 2, 3)),
    ]
    pool: Any = Trials()
    about: Any = partial(pytest.approx, rel=1e-5)
    seconds, sent = 5 * 5.0 + 0.5 * (10 + 10 + 14 + 14) + 7.0, 300.0 * (10 + 10 + 14 + 14) + 300.0 * 7 / (0.5 + 2.0 / 5)
    seconds += 2.0 * (3 + 3 + 4 + 4)  # evaluations, every five rounds and at the ends
    runs = [*map(Wanted, scenarios[:-1]), Wanted(scenarios[-1], ["test"])]
    further = [Wanted(dense("fedavg", 20, rate=0.2), ["test", "spectrum"]), Wanted(dense("scaffold", 20))]
    assert estimate(runs, further, pool, lambda done: None) == (
        Estimate(about(seconds), about(sent), 3, "it has no data"),
        Estimate(
            about(seconds + 5.0 + 0.5 * 20 + 2.0 * 5 + 7.0 + 0.01 * 20),
            about(sent + 300.0 * 20),
            4,
            "it has no data",
        ),
    )
    assert [job.facts["parts"] for job in asked] == [["test", "spectrum"], ["test"]]


@pytest.mark.slow
def test_a_dense_run_sends_nothing_after_its_epsilon_is_spent(tmp_path: Path) -> None:
    whole = {"name": "fedavg", "compression": "fixed-point", "weighting": "uniform"}
    ends = scenario(
        algorithm=whole,
        task={"name": "quadratic", "dimension": 3},
        participation={"clients": 4, "cohort": 2, "quorum": 2},
        privacy={"clip": 1000, "noise_multiplier": 9},
        stop={"rounds": 100, "epsilon": 2.5},
    )
    rounds = go(tmp_path / "run", ends).summary["rounds"]
    assert 10 < rounds < 100 and _dense(ends, 300.0) == (rounds, 300.0 * rounds)


@pytest.mark.slow
def test_beyond_its_rehearsal_a_run_is_continued() -> None:
    long, short = (lossy(stop={"rounds": rounds}, verify=False) for rounds in (1000, 100))
    rounds, sent = rehearsed(long)
    assert rounds == 1000 and sent == pytest.approx(10 * rehearsed(short)[1], rel=0.2)


@pytest.mark.parametrize(("option", "is_shown"), [("--jobs=1", True), ("--quiet", False)])
def test_on_a_terminal_a_bar_says_of_how_many_runs_the_cost_is_known(
    option: str, is_shown: bool, seedbus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, known = io.StringIO(), [0.0]

    def do(pool: Pool, jobs: Sequence[Job]) -> Iterator[Answer]:
        yield Answer(jobs[0], {"failed": "too long a name"})
        for job in jobs[1:]:
            found = {"start_s": 1.0, "round_s": 1.0, "round_bytes": 1.0, "evaluation_s": 0.0, "parts": (0.0, 0.0)}
            yield Answer(job, found)

    def advance(work: Work, steps: float = 1) -> None:
        known.append(known[-1] + steps)

    monkeypatch.setattr(Pool, "do", do)
    monkeypatch.setattr(Work, "advance", advance)
    monkeypatch.setattr("seedbus.studies.study.estimate.rehearsed", lambda scenario: (5, 100.0))
    monkeypatch.setattr(
        "seedbus.scenarios.reporting.meter.console", lambda file: Console(file=terminal, force_terminal=True)
    )
    rows = {"algorithm.perturbations": [1, 2, 3]}
    Path("study.yaml").write_text(dump({"base": scenario().resolved(), "grid": rows, "seeds": [1, 2]}))
    said = seedbus("study", "study.yaml", "--dry-run", option)
    assert said.code == Exit.OK and "6 to make\nstudy: about 24 s" in said.err and "without 2 runs" in said.err
    assert known == [0, 2, 3, 4, 5, 6]
    assert ("study: estimating runs" in terminal.getvalue()) == is_shown and "0/6" * is_shown in terminal.getvalue()


@pytest.mark.parametrize("option", ["--dry-run", "--so-far", "--jobs=1"])
def test_an_option_that_a_study_cannot_use_is_told_by_a_dry_run_too(option: str, seedbus: Command) -> None:
    Path("study.yaml").write_text(dump({"base": scenario().resolved(), "seeds": [1]}))
    mistakes = [
        (("--track", "wnadb"), "--track wnadb: "),
        (("--live", "nine"), "--live nine cannot be used (nine is no port); "),
    ]
    for mistake, sentence in mistakes:
        answer = seedbus("study", "study.yaml", "--quiet", option, *mistake)
        assert answer.code != Exit.OK and sentence in answer.err and answer.err.count("\n") == 1
    assert not Path("studies").exists()


class Idle:
    """A pool whose machine computes 10⁹ operations a second, and 10⁶ with one vector; it tries nothing."""

    def do(self, jobs: list[Job]) -> Iterator[Any]:
        for job in jobs:
            assert job.do == "rates"
            yield SimpleNamespace(job=job, failure=None, facts={"flops": 1e9, "alone": 1e6, "coordinates": 1e8})


@pytest.mark.parametrize(
    ("dataset", "batching", "tokens"), [("sst2", "padded", 45), ("sst2", "packed", 18), ("squad", "padded", 420)]
)
def test_a_language_model_is_estimated_from_its_shapes_with_evaluations_and_instruments(
    dataset: str, batching: str, tokens: int
) -> None:
    rounds, clients, perturbations, batch, every = 100, 2, 5, 16, 10
    task = {"name": "language-model", "model": "facebook/opt-1.3b", "dataset": dataset, "batch_size": batch}
    task |= {"batching": batching}
    run = scenario(
        task=task | {"answer_tokens": 8},
        algorithm={"name": "decomfl", "perturbations": perturbations},
        participation={"clients": 8, "cohort": clients},
        evaluation={"every": every},
        stop={"rounds": rounds},
    )
    pool: Any = Idle()
    plain, most = estimate([Wanted(run)], [Wanted(run, ["train", "fairness:accuracy"])], pool, lambda done: None)
    answers, tested = {"sst2": (2, 872), "squad": (1, 1000)}[dataset]
    layers = 24 * 12 * 2048**2
    each = (2 * layers * tokens + 4 * 24 * 2048 * tokens**2) / 1e9  # seconds
    drawn = perturbations * run.dimension / 1e8
    sample = answers * each + (8 * (2 * layers + 4 * 24 * 2048) / 1e6 if dataset == "squad" else 0)
    seconds = (
        rounds * (clients * (perturbations + 1) * batch * each + 3 * drawn) + (1 + rounds // every) * tested * sample
    )
    assert plain.seconds == pytest.approx(seconds) and plain.flops == 1e9
    measured = (tested + 8 * 1000 + tested) * sample + rounds * drawn
    assert most.seconds - 2 * plain.seconds == pytest.approx(measured)
    assert plain.bytes == pytest.approx(rehearsed(run)[1])


@pytest.mark.slow
def test_a_dry_run_of_a_language_model_needs_neither_its_weights_nor_its_data(
    seedbus: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SEEDBUS_DATA", str(tmp_path))
    said = seedbus("study", "figures/hiso-table-2-sst2-1.3b", "--dry-run")
    found = re.search(r": about ([\d,.]+) days to .* language models .* at (\d+) GFLOP/s as measured", said.err)
    assert said.code == Exit.OK and found and 4 < float(found[1].replace(",", "")) < 4e4 and int(found[2]) > 0


@pytest.mark.slow
def test_a_dry_run_counts_the_time_of_instruments_and_evaluations(seedbus: Command) -> None:
    """The Hessian of 1,658 coordinates and the model of each client take most of the time that these runs take."""
    base = {"task": {"name": "digits", "model": "cnn"}, "algorithm": {"name": "fedavg", "learning_rate": 0.1}}
    base |= {"participation": {"clients": 10, "cohort": 2}, "evaluation": {"every": 5}, "stop": {"rounds": 5}}
    seconds = list[float]()
    for ask in ({}, {"analysis": ["kappa", "worst_tenth"], "splits": ["train"]}):
        Path("own.yaml").write_text(dump({"base": base, "seeds": [1, 2, 3], "ask": ask}))
        said = seedbus("study", "own.yaml", "--dry-run", "--out", f"of-{len(seconds)}")
        found = re.search(r"own: about ([\d,.]+) (s|min) in", said.err)
        assert found, said.err
        seconds.append(float(found[1]) * (60 if found[2] == "min" else 1))
    assert seconds[1] > 1.5 * seconds[0]


def test_a_dry_run_says_how_much_of_the_disk_what_clients_remember_takes(seedbus: Command) -> None:
    base = scenario(algorithm={"name": "feddyn", "learning_rate": 0.01}, stop={"rounds": 12}).resolved()
    Path("own.yaml").write_text(dump({"base": base, "seeds": [1, 2]}))
    said = seedbus("study", "own.yaml", "--dry-run")
    vectors = 2 * 8 * 4 * 300  # two runs, eight clients, float32
    found = re.search(r", about ([\d.]+) kB on the disk of what clients remember", said.err)
    assert found is not None and 1.0 <= 1000 * float(found[1]) / vectors < 1.1, said.err
