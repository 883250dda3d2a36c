"""Byzantine clients: their reports, which are the same in every process, and the refusal of invalid scalars."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from worlds import DECOMFL, HISO, go, scenario

from seedbus.agents import messages
from seedbus.agents.client.client_spec import ClientSpec
from seedbus.agents.client.tampering import HONEST, Tamper, Tampering
from seedbus.agents.client.worker import Followers
from seedbus.agents.observer import NullObserver
from seedbus.agents.seeds import of_directions
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import HOST, Kind, Offer, decode, encode
from seedbus.discovery import PluginError
from seedbus.models import Iid
from seedbus.models.tasks.null import Null
from seedbus.models.tasks.quadratic import Quadratic
from seedbus.scenarios.faults.byzantine import Byzantine

ALGORITHM: Any = DeComFL(perturbations=2, local_steps=2, learning_rate={0: 0.1, 1: 0.01})
PROBLEM: Any = Quadratic(dimension=40).bind(seed=1, clients=6, partition=Iid())
KEYED: Any = Null(losses="keyed").bind(seed=1, clients=6, partition=Iid())  # other losses in each round
REPORT = np.array([[1.5, -2.0], [0.25, 4.0]], np.float32)
FIRST = np.array([[9.0, 8.0], [7.0, 6.0]], np.float32)
SEED = 3


def lie(client: int = 0, round: int = 5, report: Any = REPORT, seed: int = SEED, *faults: Byzantine) -> Any:
    before = report.copy()
    tampered = Tampering(faults, seed, 6).apply(client, round, report, lambda: FIRST)
    assert report.tobytes() == before.tobytes() and (tampered.dtype, tampered.shape) == (report.dtype, report.shape)
    return tampered


def attacked(fault: dict[str, Any], **where: Any) -> Any:
    return lie(where.get("client", 0), where.get("round", 5), REPORT, where.get("seed", SEED), Byzantine(**fault))


# attacks


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"attack": "sign-flip"}, -REPORT),
        ({"attack": "scale"}, -10 * REPORT),
        ({"attack": "scale", "by": 3.0}, 3 * REPORT),
        ({"attack": "scale", "by": 1e30}, (REPORT * np.float64(1e30)).astype(np.float32)),
        ({"attack": "constant"}, 0 * np.abs(REPORT)),
        ({"attack": "constant", "value": -2.5}, np.full_like(REPORT, -2.5)),
        ({"attack": "nan"}, np.full_like(REPORT, np.nan)),
        ({"attack": "huge"}, np.full_like(REPORT, 1e30)),
        ({"attack": "replay"}, FIRST),
        ({"attack": "noise", "sigma": 0.0}, REPORT),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_each_attack_sends_what_its_name_says(fault: dict[str, Any], expected: Any) -> None:
    np.testing.assert_array_equal(attacked(fault), expected)


def test_a_multiple_beyond_the_numbers_of_a_report_is_infinite() -> None:
    large = np.array([1e30, -1e30, 0.0], np.float32)
    assert lie(0, 5, large, SEED, Byzantine(attack="scale", by=-1e30)).tolist() == [-np.inf, np.inf, 0.0]


@pytest.mark.parametrize("false", [[0.0, 0.0], REPORT[:1], REPORT.astype(str), 1.0], ids=lambda it: type(it).__name__)
def test_a_false_report_of_another_shape_ends_the_run_with_a_sentence_that_names_the_fault(false: Any) -> None:
    class Lazy:
        def tamper(self, *_: Any) -> Any:
            return false

    with pytest.raises(PluginError, match=r"^`tamper` of the fault .*Lazy.* returned .*; expected numbers \[2, 2\]$"):
        Tampering([Lazy()], SEED, 6).apply(0, 5, REPORT, lambda: FIRST)


def test_noise_is_normal_and_drawn_anew_for_each_client_round_and_number() -> None:
    zeros = np.zeros((50, 40), np.float32)
    noise = Byzantine(attack="noise", sigma=3.0)
    reports = {(client, round): lie(client, round, zeros, SEED, noise) for client in (0, 1) for round in (5, 6)}
    for report in reports.values():
        assert abs(float(report.mean())) < 0.3 and abs(float(report.std()) - 3) < 0.3
        assert len(set(report.ravel().tolist())) > 0.99 * report.size
    for one, other in itertools.combinations(reports.values(), 2):
        assert abs(float(np.corrcoef(one.ravel(), other.ravel())[0, 1])) < 0.1
    assert lie(1, 6, zeros, SEED, noise).tobytes() == reports[1, 6].tobytes()
    assert lie(1, 6, zeros, SEED + 1, noise).tobytes() != reports[1, 6].tobytes()


@pytest.mark.parametrize(
    "fault",
    [
        {"probability": 0.0},
        {"clients": [1, 2]},
        {"fraction": 0.0},
        {"at_round": 6},
        {"for_rounds": 5},
        {"at_round": 1, "for_rounds": 1, "every_rounds": 3},
    ],
    ids=str,
)
def test_clients_that_a_fault_does_not_select_are_honest(fault: dict[str, Any]) -> None:
    assert attacked({"attack": "huge", **fault}) is REPORT


def test_a_fraction_of_the_clients_attacks_in_a_fraction_of_the_rounds() -> None:
    fault = {"attack": "sign-flip", "fraction": 0.5, "probability": 0.5}
    lies = {(c, r): bool(attacked(fault, client=c, round=r)[0, 0] < 0) for c in range(6) for r in range(200)}
    each = [sum(lies[client, round] for round in range(200)) for client in range(6)]
    assert sorted(each)[:3] == [0, 0, 0] and all(70 < count < 130 for count in sorted(each)[3:])


@pytest.mark.parametrize("fault", [{"attack": "sign-flip", "by": 2.0}, {"attack": "nan", "sigma": 2.0}, {}])
def test_a_field_of_another_attack_is_refused(fault: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"belongs to attack|required"):
        Byzantine(**fault)


# several faults


@pytest.mark.slow
def test_one_attack_applies_to_a_report_in_any_order_of_faults() -> None:
    faults = [
        Byzantine(attack="scale", by=2.0),
        Byzantine(attack="scale", by=3.0),
        Byzantine(attack="constant", value=7.0, clients=[0, 1]),
        Byzantine(attack="constant", value=7.0, clients=[0, 1]),
        Byzantine(attack="noise", probability=0.3),
        Byzantine(attack="huge", probability=0.0),
    ]
    for client, round in itertools.product(range(6), range(4)):
        report_of = [lie(client, round, REPORT, SEED, *order) for order in itertools.permutations(faults)]
        assert len({each.tobytes() for each in report_of}) == 1
    alone = [lie(3, 0, REPORT, SEED, fault).tobytes() for fault in faults[:2]]
    assert lie(3, 0, REPORT, SEED, *faults[:2]).tobytes() in alone


def test_a_byzantine_fault_is_recognised_by_its_type() -> None:
    assert isinstance(Byzantine(attack="nan"), Tamper)
    assert HONEST.apply(0, 0, REPORT, lambda: FIRST) is REPORT
    drop = scenario(faults=[{"fault": "delay", "by": {"distribution": "constant", "value": 1.0}}]).faults
    assert not isinstance(drop[0], Tamper)


# in one process


def followers(*faults: Byzantine, version: int = 0, problem: Any = PROBLEM) -> Followers:
    spec = ClientSpec(ALGORITHM, tampering=Tampering(faults, SEED, 6))
    created = Followers(Offer(HOST, ((0, 5),), False, b""), spec, problem, NullObserver())
    created.welcome(encode(messages.welcome(ALGORITHM, HOST, 9, [version] * 6, log(version)))[0])
    return created


def log(length: int) -> list[Any]:
    plans = [ALGORITHM.plan(r, r, of_directions(SEED, r)) for r in range(length)]
    return [ALGORITHM.aggregate(None, plan, {0: REPORT})[0] for plan in plans]


def report_of(hosted: Followers, client: int, round: int) -> Any:
    """Return the scalars of a client's report in a round whose base version equals the round's number."""
    plan = ALGORITHM.plan(round, round, of_directions(SEED, round))
    missed = log(round)[hosted.host.replicas.version(client) :]
    (answer,) = hosted.handle(encode(messages.pack_plan(ALGORITHM, client, plan, missed)[0])[0])
    envelope = decode(answer)
    assert (envelope.kind, envelope.client, envelope.round, envelope.base) == (Kind.REPORT, client, round, round)
    return ALGORITHM.unpack_report(envelope.body, plan)


def test_replay_sends_as_many_scalars_as_round_0_had_where_a_schedule_has_changed_them_since(tmp_path: Path) -> None:
    first = np.ones((2, 5), np.float32)
    assert Tampering([Byzantine(attack="replay")], SEED, 6).apply(0, 5, REPORT, lambda: first) is first
    schedule = DECOMFL | {"perturbations": {0: 2, 4: 3}}
    faults = [{"fault": "byzantine", "attack": "replay", "clients": [0, 1]}]
    results = go(tmp_path / "run", scenario(algorithm=schedule, faults=faults, stop={"rounds": 8}))
    assert sum(results.summary["refusals"]["bad-payload"].values()) >= 1 and results.summary["rounds"] == 8


@pytest.mark.parametrize("problem", [PROBLEM, KEYED], ids=["quadratic", "keyed"])
def test_replay_sends_the_report_of_round_0_again(problem: Any) -> None:
    honest, liar = followers(problem=problem), followers(Byzantine(attack="replay", at_round=2), problem=problem)
    first = report_of(honest, 2, 0)
    assert report_of(liar, 2, 0).tobytes() == first.tobytes() != report_of(honest, 2, 4).tobytes()
    assert report_of(liar, 2, 3).tobytes() == report_of(liar, 2, 4).tobytes() == first.tobytes()
    assert report_of(followers(Byzantine(attack="replay"), problem=problem), 1, 4).tobytes() != first.tobytes(), (
        "each client its own"
    )


@pytest.mark.parametrize("attack", ["replay", "noise", "sign-flip"])
def test_a_replacement_process_sends_the_same_attacks(attack: Any) -> None:
    fault = Byzantine(attack=attack, probability=0.5)
    old, new = followers(fault), followers(fault, version=6)
    for round in range(6):
        for client in range(6):
            report_of(old, client, round)
    assert [report_of(old, c, 6).tobytes() for c in range(6)] == [report_of(new, c, 6).tobytes() for c in range(6)]


# in whole runs

ALL = {"clients": 8, "cohort": 8}
AFTER_A_WHILE = {"clients": 8, "cohort": 8, "deadline_s": 30.0}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [DECOMFL, HISO], ids=lambda algorithm: str(algorithm["name"]))
@pytest.mark.parametrize(("attack", "reason"), [("nan", "not-finite"), ("huge", "absurd")])
def test_a_refused_report_has_the_effect_of_a_lost_one(
    tmp_path: Path, algorithm: dict[str, Any], attack: str, reason: str
) -> None:
    """The model is bit-identical to that of a run in which the Byzantine clients' reports are lost."""
    whose = {"clients": [1, 4], "at_round": 3}
    lying = [{"fault": "byzantine", "attack": attack, **whose}]
    losing = [{"fault": "drop", "direction": "up", "kind": "report", **whose}]
    worlds = {"lies": lying, "losses": losing, "neither": []}
    runs = {
        name: go(tmp_path / name, scenario(algorithm=algorithm, faults=faults, participation=AFTER_A_WHILE))
        for name, faults in worlds.items()
    }
    assert runs["lies"].summary["refusals"] == {reason: {"1": 17, "4": 17}}
    assert runs["lies"].summary["version"] == 20
    assert runs["lies"].digest == runs["losses"].digest != runs["neither"].digest


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["sign-flip", "scale", "noise", "constant", "replay"])
def test_a_plausible_attack_changes_the_model_and_nothing_else(tmp_path: Path, attack: str) -> None:
    lying = scenario(faults=[{"fault": "byzantine", "attack": attack, "clients": [2]}], participation=ALL)
    honest, lied = go(tmp_path / "honest", scenario(participation=ALL)), go(tmp_path / "lied", lying)
    assert lied.digest != honest.digest
    assert lied.summary["refusals"] == {}
    assert lied.summary["ledger_hash"] == honest.summary["ledger_hash"], (
        "to the byte the same messages at the same times"
    )


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_attacks_on_one_report_the_one_that_changes_it_is_counted(tmp_path: Path, order: int) -> None:
    scale = {"fault": "byzantine", "attack": "scale", "clients": [0, 1]}  # the first by repr
    flip = {"fault": "byzantine", "attack": "sign-flip", "clients": [0, 2]}
    what = scenario(participation=ALL, faults=[scale, flip][::order], stop={"rounds": 3})
    lied = [done["lied"] for done in go(tmp_path / "run", what).summary["faults"]]
    assert lied[::order] == [2 * 3, 1 * 3]


def test_the_same_clients_attack_in_real_time(tmp_path: Path) -> None:
    faults = [{"fault": "byzantine", "attack": "nan", "clients": [3], "probability": 0.5}]
    world = {"participation": ALL, "stop": {"rounds": 12}, "faults": faults}
    network = {"latency": {"distribution": "constant", "value": 0.001}}
    refused = [
        go(tmp_path / clock, scenario(clock=clock, network=network, **world)).summary["refusals"]
        for clock in ("virtual", "wall")
    ]
    assert refused[0] == refused[1] and 0 < refused[0]["not-finite"]["3"] < 12
