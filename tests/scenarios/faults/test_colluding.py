"""Colluding clients: the papers' formulas, which reports are replaced, and that only the model changes."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import go, scenario

from seedbus.agents.policies.participation import Late, Participation
from seedbus.agents.server.collusion import Collusion
from seedbus.agents.server.member_index import MemberIndex
from seedbus.agents.server.rounds import Rounds
from seedbus.agents.server.run_spec import RunSpec
from seedbus.agents.server.stopping import Stop
from seedbus.algorithms.dense.base import FedAvg
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import FaultHooks
from seedbus.discovery import PluginError
from seedbus.scenarios.faults.byzantine import Byzantine
from seedbus.scenarios.faults.colluding import Colluding
from seedbus.scenarios.transports.placement import Placement

ALGORITHM: Any = DeComFL(perturbations=3)
PLAN = ALGORITHM.plan(5, 3, [1])
ATTACKS = ("alie", "ipm", "min-max")


def reports_of(clients: int, seed: int = 0) -> dict[int, Any]:
    draws = np.random.default_rng(seed).normal(1.0, 2.0, (clients, *PLAN.shape))
    return {client: draws[client].astype(np.float32) for client in range(clients)}


def rows(reports: dict[int, Any], clients: Any) -> Any:
    return np.stack([reports[client].ravel().astype(np.float64) for client in clients])


def applied(reports: dict[int, Any], *faults: Any, algorithm: Any = ALGORITHM, plan: Any = PLAN) -> Any:
    return Collusion(faults, 1, len(reports)).apply(algorithm, plan, reports)


@pytest.mark.parametrize(("attackers", "s"), [(4, 2), (7, 1), (9, None)], ids=["few", "most", "all but one"])
@pytest.mark.parametrize(
    "fields",
    [{"attack": "alie", "z": 1.5}, {"attack": "alie", "z": 0.0}, {"attack": "alie"}, {"attack": "ipm", "by": 3.0}],
)
def test_attackers_send_what_the_papers_say(fields: Any, attackers: int, s: int | None) -> None:
    reports = reports_of(10)
    own, honest = rows(reports, range(attackers)), rows(reports, range(attackers, 10))
    found = applied(reports, Colluding(clients=list(range(attackers)), at_round=5, **fields))
    papers = 0.0 if s is None else NormalDist().inv_cdf((10 - attackers - s) / (10 - attackers))
    z = fields.get("z", papers)
    expected = own.mean(0) - z * own.std(0) if fields["attack"] == "alie" else -3.0 * honest.mean(0)
    for client in range(attackers):
        np.testing.assert_allclose(found[client].ravel(), expected, rtol=1e-6)
    for client in range(attackers, 10):
        assert found[client] is reports[client]


@given(st.integers(0, 10**6), st.integers(2, 9), st.sampled_from(["std", "mean", "sign"]))
def test_min_max_goes_as_far_as_honest_reports_are_from_each_other_and_no_farther(
    seed: int, honest: int, along: Any
) -> None:
    reports = reports_of(honest + 2, seed)
    found = applied(reports, Colluding(attack="min-max", along=along, clients=[0, 1]))
    good = rows(reports, range(2, honest + 2))
    widest = max(np.linalg.norm(a - b) for a in good for b in good)
    lie = found[0].ravel().astype(np.float64)
    assert max(np.linalg.norm(lie - row) for row in good) == pytest.approx(widest, rel=1e-5)
    shift = good.mean(0) - lie
    direction = {"std": good.std(0), "mean": good.mean(0), "sign": np.sign(good.mean(0))}[along]
    np.testing.assert_allclose(shift / np.linalg.norm(shift), direction / np.linalg.norm(direction), atol=1e-5)
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize(("clients", "attackers"), [(10, 6), (10, 10), (3, 1), (1, 1), (2, 1)])
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_number_of_attackers_ends_in_finite_reports(attack: Any, clients: int, attackers: int) -> None:
    reports = reports_of(clients)
    found = applied(reports, Colluding(attack=attack, clients=list(range(attackers))))
    assert list(found) == list(range(clients))
    assert all(np.isfinite(report).all() for report in found.values())
    if attackers == clients:
        assert found is not None and all(found[client] is reports[client] for client in found)


def test_the_order_of_reports_and_of_faults_changes_nothing() -> None:
    reports = reports_of(9)
    faults = [Colluding(attack="ipm", clients=[0, 1, 2]), Colluding(attack="alie", clients=[2, 3, 4])]
    found = applied(reports, *faults)
    other = applied(dict(reversed(reports.items())), *reversed(faults))
    for client in range(9):
        np.testing.assert_array_equal(found[client], other[client])
    honest = rows(reports, range(5, 9))
    for client in (0, 1, 2):  # a client that both select obeys the first by its text
        np.testing.assert_allclose(found[client].ravel(), -0.5 * honest.mean(0), rtol=1e-6)
    own = rows(reports, [3, 4])
    s = 6 // 2 + 1 - 2
    expected = own.mean(0) - NormalDist().inv_cdf((4 - s) / 4) * own.std(0)
    np.testing.assert_allclose(found[3].ravel(), expected, rtol=1e-6)


def test_a_fault_of_no_client_in_a_round_leaves_the_attackers_of_another() -> None:
    reports = reports_of(6)
    lying = Colluding(attack="ipm", clients=[0])
    found = applied(reports, lying)
    assert not np.array_equal(found[0], reports[0])
    later, overruled = Colluding(attack="ipm", clients=[1], at_round=6), Colluding(attack="ipm", by=9.0, clients=[0])
    assert repr(lying) < repr(overruled)
    for other in (later, overruled):
        both = applied(reports, lying, other)
        assert all(np.array_equal(both[client], found[client]) for client in range(6))


def test_attackers_are_given_reports_in_the_order_of_clients_and_leave_them_so() -> None:
    given: list[Any] = []

    class Curious(_Own):
        def lies(self, client: int, round: int, random: Any) -> bool:
            return client in (1, 4)

        def collude(self, own: Any, honest: Any) -> Any:
            given.extend([*own, *honest])
            return own[0]

    reports = reports_of(6)
    found = applied(dict(reversed(reports.items())), Curious(None))
    np.testing.assert_array_equal(given, rows(reports, [1, 4, 0, 2, 3, 5]))
    assert list(found) == list(range(6)) and np.array_equal(found[4], reports[1])


@pytest.mark.parametrize("scale", [1e8, 1e35], ids=["absurd", "beyond float32"])
def test_a_report_that_the_server_would_refuse_is_not_sent(scale: float) -> None:
    reports = {client: report * np.float32(scale) for client, report in reports_of(6).items()}
    found = applied(reports, Colluding(attack="ipm", by=1e6, clients=[0]))
    assert found[0] is reports[0]


def test_false_reports_are_rounded_as_messages_are() -> None:
    algorithm: Any = DeComFL(perturbations=3, precision="float16")
    found = applied(reports_of(6), Colluding(attack="ipm", clients=[0]), algorithm=algorithm)
    np.testing.assert_array_equal(found[0], found[0].astype(np.float16))


def test_updates_of_models_are_replaced_whole() -> None:
    algorithm: Any = FedAvg().sized(40_000)
    plan = algorithm.plan(0, 0, [1])
    draws = np.random.default_rng(3).normal(size=(5, 40_000)).astype(np.float32)
    reports = {client: algorithm._encode([draws[client]], [], 7, client) for client in range(5)}
    found = applied(reports, Colluding(attack="min-max", clients=[0]), algorithm=algorithm, plan=plan)
    good = draws[1:].astype(np.float64)
    widest = max(np.linalg.norm(a - b) for a in good for b in good)
    farthest = max(np.linalg.norm(found[0].vectors[0] - row) for row in good)
    assert farthest == pytest.approx(widest, rel=1e-5)
    assert found[0].samples == 7


class _Own:
    """A fault of one's own that returns what it is given."""

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def lies(self, client: int, round: int, random: Any) -> bool:
        return client == 0

    def collude(self, own: Any, honest: Any) -> Any:
        return self.returned


