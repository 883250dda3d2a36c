"""`seedbus stress`: its scenarios are valid, and it finds injected failures and shrinks them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from processes import is_alive, kill, seedbus, wait_for
from typer.testing import CliRunner
from worlds import scenario

from seedbus.agents.messages import Evaluation
from seedbus.agents.privacy.settings import Privacy
from seedbus.agents.refusals import Refusals
from seedbus.agents.server.round import Round
from seedbus.agents.server.rounds import Rounds
from seedbus.algorithms.aggregation.rules import RULES
from seedbus.algorithms.dense.channels.contract import CHANNELS
from seedbus.algorithms.dense.compression.contract import CODECS
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.algorithms.scalar_only.hiso import HiSo
from seedbus.bus import Kind
from seedbus.bus.clock import wall_seconds
from seedbus.cli.main import app
from seedbus.cli.stress import examined
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.faults.base import FAULTS
from seedbus.scenarios.running.replay import Replayed, replay
from seedbus.scenarios.schema.discovery import ALGORITHMS
from seedbus.scenarios.schema.loading import load, validate
from seedbus.studies.stress.fault_files import files
from seedbus.studies.stress.invariants import Broken, check_deceived, check_run, is_late
from seedbus.studies.stress.random_scenarios import document
from seedbus.studies.stress.stress import examine, shrink
from seedbus.studies.study import pool


@functools.cache
def drawn(seed: int) -> dict[str, Any]:
    """The scenario of a seed, which all tests of what is drawn look at."""
    return document(seed)


@pytest.mark.slow
def test_a_seed_is_a_scenario_and_always_the_same() -> None:
    documents = [drawn(seed) for seed in range(300)]
    assert documents[:50] == [document(seed) for seed in range(50)]
    for each in documents:
        validate(each, each["name"])
    assert len({str(each) for each in documents}) == 300


@pytest.mark.slow
def test_every_fault_is_drawn() -> None:
    assert {fault["fault"] for seed in range(400) for fault in drawn(seed)["faults"]} == set(FAULTS.all())


@pytest.mark.slow
def test_secret_cohorts_are_drawn_only_with_what_they_accept(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="privacy needs dp-accounting: pip install 'seedbus[privacy]'")
    secret = [each for each in map(drawn, range(1000)) if each.get("privacy", {}).get("cohorts") == "secret"]
    policies = {each["participation"].get("selection", {}).get("policy", "uniform") for each in secret}
    assert policies == {"uniform", "poisson"}
    for each in secret:
        for name, text in files(each).items():
            (tmp_path / name).write_text(text)
        validate(each, each["name"], tmp_path)


@pytest.mark.slow
def test_every_codec_rule_and_mechanism_is_drawn_and_every_way_to_end() -> None:
    documents = [drawn(seed) for seed in range(1000)]
    algorithms = [each["algorithm"] for each in documents]
    codecs = [each["compression"] for each in algorithms if each.get("compression", "fixed-point") != "fixed-point"]
    rules = [each["aggregation"] for each in algorithms if "aggregation" in each]
    assert {each["kind"] for each in codecs} == set(CODECS.all())
    assert {each if isinstance(each, str) else each["rule"] for each in rules} == set(RULES.all()) - {"mean"}
    assert {each["channel"]["kind"] for each in algorithms if "channel" in each} == set(CHANNELS.all())
    private = [Privacy.model_validate(each["privacy"]) for each in documents if "privacy" in each]
    assert {(each.mechanism, each.cohorts) for each in private} == {
        *(("central", "public"), ("central", "secret"), ("distributed", "public"))
    }
    assert {name for each in documents for name in each["stop"]} == {
        *("rounds", "diverged", "simulated_s", "bytes", "target", "epsilon")
    }
    assert {name for each in documents for name in each} >= {"client_groups", "mask", "partition"}
    assert {each["topology"]["graph"] for each in documents if "topology" in each} == {
        *("complete", "edges", "regular", "ring")
    }


@pytest.mark.slow
def test_the_files_that_faults_follow_are_accepted_and_follow_from_the_document(tmp_path: Path) -> None:
    kinds = set()
    for seed in range(300):
        texts = files(drawn(seed))
        assert texts == files(document(seed))
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        kinds |= {name.removeprefix(f"stress-{seed}-") for name in texts}
        assert len(validate(drawn(seed), "a seed", tmp_path).check()) == len(texts)
    assert kinds == {"trace.csv", "link-trace.csv", "device-speeds.csv"}


@pytest.mark.slow
def test_every_algorithm_that_needs_no_network_is_drawn_and_every_arithmetic_that_it_takes() -> None:
    kinds: dict[str, Any] = dict(ALGORITHMS.all())
    algorithms = [drawn(seed)["algorithm"] for seed in range(2_000)]
    assert {each["name"] for each in algorithms} == {
        name for name, kind in kinds.items() if not kind().facts.needs_outputs
    }
    narrow = {each["name"] for each in algorithms if each.get("arithmetic") == "bfloat16"}
    fields = {name: kind.model_fields.get("arithmetic") for name, kind in kinds.items()}
    assert narrow == {name for name, field in fields.items() if field and "bfloat16" in get_args(field.annotation)}


def hostile_seeds(most: int) -> list[int]:
    """Return the first `most` seeds whose clients break the protocol."""
    seeds = (seed for seed in range(1000) if any(fault["fault"] == "hostile" for fault in document(seed)["faults"]))
    return list(itertools.islice(seeds, most))


def test_memory_without_bounds_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory_use = iter([0, 2**30, 2**30])
    monkeypatch.setattr("seedbus.studies.stress.invariants.peak_memory", lambda: next(memory_use, 0))
    monkeypatch.setattr("seedbus.studies.stress.stress.shrink", lambda failing, still_fails: failing)
    assert "the run took 1024 MiB more" in str(examine(3, tmp_path).problem)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [*range(6), *hostile_seeds(2), 8])  # 8: without a server
def test_the_invariants_of_every_run_hold(seed: int, tmp_path: Path) -> None:
    verdict = examine(seed, tmp_path)
    assert verdict.problem is None


@pytest.mark.slow
def test_the_invariants_hold_for_six_seeds_more(tmp_path: Path) -> None:
    """The page of faults runs another ten."""
    verdicts = [examine(seed, tmp_path) for seed in range(1000, 1006)]
    assert [(verdict.seed, verdict.problem) for verdict in verdicts if verdict.problem] == []


@pytest.mark.soak
def test_the_invariants_hold_for_five_thousand_seeds(tmp_path: Path) -> None:
    for seed in range(10_000, 15_000):
        verdict = examine(seed, tmp_path)
        assert verdict.problem is None, (seed, verdict.problem, verdict.smallest)


def first_failure(tmp_path: Path) -> Any:
    """Return the first failure among the first 40 seeds, or None."""
    return next((verdict for verdict in (examine(seed, tmp_path) for seed in range(40)) if verdict.problem), None)


@pytest.mark.slow
def test_a_bit_that_one_client_has_wrong_is_found_and_made_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for algorithm in (DeComFL, HiSo):
        local = algorithm.local_together

        def wrong(self: Any, replica: Any, *others: Any, local: Any = local) -> Any:
            if replica.version == 3:
                replica.x[0] = np.nextafter(replica.x[0], np.float32(9))
            return local(self, replica, *others)

        monkeypatch.setattr(algorithm, "local_together", wrong)
    served = (seed for seed in range(80) if "topology" not in document(seed))  # without a server it takes a fault, too
    verdict = next(verdict for verdict in (examine(seed, tmp_path) for seed in served) if verdict.problem)
    assert "diverged" in str(verdict.problem) and verdict.smallest is not None
    assert verdict.smallest["faults"] == [] and verdict.smallest["stop"]["rounds"] <= 6


@pytest.mark.slow
def test_a_state_that_a_resumed_run_forgets_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack = Rounds.unpack

    def forgetful(self: Rounds, packed: Any) -> None:
        unpack(self, packed)
        self._known.reports.clear()
        self._known.worth.clear()
        self._overdue._rounds.clear()

    monkeypatch.setattr(Rounds, "unpack", forgetful)
    verdict = first_failure(tmp_path)
    assert verdict is not None and "resumed" in verdict.problem


def first_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the first problem among the first 20 seeds whose clients break the protocol, or an empty string."""
    monkeypatch.setattr("seedbus.studies.stress.stress.shrink", lambda failing, still_fails: failing)
    monkeypatch.setattr("seedbus.studies.stress.invariants.DECEIVED_EVERY", 2**40)
    problems = (examine(seed, tmp_path).problem for seed in hostile_seeds(20))
    return next((problem for problem in problems if problem), "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [*hostile_seeds(5), *(pytest.param(seed, marks=pytest.mark.soak) for seed in hostile_seeds(30)[5:])],
)
def test_clients_that_break_the_protocol_change_nothing_of_the_others(seed: int, tmp_path: Path) -> None:
    assert examine(seed, tmp_path).problem is None


