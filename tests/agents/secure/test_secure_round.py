"""Secure aggregation of one round: sums under dropouts, and what a curious or a lying server gets to know."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from masked_round import ROUND, SHAPE, MaskedRound

from seedbus.agents.policies.participation import Participation
from seedbus.agents.secure.masks import BadKey, Secrets, channel, mask_public, pair_mask, seal, self_mask, unseal
from seedbus.agents.secure.secure_round import SecureRound
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.secure.sharing import recover
from seedbus.agents.secure.stages import AFTER_REPORTS, BEFORE_PLANS, Stage, pack_subset
from seedbus.algorithms.contract import BadPayload, Declined, ReportRefused
from seedbus.bus import Envelope, Kind

COHORT = [2, 3, 5, 8, 13, 21]
SIZE = SHAPE[0] * SHAPE[1]


def subsets(count: int) -> st.SearchStrategy[list[frozenset[int]]]:
    """Who is silent in each of the five stages: keys, shares, report, confirmation, unmasking; seldom many."""
    return st.lists(st.frozensets(st.integers(0, count - 1), max_size=2), min_size=5, max_size=5)


@settings(max_examples=60)
@given(
    st.integers(2, 8).flatmap(lambda count: st.tuples(st.just(count), subsets(count))),
    st.sampled_from([0.5, 2 / 3, 0.8]),
    st.sampled_from(["all", 2, 4]),
)
def test_whoever_is_silent_at_whichever_stage_the_sum_is_exact_or_there_is_none(
    dropouts: tuple[int, list[frozenset[int]]], threshold: float, neighbours: Any
) -> None:
    count, (keys, shares, report, confirm, unmask) = dropouts
    this = MaskedRound(list(range(count)), SecureAggregation(threshold=threshold, neighbours=neighbours))
    this.share(without_keys=keys, without_shares=shares)
    assert this.server.sharers.isdisjoint(keys | shares)
    reported = this.report(report)
    this.unmask(reported, without_confirmation=confirm, without_unmask=unmask)
    total, gone = this.total(reported), keys | shares | report | confirm | unmask
    assert total is None or (total == this.expected(reported)).all()
    is_complete = neighbours == "all" or neighbours >= count - 1
    if not gone or (is_complete and count - len(gone) >= this.settings.shares_needed(count - 1)):
        assert total is not None, "t clients have stayed to the end"


def test_negative_sums_and_the_largest_numbers_are_exact() -> None:
    this = MaskedRound(COHORT)
    most = (2**31 - 1) // len(COHORT)
    for client in COHORT:
        this.reports[client] = np.array([[most, -most, 0], [-1, 1, -most]], np.int32)
    this.share()
    reported = this.report()
    this.unmask(reported)
    assert (this.total(reported) == this.expected(reported)).all()
    this.reports[2] = np.array([[most + 1, 0, 0], [0, 0, 0]], np.int32)
    with pytest.raises(Declined, match="a cohort's sum fits into 32 bits"):
        this.mask(2)


def unmasked(this: MaskedRound, reported: Collection[int]) -> dict[int, Any]:
    """What a server makes of each masked report with all the secrets that it can recover from what it was told.

    It has no rules: it tries every secret of every client for which it holds t shares, of either kind.
    """
    given: dict[tuple[int, str], dict[int, bytes]] = {}
    for told in this.seen:
        if told.body[0] == Stage.UNMASK:
            owners = [*this.server._sharing(told.client), told.client]
            for at, owner in enumerate(owners):
                kind = "self" if owner in reported else "mask"
                given.setdefault((owner, kind), {})[told.client] = told.body[1][17 * at : 17 * at + 17]
    known = {}
    for (owner, kind), shares in given.items():
        if len(shares) >= this.server._needed(owner):
            known[owner, kind] = recover(shares)
    public = {told.client: told.body[1] for told in this.seen if told.body[0] == Stage.KEYS}
    result = {}
    for client, masked in this.masked.items():
        words = masked.ravel().view(np.uint32).copy()
        if (secret := known.get((client, "self"))) is not None:
            words -= self_mask(secret, ROUND, client, SIZE)
        for other in this.server._sharing(client):
            for one, its in ((client, other), (other, client)):
                seed = known.get((one, "mask"))
                if seed is not None and mask_public(seed, ROUND) == public[one][32:]:
                    pair = pair_mask(seed, public[its], ROUND, client, other, SIZE)
                    words = words - pair if client < other else words + pair
                    break
        result[client] = words
    return result


def sums_found(this: MaskedRound, reported: Collection[int]) -> list[tuple[int, ...]]:
    """Return the groups of clients of which a server without rules finds the sum, or even one number of it."""
    words, found = unmasked(this, reported), []
    for size in range(1, len(this.cohort) + 1):
        for some in combinations(this.cohort, size):
            total = sum((words[client] for client in some), np.zeros(SIZE, np.uint32)).view(np.int32)
            truth = sum(this.reports[client].astype(np.int64) for client in some).ravel()
            if (total == truth).any():
                found.append(some)
    return found


def round_with_late(late: Collection[int], cohort: list[int], **settings: Any) -> tuple[MaskedRound, frozenset[int]]:
    """Return an unmasked round and who reported: late clients share, and the server has their reports too late."""
    this = MaskedRound(cohort, SecureAggregation(**settings))
    this.share()
    reported = this.report(silent=late)
    this.unmask(reported)
    assert (this.total(reported) == this.expected(reported)).all()
    return this, reported


@pytest.mark.parametrize(
    ("cohort", "settings", "late"),
    [
        (COHORT, {}, [8]),
        ([*COHORT, 34, 55, 89], {"neighbours": 4}, [8]),
        ([*COHORT, 34, 55, 89], {"neighbours": 4, "threshold": 0.5}, [2, 55]),
        ([*COHORT, 34, 55, 89], {"neighbours": 6, "threshold": 0.6}, [3, 8]),
    ],
    ids=["all", "4 of 8, one late", "4 of 8, two late", "6 of 8, two late"],
)
def test_from_all_that_it_received_the_server_finds_only_the_sum(
    cohort: list[int], settings: dict[str, Any], late: list[int]
) -> None:
    this, reported = round_with_late(late, cohort, **settings)
    assert sums_found(this, reported) == [tuple(sorted(reported))]


def test_more_than_the_threshold_as_it_is_written_has_to_give_shares() -> None:
    for percent, holders in product(range(50, 100), (2, 3, 50, 100, 101, 513)):
        needed = SecureAggregation(threshold=percent / 100).shares_needed(holders - 1)
        assert 100 * (needed - 1) <= percent * holders < 100 * needed <= 100 * holders
    assert SecureAggregation(threshold=2 / 3).shares_needed(2) == 3  # a float is just below two thirds
    assert SecureAggregation(threshold=0.9999999).shares_needed(9) == 10  # of ten; of all holders at most


def test_a_graph_that_dropouts_cut_in_two_gives_the_sums_of_its_parts_and_none_of_fewer_than_t() -> None:
    """The graph of two neighbours is a circle; without two of its clients it is two arcs, here of two and of three."""
    cohort = [*COHORT, 34]
    circle, at = [cohort[0]], MaskedRound(cohort, SecureAggregation(neighbours=2)).server._graph
    while len(circle) < len(cohort):
        circle.append(next(each for each in at[circle[-1]] if each not in circle))
    this, reported = round_with_late([circle[0], circle[3]], cohort, neighbours=2, threshold=0.5)
    arcs = [tuple(sorted(arc)) for arc in (circle[1:3], circle[4:])]
    assert sums_found(this, reported) == [*arcs, tuple(sorted(reported))]
    assert this.settings.shares_needed(2) == min(map(len, arcs))


def test_a_server_that_had_both_kinds_of_shares_would_find_a_report() -> None:
    """The attack of the test above succeeds against clients that break the rule, so that test can fail."""
    this = MaskedRound(COHORT)
    this.share()
    reported = this.report()
    this.unmask(reported)
    masked = this.masked[8].ravel().view(np.uint32).copy()
    masked -= self_mask(this.parties[8]._sessions[8].secrets.self_seed, ROUND, 8, SIZE)
    public = {told.client: told.body[1] for told in this.seen if told.body[0] == Stage.KEYS}
    for other in reported - {8}:
        pair = pair_mask(this.parties[8]._sessions[8].secrets.mask_seed, public[other], ROUND, 8, other, SIZE)
        masked = masked - pair if other > 8 else masked + pair
    assert (masked.view(np.int32) == this.reports[8].ravel()).all()


def test_a_server_that_asks_for_both_kinds_of_shares_is_refused_and_named() -> None:
    this = MaskedRound(COHORT)
    this.share()
    reported = this.report()
    this.exchange(this.server.ask(Stage.CONFIRM, reported))
    honest = this.asks[13]
    party, others = this.parties[13], [client for client in COHORT if client != 13]
    again = party.answer(honest)
    assert again in this.seen
    lie = honest._replace(body=[int(Stage.CONFIRM), pack_subset(set(reported) - {5}, others)])
    for _ in range(2):
        refusal = party.answer(lie)
        assert refusal is not None and refusal.body[:2] == [Stage.CONFIRM, "asks-for-both"]
        assert refusal.body[2].startswith("the server asks client 13 for both kinds of shares of client 5 in round 4")
    assert party.answer(honest) == again
    assert refusal is not None
    this.server.waiting.add(13)
    with pytest.raises(ReportRefused, match="both kinds of shares of client 5"):
        this.server.answered(refusal)


def test_a_client_helps_to_unmask_no_small_group_and_masks_once_a_round() -> None:
    this = MaskedRound(COHORT)
    this.share()
    this.report()
    others = [client for client in COHORT if client != 13]
    refusal = this.parties[13].answer(Envelope(Kind.ASK, 13, ROUND, 2, [3, pack_subset({5}, others)]))
    assert refusal is not None and refusal.body[1] == "no-masks" and "fewer than 4" in refusal.body[2]
    with pytest.raises(Declined, match="it masks once a round"):
        this.parties[13].admit(13, ROUND, pack_subset({2, 3, 5, 8}, others))
    with pytest.raises(Declined, match="has made no keys for round 5"):
        this.parties[13].admit(13, ROUND + 1, pack_subset(others, others))
    with pytest.raises(BadPayload, match="does not name the neighbours"):
        this.parties[13].admit(13, ROUND, None)


def test_a_client_masks_no_second_report_whose_difference_from_the_first_would_bare_it() -> None:
    this = MaskedRound(COHORT)
    this.share()
    first = this.mask(13)
    assert (this.mask(13) == first).all()  # a server that crashed has it sent again
    this.reports[13] = np.zeros_like(this.reports[13])  # what a plan with a tiny η makes of any
    with pytest.raises(Declined, match="client 13 is to mask another report in round 4; it masks one a round"):
        this.mask(13)


def test_without_t_shares_or_with_a_wrong_one_there_is_no_sum() -> None:
    this = MaskedRound(COHORT)
    this.share()
    reported = this.report(silent=[8])
    this.unmask(reported, without_unmask=[2, 3])
    assert this.total(reported) is None
    two = MaskedRound(COHORT)
    two.share()
    reported = two.report(silent=[8])
    two.unmask(reported)
    assert two.total(reported) is not None
    shares = two.server._shares[8]
    shares[2] = bytes(17)
    assert two.total(reported) is None
    three = MaskedRound(COHORT)
    three.share()
    assert three.server.ask(Stage.CONFIRM, three.report(silent=COHORT[:3])) == []
    assert not three.server.waiting and three.total(COHORT[3:]) is None
    four = MaskedRound(COHORT)
    four.share()
    four.exchange(four.server.ask(Stage.CONFIRM, four.report()), silent=COHORT[:2])
    assert four.server.ask(Stage.UNMASK) == [], "with fewer than t confirmations all would refuse"


def test_a_client_too_few_of_whose_neighbours_share_takes_no_part_and_the_others_go_on() -> None:
    cohort, alone = list(range(12)), 5
    this = MaskedRound(cohort, SecureAggregation(neighbours=4, threshold=0.5))
    graph = this.server._graph
    beside, further = list[int](), list[int]()
    for each in graph[alone]:  # on the circle: at a distance of one, or of two
        (beside if len({*graph[each]} & {*graph[alone]}) == 2 else further).append(each)
    gone = [*beside, further[0]]
    this.share(without_shares=gone)
    assert this.server.sharers == {*cohort} - {*gone, alone}
    reported = this.report()
    this.unmask(reported)
    assert (this.total(reported) == this.expected(reported)).all()


def test_a_key_of_low_order_is_refused_and_its_clients_neighbours_go_on() -> None:
    this = MaskedRound(COHORT)
    asked = {ask.client: ask for ask in this.server.ask(Stage.KEYS)}
    for part in (bytes(64), this.parties[8].answer(asked[8]).body[1][:32] + bytes(32)):  # type: ignore[union-attr]
        with pytest.raises(BadPayload, match="low order"):
            this.server.answered(Envelope(Kind.TELL, 8, ROUND, 2, [0, part]))
    this.exchange([ask for client, ask in asked.items() if client != 8])
    this.exchange(this.server.ask(Stage.SHARES))
    assert this.server.sharers == {*COHORT} - {8}


def test_sealed_shares_are_read_by_their_recipient_in_their_round_only() -> None:
    one, two, three = Secrets(), Secrets(), Secrets()
    theirs = channel(one.channel, two.public(1))
    assert theirs == channel(two.channel, one.public(1))
    sealed = seal(theirs, 1, 1, 2, bytes(34))
    assert unseal(theirs, 1, 1, 2, sealed) == (bytes(17), bytes(17))
    for secret, sender, round, recipient in (
        (channel(three.channel, one.public(1)), 1, 1, 2),
        (theirs, 3, 1, 2),
        (theirs, 1, 2, 2),
        (theirs, 1, 1, 3),
        (theirs, 2, 1, 1),
    ):
        with pytest.raises(BadKey, match="did not seal"):
            unseal(secret, round, sender, recipient, sealed)
    with pytest.raises(BadKey, match="low order"):
        channel(one.channel, bytes(64))


def test_masks_of_two_clients_are_equal_and_differ_from_those_of_another_round() -> None:
    one, two = Secrets(), Secrets()
    masks = [
        pair_mask(mine.mask_seed, its.public(round), round, *ends, 5).tolist()
        for mine, its, ends, round in ((one, two, (1, 2), 7), (two, one, (2, 1), 7), (one, two, (1, 2), 8))
    ]
    assert masks[0] == masks[1] != masks[2]
    assert self_mask(one.self_seed, 7, 1, 5).tolist() != self_mask(one.self_seed, 7, 2, 5).tolist()
    assert "Secrets()" == repr(one)


@pytest.mark.parametrize(("clients", "neighbours"), [(20, 4), (21, 10), (100, 2)])
def test_the_graph_is_regular_symmetric_and_drawn_for_each_round(clients: int, neighbours: int) -> None:
    settings = SecureAggregation(neighbours=neighbours)
    graph = settings.graph(range(clients), 1, 0)
    assert all(len(each) == neighbours and client not in each for client, each in graph.items())
    assert all(client in graph[other] for client, each in graph.items() for other in each)
    reached = {0}
    for _ in range(clients):
        reached |= {other for client in reached for other in graph[client]}
    assert reached == set(range(clients))
    assert graph != settings.graph(range(clients), 1, 1)


@pytest.mark.parametrize("neighbours", [2, 4, 6, 8, "all"])
def test_in_a_small_cohort_each_client_masks_with_all_others(neighbours: Any) -> None:
    for clients in range(2, 9):
        graph = SecureAggregation(neighbours=neighbours).graph(range(clients), 1, 0)
        most = clients - 1 if neighbours == "all" else min(neighbours, clients - 1)
        assert all(len({*each}) == len(each) == most and client not in each for client, each in graph.items())


pieces = st.one_of(st.integers(-1, 3), st.binary(max_size=80), st.text(max_size=5), st.lists(st.integers(), max_size=2))


@settings(max_examples=20)
@given(bodies=st.lists(st.lists(pieces, max_size=4), max_size=6), round=st.integers(ROUND - 1, ROUND + 1))
def test_whatever_is_asked_or_told_is_answered_refused_or_a_bad_payload(bodies: list[list[Any]], round: int) -> None:
    this = MaskedRound(COHORT[:3])
    this.share()
    for body, client in product(bodies, this.cohort[:1]):
        try:
            told = this.parties[client].answer(Envelope(Kind.ASK, client, round, 2, body))
            assert told is None or told.kind is Kind.TELL
        except BadPayload:
            pass
        try:
            this.server.answered(Envelope(Kind.TELL, client, round, 2, body))
        except (BadPayload, ReportRefused):
            pass


def begun(until: int) -> MaskedRound:
    """A round of which so many of its five exchanges are over, and whose server has been killed and started anew."""
    this = MaskedRound(COHORT)
    for at, stage in enumerate([*BEFORE_PLANS, None, *AFTER_REPORTS][:until]):
        if stage is not None:
            this.exchange(this.server.ask(stage, frozenset(COHORT if at > 2 else ())))
        else:
            this.server.plans_due()
            this.report()
    this.server = SecureRound(this.settings, Participation(clients=6, quorum=2), 5, ROUND, 2, COHORT)
    return this


@pytest.mark.parametrize("until", range(6))
def test_a_server_that_is_killed_at_any_stage_repeats_the_round_with_the_same_answers(until: int) -> None:
    this = begun(until)
    this.share()
    reported = this.report()
    this.unmask(reported)
    assert (this.total(reported) == this.expected(reported)).all() and len(reported) == 6


@pytest.mark.parametrize("until", range(6))
def test_what_a_repeated_round_lacks_that_came_before_unmasks_no_second_sum(until: int) -> None:
    """A report, or a client's memory: clients that have confirmed the other group say so, and others go on."""
    this = begun(until)
    this.share()
    reported = this.report(silent=[8])
    refused = set()
    for ask in this.server.ask(Stage.CONFIRM, reported):
        told = this.parties[ask.client].answer(ask)
        assert told is not None
        if len(told.body) > 2:
            refused.add((ask.client, told.body[1]))
        else:
            this.server.answered(told)
    assert refused == ({(client, "asks-for-both") for client in reported} if until >= 4 else set())
    this.exchange(this.server.ask(Stage.UNMASK))
    total = this.total(reported)
    assert total is None if until >= 4 else (total == this.expected(reported)).all()

    that = begun(until)
    that.parties[13].forget(13)
    that.exchange(that.server.ask(Stage.KEYS))
    answers = [that.parties[ask.client].answer(ask) for ask in that.server.ask(Stage.SHARES)]
    others = [told.body[1] for told in answers if told is not None and told.client != 13]
    assert ("no-masks" in others) == (until >= 2), "its keys are others than those with which they have shared"
