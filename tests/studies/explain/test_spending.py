"""The ε that a run will have spent, and the noise for an ε, before the run: against runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from commands import Command
from worlds import go, scenario

from seedbus.agents.policies.participation import Participation
from seedbus.agents.privacy import foreseen
from seedbus.agents.privacy.foreseen import Spending
from seedbus.plugin import Known, Selection, register
from seedbus.scenarios.errors import Exit
from seedbus.scenarios.schema.scenario import Scenario
from seedbus.scenarios.schema.yaml_text import dump
from seedbus.studies.explain import forecast
from seedbus.studies.explain.noise import spent
from seedbus.studies.explain.rehearsal import Rehearsed, rehearse

pytest.importorskip("dp_accounting", reason="privacy needs dp-accounting: pip install 'seedbus[privacy]'")

WHOLE: dict[str, Any] = {"name": "decomfl", "arithmetic": "integer", "precision": "int32", "unit_bits": 24}
CENTRAL: dict[str, Any] = {"clip": 100_000, "noise_multiplier": 5}
SECRET: dict[str, Any] = CENTRAL | {"cohorts": "secret"}
COHORT = {"clients": 30, "cohort": 10, "quorum": 10}
HURRIED = {"clients": 30, "cohort": 10, "quorum": 3, "deadline_s": 0.2}
LOSSES = [{"fault": "drop", "probability": 0.2}]


def private(participation: dict[str, Any] = COHORT, rounds: int = 20, **changes: Any) -> Scenario:
    document = {"algorithm": WHOLE, "participation": participation, "privacy": CENTRAL, "stop": {"rounds": rounds}}
    return scenario(**(document | changes))


PRIVATE = {
    "everybody": private({"clients": 8, "quorum": 8}),
    "drawn": private(),
    "poisson": private(COHORT | {"selection": {"policy": "poisson"}}),
    "hurried": private(HURRIED, faults=LOSSES),
    "secret": private(HURRIED | {"quorum": 1}, faults=LOSSES, privacy=SECRET),
    "budget": private(rounds=60, stop={"rounds": 60, "epsilon": 2}),
}


def forecast_of(what: Scenario, rehearsed: Rehearsed) -> tuple[float, int, forecast.Spent]:
    traffic = forecast.traffic(what, rehearsed)
    found = forecast._spent(what, rehearsed, traffic)
    assert found is not None
    return found.epsilon, traffic.rounds, found


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIVATE)
def test_the_epsilon_that_is_forecast_is_the_one_that_the_run_then_spends(name: str, tmp_path: Path) -> None:
    """After a whole rehearsal; and after one round of it, where the selection alone decides who reports."""
    what = PRIVATE[name]
    summary = go(tmp_path / "run", what).summary
    run = spent(tmp_path / "run")
    epsilon, rounds, found = forecast_of(what, rehearse(what, 60))
    assert (rounds, found.is_exact) == (summary["rounds"], True) and epsilon == pytest.approx(run["epsilon"], rel=1e-12)
    assert found.ends_run == (name == "budget") == (summary["rounds"] < what.stop.rounds)
    cut = rehearse(what, 0)
    assert not cut.is_whole
    epsilon, rounds, found = forecast_of(what, cut)
    assert rounds == summary["rounds"] and found.is_exact == (name != "hurried")
    assert epsilon == pytest.approx(run["epsilon"], rel=1e-12) if found.is_exact else epsilon > run["epsilon"]


@pytest.mark.parametrize("limit", [{"bytes": 100_000}, {"simulated_s": 1.0}], ids=str)
def test_what_a_run_spends_that_a_limit_ends_is_an_estimate_until_all_of_it_is_rehearsed(limit: dict[str, Any]) -> None:
    what = private(stop={"rounds": 50} | limit, network={"latency": 0.05})
    cut, whole = rehearse(what, 0), rehearse(what, 60)
    assert 1 <= cut.rounds < whole.rounds < 50
    assert [forecast_of(what, each)[2].is_exact for each in (cut, whole)] == [False, True]


@pytest.mark.usefixtures("no_plugins")
def test_a_policy_remembers_from_round_to_round_of_a_forecast() -> None:
    @register
    class Touring(Selection):
        """All in turn."""

        policy: Literal["touring"] = "touring"

        def choose(self, members: Sequence[int], count: int, known: Known, seed: int, round: int) -> list[int]:
            first = int(sum(known.memory))
            known.memory = [first + count]
            return sorted(members[each % len(members)] for each in range(first, first + count))

    what = private(COHORT | {"selection": {"policy": "touring"}})
    assert Spending(what, what.privacy).commits(30) == 10  # type: ignore[arg-type]


def test_what_too_many_rounds_spend_is_in_proportion_and_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreseen, "MOST_DRAWN", 110 * 20)  # 20 rounds of 10 clients
    what = private(rounds=2**31)
    found = Spending(what, what.privacy)  # type: ignore[arg-type]
    assert found.is_known(what, 20) and not found.is_known(what, 21)
    assert found.commits(2**30) == pytest.approx(found.commits(20) * 2**30 / 20)
    stop = what.stop.model_copy(update={"epsilon": 100.0})
    assert (
        found.epsilon(found.commits(found.rounds(stop)) + 1) > 100 >= found.epsilon(found.commits(found.rounds(stop)))
    )


@pytest.mark.parametrize("policy", ["uniform", "poisson"])
def test_of_secret_cohorts_nobody_is_drawn_for_a_forecast(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round makes a commit, whoever reports; to draw from millions of clients would take hours."""
    what = private(HURRIED | {"quorum": 1, "selection": {"policy": policy}}, 2**31, privacy=SECRET, faults=LOSSES)
    monkeypatch.setattr(Participation, "draw", None)
    found = Spending(what, what.privacy)  # type: ignore[arg-type]
    assert found.is_known(what, 2**31) and found.commits(2**31) == 2**31