@pytest.mark.slow
def test_a_server_that_counts_what_comes_from_elsewhere_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = Round.admit

    def trusting(self: Round, envelope: Any) -> None:
        admit(self, envelope._replace(base=self.plan.version))

    monkeypatch.setattr(Round, "admit", trusting)
    assert "where they are silent" in first_problem(tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_server_that_passes_on_keys_of_no_use_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="secure aggregation needs cryptography: pip install 'seedbus[secure]'")
    algorithm = {"name": "decomfl", "arithmetic": "integer", "precision": "int32", "perturbations": 2}
    masked = document(5) | {
        "task": {"name": "quadratic", "dimension": 50},
        "algorithm": algorithm | {"learning_rate": 1e-3},
        "participation": {"clients": 8, "quorum": 2, "deadline_s": 5.0},
        "faults": [{"fault": "hostile", "fraction": 0.3, "probability": 0.5}],
        "stop": {"rounds": 20, "diverged": "continue"},
    }
    masked = {name: masked[name] for name in ("name", "task", "algorithm", "participation", "faults", "stop", "verify")}
    masked["secure_aggregation"] = {"threshold": 0.667}
    monkeypatch.setattr("seedbus.studies.stress.stress.document", lambda seed: masked | {"seed": seed})
    monkeypatch.setattr("seedbus.studies.stress.stress.shrink", lambda failing, still_fails: failing)
    assert not any(examine(seed, tmp_path).problem for seed in range(4))
    monkeypatch.setattr("seedbus.agents.secure.secure_round.check_public", lambda public: None)
    assert any("bad-ask" in str(examine(seed, tmp_path).problem) for seed in range(8))


