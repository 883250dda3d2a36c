"""Whole runs with differential privacy: the same bits everywhere, and an ε that follows from the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner
from worlds import DECOMFL, scenario

from seedbus.agents.feature import bases
from seedbus.cli.main import app
from seedbus.scenarios.errors import ScenarioError
from seedbus.scenarios.reporting.results import Results
from seedbus.scenarios.reporting.run_facts import rows
from seedbus.scenarios.run_folder import figures_of
from seedbus.scenarios.running.replay import replay
from seedbus.scenarios.running.run import run
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.without_effect import caveats
from seedbus.studies.explain.noise import spent

pytest.importorskip("dp_accounting", reason="privacy needs dp-accounting: pip install 'seedbus[privacy]'")

WHOLE: dict[str, Any] = DECOMFL | {"momentum": 0.0, "arithmetic": "integer", "precision": "int32"}
DENSE: dict[str, Any] = {"name": "fedavg", "local_steps": 2, "learning_rate": 0.05, "compression": "fixed-point"}
DENSE |= {"weighting": "uniform"}
CROWD: dict[str, Any] = {"clients": 8, "cohort": 5, "quorum": 2, "deadline_s": 2.0}
MASKED: dict[str, Any] = {"secure_aggregation": {}}
LOSSES = [{"fault": "drop", "probability": 0.1}]
CENTRAL = {"clip": 100_000, "noise_multiplier": 1.5}
DISTRIBUTED = CENTRAL | {"mechanism": "distributed"}
SECRET = CENTRAL | {"cohorts": "secret"}
POISSON: dict[str, Any] = {"selection": {"policy": "poisson"}}
FEW: dict[str, Any] = {"clients": 8, "cohort": 2} | POISSON


def private(settings: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    document = {"algorithm": WHOLE, "participation": CROWD, "faults": LOSSES, "privacy": settings or CENTRAL}
    if settings is not None and settings.get("mechanism") == "distributed":
        pytest.importorskip(
            "cryptography", reason="secure aggregation needs cryptography: pip install 'seedbus[secure]'"
        )
        document["secure_aggregation"] = {}
    return scenario(**(document | changes))


def recorded(results: Results) -> dict[int, float]:
    """What the server wrote: rounds that were over → ε."""
    return {line["round"] + 1: line["epsilon"] for line in results.lines if line["version"]}


@pytest.mark.slow
def test_the_epsilon_that_was_recorded_is_the_one_that_the_journal_gives(tmp_path: Path) -> None:
    results = run(private(), tmp_path / "run")
    epsilons = figures_of(tmp_path / "run")["epsilon"]
    assert recorded(results) == {over: epsilons[over - 1] for over in recorded(results)} and len(recorded(results)) > 2
    assert results.rounds["epsilon"].tolist() == epsilons == sorted(epsilons)
    assert results.summary["metrics"]["epsilon"] == spent(tmp_path / "run")["epsilon"] == epsilons[-1] > 0
    assert results.lines[0]["epsilon"] == 0
    answer = CliRunner().invoke(
        app, ["explain", str(tmp_path / "run"), "privacy", "--set", "privacy.delta=0.001", "--format", "json"]
    )
    assert 0 < json.loads(answer.stdout)["epsilon"] < epsilons[-1]
    assert results.digest == replay(tmp_path / "run").digest
    assert results.digest != run(private(CENTRAL | {"noise": "system"}), tmp_path / "other").digest
    for command, part in (("explain", ["privacy"]), ("report", [])):
        for folder, is_told in (("run", True), ("other", False)):
            said = CliRunner().invoke(app, [command, str(tmp_path / folder), *part]).stdout
            assert ("noise keyed by the seed: it protects nobody" in said) == is_told, said


@pytest.mark.parametrize("settings", [CENTRAL, DISTRIBUTED], ids=["central", "distributed"])
@pytest.mark.parametrize("algorithm", [WHOLE, DENSE], ids=["scalars", "vectors"])
def test_masked_reports_with_noise_have_the_sum_of_plain_reports_with_the_same_noise(
    tmp_path: Path, algorithm: dict[str, Any], settings: dict[str, Any]
) -> None:
    vanished = [{"fault": "drop", "kind": "report", "clients": [4]}]  # whose masks the others then recover
    crowd = CROWD | {"deadline_s": 60.0}
    changes = {"stop": {"rounds": 8}, "faults": vanished, "participation": crowd, "algorithm": algorithm}
    masked = private(settings, **changes, **MASKED)
    plain = masked.model_copy(update={"secure_aggregation": None})
    assert run(masked, tmp_path / "masked").digest == run(plain, tmp_path / "plain").digest
    assert spent(tmp_path / "masked")["epsilon"] > 0


@pytest.mark.parametrize("algorithm", [WHOLE, DENSE], ids=["scalars", "vectors"])
def test_a_secret_poisson_cohort_shows_in_no_commit_how_many_are_in_it(
    tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    """Each round makes a commit, of noise alone if it asks nobody, and the sum is divided by m, 2 here."""
    changes: dict[str, Any] = {"algorithm": algorithm, "participation": FEW, "faults": [], "seed": 1}
    secret = run(private(SECRET, **changes, stop={"rounds": 12}), tmp_path / "secret")
    public = run(private(CENTRAL, **changes, stop={"rounds": 12}), tmp_path / "public")
    asked = np.bincount(secret.history.asked.round, minlength=12)
    assert (asked == np.bincount(public.history.asked.round, minlength=12)).all()
    assert asked[0] == 4 and asked[11] == 0
    assert secret.summary["version"] == 12 and public.summary["version"] == 11
    for name, settings in (("by m", SECRET), ("by n", CENTRAL)):
        run(private(settings, **changes, stop={"rounds": 1}), tmp_path / name)
    start, by_two, by_four = (
        replay(tmp_path / name, round).point.astype(float) for name, round in (("by m", 0), ("by m", 1), ("by n", 1))
    )
    assert np.abs((by_two - start) - 2 * (by_four - start)).max() < 1e-4 * np.abs(by_two - start).max()
    epsilons = figures_of(tmp_path / "secret")["epsilon"]
    assert len(epsilons) == 12 and (np.diff(epsilons) > 0).all() and recorded(secret)[12] == epsilons[-1]
    assert secret.digest == replay(tmp_path / "secret").digest


@pytest.mark.parametrize("algorithm", [WHOLE, DENSE], ids=["scalars", "vectors"])
def test_a_secret_uniform_cohort_shows_in_no_commit_how_many_reports_were_lost(
    tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    lost = {"fault": "drop", "kind": "report", "clients": [0, 1, 2, 5]}
    crowd = {"clients": 8, "cohort": 2, "deadline_s": 2.0}
    changes: dict[str, Any] = {"algorithm": algorithm, "participation": crowd, "faults": [lost], "seed": 1}
    secret = run(private(SECRET, **changes, stop={"rounds": 12}), tmp_path / "secret")
    came = np.bincount(secret.history.reported.round, minlength=12)
    assert came[0] == 1 and 0 in came and 2 in came
    assert secret.summary["version"] == 12
    epsilons = figures_of(tmp_path / "secret")["epsilon"]
    assert len(epsilons) == 12 and (np.diff(epsilons) > 0).all() and recorded(secret)[12] == epsilons[-1]
    with pytest.raises(ScenarioError, match=r"privacy\.delta=1e-13: at least 1e-12 is accepted for its cohorts"):
        spent(tmp_path / "secret", 1e-13)
    for name, settings in (("by m", SECRET), ("by n", CENTRAL)):
        run(private(settings, **changes, stop={"rounds": 1}), tmp_path / name)
    start, by_two, by_one = (
        replay(tmp_path / name, round).point.astype(float) for name, round in (("by m", 0), ("by m", 1), ("by n", 1))
    )
    assert np.abs(2 * (by_two - start) - (by_one - start)).max() < 1e-4 * np.abs(by_one - start).max()


def test_reports_say_how_cohorts_are_drawn_and_which_rounds_make_a_commit() -> None:
    secret, public = (private(settings, participation=FEW, faults=[]) for settings in (SECRET, CENTRAL))
    said = [dict(rows(what, {}))["clients"] for what in (secret, public, private())]
    assert said == [
        "8, about 2 asked each round, each round makes a commit",
        "8, about 2 asked each round, a commit needs 1 report",
        "8, 5 asked each round, a commit needs 2 reports",
    ]
    terms = "noise keyed by the seed: it protects nobody"
    assert bases({"one": secret, "two": public}) == [
        f"ε is for δ = 1e-05 (central noise, secret Poisson cohorts; {terms}): one",
        f"ε is for δ = 1e-05 (central noise, public cohorts; {terms}): two",
    ]


def test_a_poisson_cohort_of_all_clients_has_an_effect_on_epsilon_where_cohorts_are_secret_alone() -> None:
    everybody: dict[str, Any] = {"participation": {"clients": 8} | POISSON, "faults": []}
    idle = "participation.selection has no effect: each round asks all 8 clients"
    said = [idle in caveats(private(settings, **everybody)) for settings in (CENTRAL, SECRET)]
    assert said == [True, False]


def test_a_run_ends_before_the_commit_that_could_exceed_its_budget(tmp_path: Path) -> None:
    results = run(private(stop={"rounds": 50, "epsilon": 6.0}), tmp_path / "run")
    assert 0 < results.summary["rounds"] < 50 and "one more commit could exceed 6" in results.summary["reason"]
    assert 4.0 < results.summary["metrics"]["epsilon"] <= 6.0


def test_a_client_that_cannot_measure_reports_zeros_and_no_round_tells_who_it_was(tmp_path: Path) -> None:
    explosive = WHOLE | {"learning_rate": 1e4, "unit_bits": 28}  # numbers have more than 32 bits
    for algorithm, reason in ((explosive, "overflow"), (DENSE | {"learning_rate": 1e30}, "not-finite")):
        plain = run(private(algorithm=algorithm, privacy=None, stop={"rounds": 4}), tmp_path / f"plain-{reason}")
        hidden = run(private(algorithm=algorithm, stop={"rounds": 4}), tmp_path / f"hidden-{reason}")
        assert plain.summary["refusals"][reason] and plain.summary["version"] == 0
        assert reason not in hidden.summary["refusals"] and hidden.summary["version"] == 4


@pytest.mark.parametrize("mechanism", ["central", "distributed"])
def test_noise_is_as_fine_and_a_sum_as_large_as_they_may_be(mechanism: str) -> None:
    """A commit has at least 4 reports, whose shares of noise are all of it, and at most 6: so many a round asks."""
    crowd = {"clients": 8, "cohort": 6, "quorum": 4}

    def is_accepted(clip: int, delta: float = 1e-5, crowd: Any = crowd) -> bool:
        settings = {"mechanism": mechanism, "clip": clip, "noise_multiplier": 2, "delta": delta}
        try:
            private(settings, participation=crowd, faults=[])
        except ScenarioError:
            return False
        return True

    least = 8 if mechanism == "distributed" else 4  # σ of a draw is 2·C, or C with a share of a quarter of the variance
    most = (2**31 - 1) // (6 + (6 * 14 if mechanism == "distributed" else 14 * 2))
    assert [is_accepted(clip) for clip in (least - 1, least, most, most + 1)] == [False, True, True, False]
    assert not is_accepted(1000, delta=1 / 8) and is_accepted(1000, delta=0.124), "below 1/N"
    assert not is_accepted(1000, delta=1 / 49, crowd=crowd | {"clients": 49}), "49 times 1/49 is rounded to below 1"


def test_a_run_without_privacy_has_no_epsilon(tmp_path: Path) -> None:
    run(private(privacy=None, stop={"rounds": 1}), tmp_path / "run")
    with pytest.raises(ScenarioError, match="its scenario has no privacy"):
        spent(tmp_path / "run")
    told = [
        CliRunner().invoke(app, ["explain", str(each), "privacy"])
        for each in (tmp_path / "run", tmp_path / "run" / "scenario.yaml")
    ]
    assert [each.exit_code for each in told] == [0, 0] and told[0].stdout == told[1].stdout != ""
