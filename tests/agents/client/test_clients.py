"""The clients of a process in secure aggregation and with noise of their own, and what their JOINs prove."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from event_recorder import EventRecorder

from seedbus.agents import messages
from seedbus.agents.admission import MEMBER, bound
from seedbus.agents.availability import RETURNS
from seedbus.agents.client.client_spec import ClientSpec
from seedbus.agents.client.worker import Followers, prove
from seedbus.agents.extensions import ClientPart
from seedbus.agents.messages import Join
from seedbus.agents.policies.participation import Participation
from seedbus.agents.privacy.mechanism import Mechanism
from seedbus.agents.privacy.settings import Privacy
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.secure.stages import AFTER_REPORTS, Stage
from seedbus.algorithms.scalar_only.decomfl import DeComFL
from seedbus.bus import HOST, Envelope, Kind, Offer, decode, encode
from seedbus.models import Iid
from seedbus.models.tasks.null import Null

pytest.importorskip("cryptography", reason="secure aggregation needs cryptography: pip install 'seedbus[secure]'")

from seedbus.agents.secure.party import Party
from seedbus.agents.secure.secure_round import SecureRound

ALGORITHM: Any = DeComFL(perturbations=2, arithmetic="integer", precision="int32")
PROBLEM: Any = Null(losses="keyed").bind(seed=1, clients=4, partition=Iid())
COHORT = range(4)
TERMS = SecureAggregation(), Participation(clients=4, quorum=2)
PLAN = ALGORITHM.plan(0, 0, 5)


def followers(*parts: ClientPart) -> Followers:
    spec = ClientSpec(ALGORITHM, parts=lambda: parts)
    created = Followers(Offer(HOST, ((0, 3),), False, b""), spec, PROBLEM, EventRecorder())
    created.welcome(encode(messages.welcome(ALGORITHM, HOST, 9, [0] * 4))[0])
    return created


def answer(hosted: Followers, asked: Envelope) -> list[Envelope]:
    return [decode(each) for each in hosted.handle(encode(asked)[0])]


def events(hosted: Followers) -> list[str]:
    observer: Any = hosted._observer
    return list(observer.events)


def plan(client: int, *masks_with: Any) -> Envelope:
    envelope, _ = messages.pack_plan(ALGORITHM, client, PLAN, [])
    return envelope._replace(body=[*envelope.body, *masks_with])


def numbers(report: Envelope) -> Any:
    assert report.kind is Kind.REPORT
    return ALGORITHM.numbers(ALGORITHM.unpack_report(report.body, PLAN))


class Sharing:
    """A process of four clients that have shared their secrets, and the server's part in their round."""

    def __init__(self) -> None:
        self.hosted = followers(Party(*TERMS))
        self.server = SecureRound(*TERMS, 5, 0, 0, COHORT)
        self.asks = [self.server.ask(Stage.KEYS)]
        self.tell()
        self.asks.append(self.server.ask(Stage.SHARES))
        self.tell()

    def tell(self) -> None:
        for ask in self.asks[-1]:
            (told,) = answer(self.hosted, ask)
            self.server.answered(told)

    def report(self, client: int) -> Envelope:
        (report,) = answer(self.hosted, plan(client, self.server.masks_with(client)))
        return report


def test_the_masked_reports_of_a_process_have_the_sum_of_those_without_masks() -> None:
    this, plain = Sharing(), followers()
    masked = {client: numbers(this.report(client)) for client in COHORT}
    reports = {client: numbers(answer(plain, plan(client))[0]) for client in COHORT}
    assert not any(np.array_equal(masked[client], reports[client]) for client in COHORT)
    for stage in AFTER_REPORTS:
        this.asks.append(this.server.ask(stage, frozenset(COHORT)))
        this.tell()
    total = this.server.total(masked)
    assert total is not None and total.tolist() == sum(reports.values()).tolist() != np.zeros_like(total).tolist()
    assert numbers(this.report(2)).tolist() == masked[2].tolist() and events(this.hosted) == []