@pytest.mark.slow
def test_a_refusal_that_is_reported_and_not_counted_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_reason = Refusals.by_reason

    def forgetful(self: Refusals) -> dict[str, dict[str, int]]:
        return {reason: by for reason, by in by_reason(self).items() if reason != "malformed"}

    monkeypatch.setattr(Refusals, "by_reason", forgetful)
    assert "refusals are counted as" in first_problem(tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_server_that_an_evaluator_can_break_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(self: Evaluation, *_: object) -> None:
        assert all(map(str.isidentifier, self.metrics)), "what is shown is code"

    monkeypatch.setattr(Evaluation, "check", trusting)
    with pytest.raises(AssertionError, match="what is shown is code"):
        check_deceived(scenario(evaluation={"every": 1}, stop={"rounds": 100}), tmp_path)


def test_shrinking_leaves_out_what_does_not_matter() -> None:
    documents = document(5)
    documents["faults"] = [{"fault": "drop"}, {"fault": "delay"}, {"fault": "crash"}]
    smallest = shrink(
        documents, lambda smaller: {"fault": "delay"} in smaller["faults"] and smaller["stop"]["rounds"] > 4
    )
    assert smallest["faults"] == [{"fault": "delay"}] and smallest["stop"]["rounds"] == 5
    assert "network" not in smallest and set(smallest["participation"]) <= {"clients", "cohort", "quorum", "deadline_s"}


@pytest.mark.soak
def test_the_command_tells_seeds_rounds_and_faults(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["stress", "--seed", "7", "--scenarios", "3", "--jobs", "1"])
    assert done.exit_code == Exit.OK, done.output
    assert "seeds 7 to 9: 3 scenarios" in done.output and "no failure" in done.output


def test_the_command_writes_the_scenario_of_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seedbus.cli import stress as cli_stress
    from seedbus.studies.stress.stress import Verdict

    smallest = document(3) | {"faults": [{"fault": "device-speeds", "file": "stress-3-device-speeds.csv"}]}
    failed = Verdict(3, problem="Broken: it is", smallest=smallest)
    monkeypatch.setattr(cli_stress, "examined", lambda *_: iter([failed]))
    done = CliRunner().invoke(app, ["stress", "--seed", "3", "--scenarios", "1", "--out", str(tmp_path / "kept")])
    assert done.exit_code == Exit.DIVERGED and "seed 3: Broken: it is" in done.output
    kept = load(tmp_path / "kept" / "stress-3.yaml")
    assert kept.seed == document(3)["seed"] and list(kept.check()) == ["faults.0.file"]


def test_a_rebuilt_model_that_is_not_the_one_that_was_evaluated_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_sent(folder: Path) -> Replayed:
        found = replay(folder)
        return dataclasses.replace(found, point=found.replica.x)

    small = scenario(algorithm={"name": "fedacg"}, task={"name": "quadratic", "dimension": 20}, stop={"rounds": 3})
    (tmp_path / "runs").mkdir()
    check_run(small.resolved(), tmp_path / "runs")
    monkeypatch.setattr("seedbus.studies.stress.invariants.replay", as_sent)
    with pytest.raises(Broken, match=r"the model that the journal rebuilds .* is measured, and the run ended with"):
        check_run(small.resolved(), tmp_path / "runs")


def turn_for_ever(*_: object) -> Any:
    while True:
        time.sleep(0.001)


@pytest.mark.slow
def test_what_is_in_hand_is_cut_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbus.studies.stress.invariants.replay", turn_for_ever)
    verdict = examine(3, tmp_path, wall_seconds() + 0.5)
    assert verdict.is_cut and verdict.problem is None


def test_a_run_that_hangs_is_a_failure_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seedbus.studies.stress.stress.RUN_S", 0.3)
    monkeypatch.setattr("seedbus.studies.stress.stress.SHRINK_S", 0.1)
    monkeypatch.setattr("seedbus.agents.server.server.Server._keep", lambda *_: turn_for_ever())
    verdict = examine(3, tmp_path)
    assert verdict.problem == "Broken: the run has not ended after 0 s" and verdict.smallest == document(3)


@pytest.mark.usefixtures("cold_studies")
def test_a_scenario_that_ends_its_process_is_a_failure_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mortal.py").write_text("""if input(): raise SystemExit(9)""")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(pool, "WORKER", "mortal")
    verdicts = list(examined(3, 2, None, 1))
    assert [(each.seed, each.smallest) for each in verdicts] == [(3, document(3)), (4, document(4))]
    assert {each.problem for each in verdicts} == {"its process ended with exit code 9"}


def marked(mark: bytes) -> list[int]:
    """Return the ids of the live processes that have this mark in their environment."""
    first_failure = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes() and is_alive(int(path.parent.name)):
                first_failure.append(int(path.parent.name))
        except OSError:  # the process has ended or belongs to another user
            pass
    return first_failure


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_no_process_of_the_command_outlives_it(tmp_path: Path, by: signal.Signals) -> None:
    mark = f"STRESS_TEST={tmp_path}"
    environment: dict[str, Any] = {**os.environ, "STRESS_TEST": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = seedbus("stress", "--minutes", 10, "--jobs", 2, env=environment)
    wait_for(lambda: any(tmp_path.rglob("run")))  # a scenario is running
    assert len(marked(mark.encode())) >= 2
    kill(command.pid, by)
    output, errors = command.communicate()
    wait_for(lambda: not marked(mark.encode()))
    assert "Traceback" not in errors
    if by == signal.SIGINT:
        assert command.returncode == Exit.INTERRUPTED and "scenarios" in output and "no failure" in output
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_ends_with_its_minutes(tmp_path: Path) -> None:
    command = seedbus("stress", "--minutes", 0.1, "--jobs", 2)
    output, errors = command.communicate()
    assert command.returncode == Exit.OK and "no failure" in output, output + errors


def test_a_question_under_way_when_a_round_closed_is_found_by_its_arrival() -> None:
    """The end of a masked run that is resumed there depends on secrets that nobody stores."""
    rows = [(Kind.ASK, 0, 5, 90), (Kind.PLAN, 0, 50, 60), (Kind.REPORT, 0, 60, 110), (Kind.ASK, 1, 100, 120)]
    ledger = dict(zip(("kind", "round", "sent_ns", "arrived_ns"), np.array(rows).T, strict=True))
    assert not is_late(ledger, 1) and not is_late(ledger, 2)
    ledger["arrived_ns"][0] = 101
    assert is_late(ledger, 1) and is_late(ledger, 2) and not is_late(ledger, 3)