def test_a_fault_of_ones_own_must_return_a_report() -> None:
    with pytest.raises(PluginError, match=r"`collude` of the fault .* returned .*; expected numbers \[3\]"):
        applied(reports_of(3), _Own(np.zeros(2)))
    assert applied(reports_of(3), _Own(None))[0] is not None


def test_a_report_that_is_false_when_it_is_sent_and_replaced_in_a_commit_is_counted_as_both() -> None:
    alie, ipm = Colluding(attack="alie", clients=[1, 2]), Colluding(attack="ipm", clients=[1, 2])
    hooks = FaultHooks([ipm, Byzantine(attack="sign-flip", clients=[0, 1]), alie], seed=1, clients=4)
    for client in range(4):
        hooks.reported(client, 0)
    assert hooks.counts() == [{}, {"lied": 2}, {"lied": 2}]


def test_late_reports_are_replaced_by_what_those_of_their_own_round_say() -> None:
    lies = Colluding(attack="ipm", clients=[0, 1], for_rounds=1)
    policy = Participation(clients=6, quorum=1, deadline_s=1.0, late=Late(discount=0.0))
    rounds = Rounds(RunSpec(ALGORITHM, policy, 1, Stop(rounds=9), filters=[Collusion([lies], 1, 6).apply]))
    reports, members = reports_of(6), MemberIndex(6)
    members.update(range(6))
    for number in range(2):
        current = rounds.open(members, number, 0)
        rounds.add_report(current, 5, reports[5], 0)
        current.is_expired = True
        commit = rounds.close(number, 0)[2]
        for client in range(5):  # late, for the round that has closed
            rounds.add_report(current, client, reports[client], 0)
    honest = rows(reports, [2, 3, 4])
    late = (2 * -0.5 * honest.mean(0) + honest.sum(0)) / 5
    own, of_first = commit.terms
    np.testing.assert_allclose(of_first.scalars.ravel(), late, rtol=1e-6)
    np.testing.assert_array_equal(own.scalars, reports[5])


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_only_the_model_changes_and_on_tcp_by_the_same_bits(attack: str, tmp_path: Any) -> None:
    faults = [{"fault": "colluding", "attack": attack, "fraction": 0.4}]
    late = {"clients": 8, "cohort": 6, "quorum": 2, "deadline_s": 1.0, "late": {"discount": 0.5, "max_staleness": 3}}
    slow = {"fault": "straggler", "probability": 0.3, "factor": 10.0}
    honest = go(tmp_path / "honest", scenario(participation=late, faults=[slow]))
    lying = go(tmp_path / "lying", scenario(participation=late, faults=[slow, *faults]))
    assert lying.summary["ledger_hash"] == honest.summary["ledger_hash"]
    assert lying.digest != honest.digest
    again = go(tmp_path / "tcp", scenario(participation=late, faults=[slow, *faults]), placement=Placement("tcp"))
    assert again.digest == lying.digest
