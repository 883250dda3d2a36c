"""All faults of a run together: what always passes, what the run itself stops, and counts that are restored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from bus_harness import Harness, plan

from seedbus.bus import (
    EVALUATOR,
    HOST,
    PASS,
    SERVER,
    Envelope,
    Fate,
    FaultHooks,
    Kind,
    MemoryTransport,
    Passage,
    Verdict,
)
from seedbus.bus.in_flight import Key
from seedbus.bus.keyed_random import KeyedRandom
from seedbus.scenarios.faults.drop import Drop
from seedbus.scenarios.faults.dropout import Dropout
from seedbus.scenarios.faults.hostile import Hostile


class Away:
    """Stops what client 1 sends or is sent."""

    def stops(self, key: Key, arriving: bool) -> bool:
        return key[1] == 1

    def count_dropped(self, client: int) -> None:
        assert client == 1


@pytest.mark.parametrize("instrument", [EVALUATOR, HOST, HOST - 3])
@pytest.mark.parametrize("arriving", [False, True])
def test_no_fault_acts_on_messages_of_the_evaluator_and_of_hosts(instrument: int, arriving: bool) -> None:
    hooks = FaultHooks([Drop(), Hostile()], seed=1, clients=2)
    for kind in Kind:
        assert hooks.judge((kind, instrument, 0, 0, 0), 0, arriving=arriving) is PASS
    hooks.answered(instrument, 0)
    assert hooks.counts() == [{}, {}]


def test_a_client_that_is_away_is_silent_and_sends_and_gets_nothing_and_no_fault_is_counted_for_it() -> None:
    hooks: Any = FaultHooks([], seed=1, clients=3)
    assert hooks.is_empty
    hooks.add(Away())
    assert not hooks.is_empty
    faults = FaultHooks([Drop(), Dropout(when="after-training")], seed=1, clients=3)
    faults.add(Away())
    for each in (hooks, faults):
        assert each.is_silent(1, 0) and each.judge((Kind.PLAN, 1, 0, 0, 0), 0).drop
        assert each.judge((Kind.FLOOD, 0, 0, 0, 0), 0, peer=1).drop, "a node that is sent commits"
    assert faults.counts() == [{}, {}]
    assert not hooks.is_silent(2, 0) and hooks.judge((Kind.FLOOD, 0, 0, 0, 0), 0, peer=2) is PASS
    assert faults.is_silent(2, 0) and faults.counts() == [{}, {"silenced": 1}]


def test_restored_counts_are_those_of_the_checkpoint_and_no_others() -> None:
    hooks = FaultHooks([Drop(), Dropout(when="after-training")], seed=1, clients=3)
    hooks.judge((Kind.PLAN, 0, 0, 0, 0), 0)
    checkpoint = hooks.checkpoint()
    hooks.judge((Kind.PLAN, 1, 0, 0, 0), 0)
    hooks.is_silent(1, 0)
    assert hooks.counts() == [{"dropped": 2}, {"silenced": 1}]
    hooks.restore(checkpoint)
    assert hooks.counts() == [{"dropped": 1}, {}] and hooks.checkpoint() == checkpoint


def test_each_fault_by_which_a_node_or_a_client_drops_out_is_counted() -> None:
    always = Dropout(when="after-training")
    faults = [Dropout(when="after-training", clients=[1]), always, Dropout(probability=0.0), Hostile()]
    nodes, clients = FaultHooks(faults, seed=1, clients=3), FaultHooks(faults, seed=1, clients=3)
    assert nodes.drops_out(1, 0) and nodes.drops_out(2, 0) and clients.is_silent(1, 0) and clients.is_silent(2, 0)
    assert nodes.counts() == [{"dropped": 1}, {"dropped": 2}, {}, {}]
    assert clients.counts() == [{"silenced": 1}, {"silenced": 2}, {}, {}]
    assert not FaultHooks(faults[2:], seed=1, clients=3).drops_out(1, 0)


@dataclass(frozen=True)
class Lies:
    """Lies by one or some clients; they have wrong labels, and forge their answers."""

    name: str
    clients: tuple[int, ...]

    def lies(self, client: int, round: int, random: KeyedRandom) -> bool:
        return client in self.clients and round == 3

    mislabels = forges = lies


class Colludes(Lies):
    collude = True


def test_a_report_counts_for_the_first_liar_where_it_is_made_and_the_first_in_a_commit() -> None:
    faults = [Lies("b", (0, 1)), Lies("a", (1,)), Colludes("d", (0, 1)), Colludes("c", (0,)), Drop(probability=0)]
    hooks = FaultHooks(faults, seed=1, clients=3)
    for client, round in ((0, 3), (1, 3), (2, 3), (0, 4)):
        hooks.reported(client, round)
        hooks.answered(client, round)
    assert hooks.counts() == [*({"forged": n, "lied": 1, "mislabelled": n} for n in (2, 1, 2, 1)), {}]
    assert [list(each) for each in hooks.counts()[:4]] == [["forged", "lied", "mislabelled"]] * 4


class Wire(MemoryTransport):
    is_wire = True


@dataclass(frozen=True)
class Quiet:
    """Client 1 reports nothing, and the pieces of client 2 are lost."""

    def is_silent(self, client: int, round: int, random: KeyedRandom) -> bool:
        return client == 1

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(drop=passage.kind is Kind.PIECE and passage.client == 2)


def test_faults_strike_the_answers_to_plans_and_reports_and_other_answers_are_sent_like_any_message() -> None:
    def answers(asked: Envelope) -> list[Envelope]:
        kind = Kind.REPORT if asked.kind is Kind.PLAN else Kind.PIECE
        return [Envelope(kind, asked.client, asked.round, 0, [])] if asked.round == 3 else []

    harness = Harness(rules=[Quiet(), Lies("a", (0, 1, 2))], transport=Wire, answers=answers)
    for client, round in ((0, 3), (1, 3), (1, 4)):
        harness.bus.send(plan(client, round))
    for client in (1, 2):
        harness.bus.send(Envelope(Kind.FETCH, client, 3, 0, []))
    harness.run()
    assert sorted((row.kind, row.sender, row.fate) for row in harness.rows if row.sender != SERVER) == [
        (Kind.LINK, 1, Fate.DELIVERED), (Kind.REPORT, 0, Fate.DELIVERED),
        (Kind.PIECE, 1, Fate.DELIVERED), (Kind.PIECE, 2, Fate.DROPPED),
    ]  # fmt: skip
    assert harness.bus.rules.counts() == [
        {"dropped": 1, "silenced": 1}, {"forged": 3, "lied": 1, "mislabelled": 1}
    ]  # fmt: skip


@dataclass(frozen=True)
class LoseJoins:
    """Drops every REFUSE and JOIN, when it is sent or when it arrives."""

    arriving: bool

    def judge(self, passage: Passage) -> Verdict:
        return Verdict(drop=passage.arriving == self.arriving and passage.kind in (Kind.REFUSE, Kind.JOIN))


@pytest.mark.parametrize("arriving", [False, True])
def test_no_fault_acts_on_a_refusal_and_on_joins_that_answer_it_or_a_wake(arriving: bool) -> None:
    harness = Harness(rules=[LoseJoins(arriving)], answers=lambda asked: [Envelope(Kind.JOIN, asked.client, 0, 0, [])])
    harness.bus.send(Envelope(Kind.REFUSE, 1, 0, 0, ["foreign-version", "…"]))
    harness.bus.wake(2, 0, [0], 0)
    harness.bus.send(plan(3))  # a client that cannot follow it says so by a message like any other
    harness.run()
    assert [(row.kind, row.sender, row.fate) for row in harness.rows if row.kind != Kind.PLAN] == [
        (Kind.REFUSE, SERVER, Fate.DELIVERED), (Kind.JOIN, 1, Fate.DELIVERED),
        (Kind.JOIN, 2, Fate.DELIVERED), (Kind.JOIN, 3, Fate.DROPPED),
    ]  # fmt: skip