@pytest.mark.parametrize("masks_with", [(), (7,), (b"",), (b"\xff",)])
def test_a_plan_that_does_not_name_the_neighbours_that_have_shared_is_noted_and_not_answered(masks_with: Any) -> None:
    this = Sharing()
    assert answer(this.hosted, plan(1, *masks_with)) == [] and events(this.hosted) == ["bad-plan"]
    assert answer(this.hosted, plan(1)._replace(body=[])) == [] and events(this.hosted) == ["bad-plan"] * 2
    assert this.report(1).kind is Kind.REPORT


def test_a_client_declines_a_plan_with_too_few_neighbours_and_one_with_others_than_it_has_masked_with() -> None:
    this = Sharing()

    def assert_declined(masks_with: bytes, sentence: str) -> None:
        (declined,) = answer(this.hosted, plan(1, masks_with))
        assert (declined.kind, declined.client, declined.body[0]) == (Kind.DECLINE, 1, "no-masks")
        assert sentence in declined.body[1]

    assert_declined(b"\0", "its mask could not be recovered")
    first = this.report(1)
    assert_declined(b"\3", "it masks once a round")
    assert this.report(1) == first and events(this.hosted) == []


def test_what_a_client_refuses_to_tell_is_noted_and_what_cannot_be_read_is_not_answered() -> None:
    this = Sharing()
    unmask = this.server.ask(Stage.CONFIRM, frozenset(COHORT))[1]
    (refusal,) = answer(this.hosted, unmask)  # it has masked nothing
    assert refusal.kind is Kind.TELL and refusal.body[:2] == [Stage.CONFIRM, "no-masks"]
    assert answer(this.hosted, unmask._replace(body=[9])) == []
    assert answer(this.hosted, this.asks[0][1]._replace(body=[0, b"more"])) == []
    (keys,) = answer(this.hosted, this.asks[0][1]._replace(round=1))
    assert keys.kind is Kind.TELL and answer(this.hosted, unmask) == []  # it is at work on a newer round
    assert events(this.hosted) == ["no-masks", "bad-ask", "bad-ask"]
    plain = followers()
    assert answer(plain, this.asks[0][1]) == [] and events(plain) == ["unexpected"]


@pytest.mark.parametrize(("how", "is_kept"), [("with-state", True), ("without-state", False)])
def test_a_client_that_loses_its_state_loses_its_secrets_and_its_answer(how: Any, is_kept: bool) -> None:
    this = Sharing()
    first = this.report(1)
    answer(this.hosted, Envelope(Kind.WAKE, 1, 0, 0, [RETURNS.index(how)]))
    again = this.report(1)
    assert (again == first) == is_kept and again.kind is (Kind.REPORT if is_kept else Kind.DECLINE)
    assert this.report(2).kind is Kind.REPORT


def test_a_client_that_is_asked_again_draws_no_other_noise() -> None:
    """The mean of many answers would show the report."""
    pytest.importorskip("dp_accounting", reason="privacy needs dp-accounting: pip install 'seedbus[privacy]'")
    noisy = Privacy(mechanism="distributed", clip=1_000, noise_multiplier=10.0, noise="system")
    hosted, another = (
        followers(Mechanism(noisy, Participation(clients=4, quorum=2), 1, is_virtual=True)) for _ in range(2)
    )
    (first,) = answer(hosted, plan(1))
    assert answer(hosted, plan(1)) == [first] != answer(another, plan(1))


def test_proofs_are_bound_to_the_offer_and_those_of_single_clients_are_valid_for_none() -> None:
    """Otherwise an eavesdropper could show them to join in the place of the process."""
    hosted, proofs = followers(), prove(ALGORITHM, PROBLEM)
    woken = Envelope(Kind.WAKE, 1, 8, 0, [RETURNS.index("with-state")])
    for nonce, member in ((b"a nonce", MEMBER), (b"", b"")):
        (joining,) = hosted.join(HOST, nonce)
        assert Join.unpack(decode(joining)).proofs == bound(proofs, nonce)
        (joined,) = answer(hosted, woken)
        assert Join.unpack(joined).proofs == bound(proofs, member)