def test_a_policy_that_looks_at_all_clients_is_asked_for_fewer_cohorts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreseen, "MOST_DRAWN", (10 + 30 + 100) * 20)  # 20 rounds, each of a look at all
    what = private(
        {"clients": 3000, "cohort": 10, "selection": {"policy": "poisson"}}, privacy=CENTRAL | {"clip": 1000}
    )
    found = Spending(what, what.privacy)  # type: ignore[arg-type]
    assert found.is_known(what, 20) and not found.is_known(what, 21)


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        PRIVATE["drawn"],
        private(stop={"rounds": 20, "epsilon": 3.0}),
        private(stop={"rounds": 20, "simulated_s": 1.0}, network={"latency": 0.05}),  # ten rounds
        PRIVATE["secret"],
        PRIVATE["hurried"],
    ],
    ids=["drawn", "budget", "timed", "secret", "hurried"],
)
def test_a_run_with_the_noise_that_is_printed_spends_the_epsilon_that_was_wished(
    what: Scenario, seedbus: Command
) -> None:
    Path("plan.yaml").write_text(dump(what.resolved()))
    said = seedbus("explain", "plan.yaml", "privacy", "--target", "epsilon=3")
    setting, _, words = said.out.partition(": ")
    assert said.code == Exit.OK and setting.startswith("privacy.noise_multiplier="), said
    assert seedbus("run", "plan.yaml", "-q", "--set", setting, "--out", "run").code == Exit.OK
    assert words == seedbus("explain", "run", "privacy").out, "of all rounds: stop.epsilon does not end the run"
    # with a budget there has to be room for the last commit's worst case
    assert (2.7 if what.stop.epsilon else 2.97) < spent(Path("run"))["epsilon"] <= 3
    found = json.loads(seedbus("explain", "plan.yaml", "privacy", "--target", "epsilon=3", "--format", "json").out)
    assert found["epsilon"] == pytest.approx(spent(Path("run"))["epsilon"], rel=1e-12) and found["is_exact"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["small.yaml", "--target", "epsilon=4"], "small.yaml: --target epsilon=4 is for a private scenario; give the"),
        (["plan.yaml", "--target", "epsilon=4", "--set", "stop.epsilon=3"], "stop.epsilon is 3, so no run spends 4"),
        (["plan.yaml", "--target", "epsilon=1e-6", "--set", "privacy.delta=1e-300"], "epsilon=1e-06 is out of reach"),
        (["plan.yaml", "--target", "epsilon=1e-3"], "--target epsilon=0.001 needs privacy.noise_multiplier="),
        (["plan.yaml", "--target", "epsilon=x"], "--target epsilon=x: expected epsilon=NUMBER, from 1e-06 to 1e+06"),
        (["plan.yaml", "--target", "loss=1"], "--target loss=1: expected epsilon=NUMBER, from 1e-06"),
        ([".", "--set", "stop.rounds=3"], "--set stop.rounds=3: expected privacy.delta=NUMBER, from 1e-300"),
        ([".", "--set", "privacy.delta=2"], "privacy.delta=2: expected privacy.delta=NUMBER, from 1e-300 to 0.999"),
    ],
)  # fmt: skip
def test_an_epsilon_that_no_noise_gives_is_refused(arguments: Sequence[str], sentence: str, seedbus: Command) -> None:
    Path("plan.yaml").write_text(dump(PRIVATE["drawn"].resolved()))
    found = seedbus("explain", *arguments, "privacy")
    assert found.code == Exit.USAGE and found.out == "" and sentence in found.err


@pytest.mark.slow
def test_it_is_explained_with_the_words_of_the_run(seedbus: Command) -> None:
    Path("plan.yaml").write_text(dump(PRIVATE["budget"].resolved()))
    assert seedbus("run", "plan.yaml", "-q", "--out", "run").code == Exit.OK
    text = " ".join(seedbus("explain", "plan.yaml", "--seconds", "60").out.replace("│", " ").split())
    assert seedbus("explain", "run", "privacy").out.strip() in text and "stop.epsilon (2) ends the run" in text
    found = json.loads(seedbus("explain", "plan.yaml", "--seconds", "0.01", "--format", "json").out)["privacy"]
    assert found.items() >= (spent(Path("run")) | {"is_exact": True, "ends_run": True, "budget": 2.0}).items()
    vain = seedbus("explain", "plan.yaml", "--set", "stop.epsilon=0.1")
    assert vain.code == Exit.USAGE and "stop.epsilon is 0.1, and one commit could cost ε = " in vain.err
