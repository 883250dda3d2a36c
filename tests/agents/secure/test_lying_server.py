"""A server that lies about who takes part, who has shared and who has reported; and clients that do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from masked_round import ROUND, SHAPE, MaskedRound

from seedbus.agents.policies.participation import Participation
from seedbus.agents.secure import party
from seedbus.agents.secure.masks import (
    CONFIRMATION_BYTES,
    SEALED_BYTES,
    Secrets,
    channel,
    confirmation,
    pair_mask,
    self_mask,
    unseal,
)
from seedbus.agents.secure.settings import SecureAggregation
from seedbus.agents.secure.sharing import SHARE_BYTES, recover
from seedbus.agents.secure.stages import Stage, pack_clients, pack_subset
from seedbus.algorithms.contract import Declined, ReportRefused
from seedbus.bus import Envelope, Kind

COHORT = [2, 3, 5, 8, 13, 21]
VICTIM = 0


class Lies:
    """A server without rules, all of whose clients are neighbours: it tells each what it likes.

    Attributes:
        this: the round, whose clients have shared their secrets.
        shares: owner and kind ("mask" or "self") → holder → the share that it has given.
        refusals: client → the reason that it refused for.
    """

    def __init__(self, cohort: list[int], **terms: Any) -> None:
        self.this = MaskedRound(cohort, SecureAggregation(**terms))
        self.this.share()
        self.needed = self.this.server._needed(cohort[0])
        self.shares: dict[tuple[int, str], dict[int, bytes]] = {}
        self.refusals: dict[int, str] = {}
        self._sharers: dict[int, list[int]] = {}
        self._reported: dict[int, list[int]] = {}
        self._confirmed: dict[int, dict[int, bytes]] = {}

    def others(self, client: int) -> list[int]:
        return [each for each in self.this.cohort if each != client]

    def plan(self, client: int, sharers: Collection[int]) -> None:
        """Tell a client which neighbours have shared; it masks its report."""
        self._sharers[client] = [each for each in self.others(client) if each in sharers]
        this = self.this.parties[client]
        this.admit(client, ROUND, pack_subset(sharers, self.others(client)))
        self.this.masked[client] = this.mask(client, ROUND, self.this.reports[client])

    def confirm(self, client: int, reported: Collection[int]) -> None:
        """Tell a client which neighbours have reported, and keep its confirmations."""
        self._reported[client] = [each for each in self._sharers[client] if each in reported]
        answer = self._answer(client, Stage.CONFIRM, pack_subset(reported, self.others(client)))
        if answer is not None:
            given = [answer[at : at + CONFIRMATION_BYTES] for at in range(0, len(answer), CONFIRMATION_BYTES)]
            self._confirmed[client] = dict(zip(self._reported[client], given, strict=True))

    def unmask(self, client: int) -> None:
        """Give a client all confirmations that there are for it, and keep the shares that it gives."""
        reported, sharers = self._reported[client], self._sharers[client]
        confirming = [each for each in reported if client in self._confirmed.get(each, ())]
        given = b"".join(self._confirmed[each][client] for each in confirming)
        sealed = b"".join(self.this.server._sealed[each][client] for each in sharers)
        answer = self._answer(client, Stage.UNMASK, pack_subset(confirming, self.others(client)), given, sealed)
        for at, owner in enumerate([*sharers, client] if answer is not None else []):
            kind = "self" if owner in (*reported, client) else "mask"
            assert answer is not None
            self.shares.setdefault((owner, kind), {})[client] = answer[SHARE_BYTES * at : SHARE_BYTES * (at + 1)]

    def secret(self, owner: int, kind: str) -> bytes | None:
        """Return a secret for which there are t shares."""
        shares = self.shares.get((owner, kind), {})
        return recover(dict(sorted(shares.items())[: self.needed])) if len(shares) >= self.needed else None

    def bared(self, client: int) -> Any:
        """Return a client's report without all the masks that can be computed."""
        words = self.this.masked[client].ravel().view(np.uint32).copy()
        if (own := self.secret(client, "self")) is not None:
            words -= self_mask(own, ROUND, client, words.size)
        for other in self._sharers[client]:
            for one, its in ((client, other), (other, client)):
                if (seed := self.secret(one, "mask")) is not None:
                    public = self.this.server._public[its]
                    pair = pair_mask(seed, public, ROUND, client, other, words.size)
                    words = words - pair if client < other else words + pair
                    break
        return words

    def finds(self, *clients: int) -> bool:
        """Whether it finds the sum of the reports of these clients."""
        total = sum((self.bared(client) for client in clients), np.zeros(SHAPE[0] * SHAPE[1], np.uint32))
        truth = sum(self.this.reports[client].astype(np.int64) for client in clients).ravel()
        return bool((total.view(np.int32) == truth).all())

    def _answer(self, client: int, stage: Stage, *body: bytes) -> bytes | None:
        told = self.this.parties[client].answer(Envelope(Kind.ASK, client, ROUND, 2, [int(stage), *body]))
        assert told is not None
        if len(told.body) > 2:
            self.refusals[client] = told.body[1]
            return None
        (answer,) = told.body[1:]
        return bytes(answer)


def two_tales(count: int, **terms: Any) -> Lies:
    """The attack on the report of client 0: it masks with t − 1 neighbours, and of each of these t others are told
    that it has dropped out, while all are told that client 0 has reported. No client is told that more have dropped out
    than leave t, so none sees anything amiss. It needs t·(t − 1) such lies, and there is room for (n − 1)(n − t): up to
    a threshold of 0.618."""
    server = Lies(list(range(count)), **terms)
    masks_with = server.others(VICTIM)[: server.needed - 1]
    server.plan(VICTIM, masks_with)
    dropped: dict[int, set[int]] = {each: set() for each in server.others(VICTIM)}
    for lost in masks_with:
        holders = sorted((each for each in dropped if each != lost), key=lambda each: len(dropped[each]))
        for each in holders[: server.needed]:
            if len(dropped[each]) < count - server.needed:
                dropped[each].add(lost)
    for client in server.others(VICTIM):
        server.plan(client, server.others(client))
    for client in server.this.cohort:
        said = masks_with if client == VICTIM else {*server.others(client)} - dropped[client]
        server.confirm(client, said)
    for client in server.this.cohort:
        server.unmask(client)
    return server


ATTACKED = [(10, 0.5), (11, 0.5), pytest.param(26, 0.6, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("count", "threshold"), [*ATTACKED, (10, 2 / 3), (11, 2 / 3)])
def test_a_server_that_tells_clients_of_different_survivors_gets_no_share(count: int, threshold: float) -> None:
    server = two_tales(count, threshold=threshold)
    assert not server.shares and not server.finds(VICTIM)
    assert server.refusals == dict.fromkeys(range(count), "unconfirmed")


@pytest.mark.parametrize(("count", "threshold"), ATTACKED)
def test_without_the_comparison_it_would_find_a_report_at_lower_thresholds_and_not_at_two_thirds(
    count: int, threshold: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above can fail: these clients take any confirmation."""
    monkeypatch.setattr("hmac.compare_digest", lambda given, due: True)
    monkeypatch.setattr(party.Party, "_view", lambda *_: b"")
    monkeypatch.setattr(Lies, "unmask", _with_all_confirmations)
    assert two_tales(count, threshold=threshold).finds(VICTIM)
    assert not two_tales(count).finds(VICTIM)


def _with_all_confirmations(server: Lies, client: int, honest: Any = Lies.unmask) -> None:
    for each in server._reported[client]:
        server._confirmed.setdefault(each, {}).setdefault(client, bytes(CONFIRMATION_BYTES))
    honest(server, client)


def test_a_server_that_splits_a_cohort_gets_the_sum_of_neither_part() -> None:
    """Each half is told that it and three others have shared, and these three dropped out, or reported."""
    server = Lies(list(range(9)), threshold=0.5)
    halves: Mapping[int, set[int]] = {each: {0, 1, 2} if each < 3 else {6, 7, 8} for each in (0, 1, 2, 6, 7, 8)}
    for client, half in halves.items():
        server.plan(client, {*half, 3, 4, 5} - {client})
        server.confirm(client, {*half, 3, 4} - {client})
    for client in halves:
        server.unmask(client)
    assert set(server.refusals.values()) == {"unconfirmed"} and not server.shares
    assert not server.finds(0, 1, 2)


def test_a_server_forges_no_confirmation_of_a_client_whose_keys_it_passed_on() -> None:
    """It sends a client the confirmations that others got, and some of its own."""
    server = Lies(COHORT)
    for client in COHORT:
        server.plan(client, server.others(client))
        server.confirm(client, server.others(client))
    own = channel(Secrets().channel, server.this.server._public[13])
    good = server._confirmed
    for to_others in (
        {each: {13: bytes(CONFIRMATION_BYTES)} for each in COHORT},
        {each: {13: good[each][2 if each != 2 else 3]} for each in COHORT if each != 13},
        {each: {13: good[13][each]} for each in COHORT if each != 13},
        {each: {13: confirmation(own, ROUND, each, 13, b"")} for each in COHORT if each != 13},
    ):
        server._confirmed = to_others
        server.unmask(13)
        assert server.refusals.pop(13) == "unconfirmed" and not server.shares
    server._confirmed = good
    server.unmask(13)
    assert server.refusals == {} and len(server.shares) == len(COHORT)


def test_keys_put_in_the_place_of_a_neighbours_are_noticed_unless_all_but_it_are_given_them() -> None:
    """The server gives client 2 keys of its own for clients 3 and 5, and confirms in their place."""
    this = MaskedRound(COHORT)
    this.exchange(this.server.ask(Stage.KEYS))
    others, own = [each for each in COHORT if each != 2], {3: Secrets(), 5: Secrets()}
    asks = this.server.ask(Stage.SHARES)
    keys = b"".join(own[each].public(ROUND) if each in own else this.server._public[each] for each in others)
    this.exchange([ask._replace(body=[*ask.body[:2], keys]) if ask.client == 2 else ask for ask in asks])
    this.server.plans_due()
    this.report()
    this.exchange(this.server.ask(Stage.CONFIRM, frozenset(COHORT)))
    theirs = {each: channel(own[each].channel, this.server._public[2]) for each in own}
    view = this.parties[2]._view(this.parties[2]._sessions[2], 2, others, others)
    for each, secret in theirs.items():
        this.server._confirmed[each][2] = confirmation(secret, ROUND, each, 2, view)
    (told,) = [this.parties[2].answer(ask) for ask in this.server.ask(Stage.UNMASK) if ask.client == 2]
    assert told is not None and told.body[1] == "unconfirmed"
    assert told.body[2].startswith("2 neighbours of client 2 confirm what it was told of round 4, fewer than 4")


@pytest.mark.parametrize("crowd", [{"clients": 10}, {"clients": 50, "cohort": 10, "quorum": 3}], ids=str)
def test_a_client_shares_with_no_single_neighbour_that_a_server_invents(crowd: dict[str, Any]) -> None:
    """Who knows that neighbour's keys, and is given its shares and the client's own, would find the report."""
    victim = party.Party(SecureAggregation(), Participation.model_validate({"quorum": 2} | crowd))
    invented = Secrets()

    def asked(stage: Stage, *body: bytes) -> list[Any]:
        told = victim.answer(Envelope(Kind.ASK, 7, ROUND, 2, [int(stage), *body]))
        assert told is not None
        return told.body[1:]

    (public,) = asked(Stage.KEYS)
    answer = asked(Stage.SHARES, pack_clients([9]), invented.public(ROUND))
    assert answer[0] == "no-masks" and answer[1].endswith("it shares with 6 at least")
    with pytest.raises(Declined):
        victim.admit(7, ROUND, b"")
    # of two clients each is all the other has, and the other knows the report from the sum whatever t is
    pair = party.Party(SecureAggregation(), Participation(clients=2, quorum=2))
    pair.answer(Envelope(Kind.ASK, 7, ROUND, 2, [int(Stage.KEYS)]))
    told = pair.answer(Envelope(Kind.ASK, 7, ROUND, 2, [1, pack_clients([9]), invented.public(ROUND)]))
    assert told is not None and len(told.body[1]) == SEALED_BYTES and len(public) == 64


def test_where_all_are_neighbours_a_sum_has_a_quorum_whatever_a_server_says() -> None:
    """t of six is five, and the scenario's quorum is six."""
    this, all_six = MaskedRound(COHORT), Participation(clients=6, quorum=6)
    this.parties = {client: party.Party(this.settings, all_six) for client in COHORT}
    this.share()
    this.report()
    for ask in this.server.ask(Stage.CONFIRM, frozenset(COHORT[:5])):
        told = this.parties[ask.client].answer(ask)
        assert told is not None and told.body[1] == "no-masks" and "4 neighbours" in told.body[2]


@settings(max_examples=30)
@given(
    st.integers(3, 40),
    st.sampled_from([0.5, 0.6, 2 / 3, 0.75, 0.9]),
    st.data(),
)
def test_any_two_groups_that_can_recover_a_secret_have_more_clients_in_common_than_the_bound_lets_collude(
    count: int, threshold: float, data: st.DataObject
) -> None:
    """2t − n of n holders at least; with the default threshold more than a third of them, rounded down."""
    needed = SecureAggregation(threshold=threshold).shares_needed(count - 1)
    group = st.sets(st.integers(0, count - 1), min_size=needed, max_size=count)
    one, two = data.draw(group), data.draw(group)
    assert len(one & two) >= 2 * needed - count > 0
    if threshold >= 2 / 3:
        assert 2 * needed - count >= count // 3 + 1
    if threshold > 0.62:  # the lies that `two_tales` needs do not fit
        assert needed * (needed - 1) > (count - 1) * (count - needed)


def test_a_confirmation_counts_once_and_not_after_shares_are_asked_for() -> None:
    this = MaskedRound(COHORT)
    this.share()
    reported = this.report()
    asks = this.server.ask(Stage.CONFIRM, reported)
    late = this.parties[21].answer(asks[-1])
    this.exchange(asks[:-1])
    assert late is not None and this.server.waiting == {21}
    with pytest.raises(ReportRefused, match="client 2 is not asked for CONFIRM"):
        this.server.answered(this.seen[-5])
    asks = this.server.ask(Stage.UNMASK)
    with pytest.raises(ReportRefused, match=f"stage CONFIRM of secure aggregation is over in round {ROUND}"):
        this.server.answered(late)
    assert [ask.client for ask in asks] == COHORT[:5], "client 21 would refuse what it has not confirmed"
    this.exchange(asks)
    assert (this.total(reported) == this.expected(reported)).all(), "and its report is in the sum all the same"


def complained(liar: int, victims: Collection[int], what: str) -> MaskedRound:
    """A round in which what a client sends some others is not valid: its shares, or its confirmations."""
    this = MaskedRound(COHORT)
    this.share()
    reported = this.report()
    sealed, size = (this.server._sealed, SEALED_BYTES) if what == "shares" else (None, CONFIRMATION_BYTES)
    this.exchange(this.server.ask(Stage.CONFIRM, reported))
    column = sealed if sealed is not None else this.server._confirmed
    column[liar] |= dict.fromkeys(victims, bytes(size))
    this.exchange(this.server.ask(Stage.UNMASK))
    return this


@pytest.mark.parametrize("what", ["shares", "confirmations"])
def test_who_sends_what_is_not_valid_is_named_and_not_those_who_got_it(what: str) -> None:
    for victims in ([2], [2, 3], [2, 3, 5, 13, 21]):
        this = complained(8, victims, what)
        assert [(client, reason) for client, reason, _ in this.server.blamed()] == [(8, "bad-shares")]
        (sentence,) = [sentence for _, _, sentence in this.server.blamed()]
        assert sentence.startswith("shares or confirmations between client 8 and clients 2")
        needs_it = what == "shares" and len(victims) > 1
        total = this.total(COHORT)
        assert (total is None) if needs_it else (total == this.expected(COHORT)).all()
        assert [client for client, _, _ in this.server.blamed()] == [8], "it is named once"


def test_a_client_that_complains_of_all_is_named_itself() -> None:
    this = MaskedRound(COHORT)
    this.share()
    reported = this.report()
    this.exchange(this.server.ask(Stage.CONFIRM, reported))
    asks = this.server.ask(Stage.UNMASK)
    this.exchange([ask for ask in asks if ask.client != 8])
    all_five, none = pack_subset(range(5), range(5)), b"\0"
    for unread, false in product((all_five, none), repeat=2):
        told = Envelope(Kind.TELL, 8, ROUND, 2, [int(Stage.UNMASK), "bad-shares", "all lie", b"", unread, false])
        this.server.waiting.add(8)
        if unread == false == none:
            with pytest.raises(Exception, match="a complaint of no neighbour"):
                this.server.answered(told)
        else:
            this.server.answered(told)
    assert [client for client, _, _ in this.server.blamed()] == [8]
    assert (this.total(reported) == this.expected(reported)).all()


def test_sealed_shares_that_cannot_be_read_are_left_out_and_the_others_given() -> None:
    this = complained(8, [13], "shares")
    told = next(each for each in this.seen if each.body[0] == Stage.UNMASK and each.client == 13)
    assert told.body[1] == "bad-shares" and "client 8 has sent no valid shares" in told.body[2]
    assert len(told.body[3]) == 5 * SHARE_BYTES and 13 not in this.server._shares[8]
    given = this.parties[13]._sessions[13].channels[2]
    ask = this.asks[13]
    piece = ask.body[3][:SEALED_BYTES]
    assert unseal(given, ROUND, 2, 13, piece)[1] == told.body[3][:SHARE_BYTES]


@pytest.mark.parametrize("silent", [(), (21,), (21, 34)], ids=["t + 2", "t + 1", "t"])
def test_a_holder_that_gives_false_shares_of_self_masks_is_found_out_by_those_of_others(
    silent: Collection[int],
) -> None:
    """Of eight clients t are six. Of t + 1 shares the server knows that one is false, and not which; of t nothing."""
    this = MaskedRound([*COHORT, 34, 55])
    this.share()
    reported = this.report()
    this.unmask(reported, without_unmask=silent)
    for owner in this.cohort:
        if owner != 5:
            this.server._shares[owner][5] = bytes(SHARE_BYTES - 1) + b"\1"
    total, named = this.total(reported), [client for client, _, _ in this.server.blamed()]
    if not silent:
        assert (total == this.expected(reported)).all() and named == [5]
    elif len(silent) == 1:
        assert total is None and named == [2], "whose secret is the first that cannot be recovered"
    else:
        assert total is None or not (total == this.expected(reported)).all()


def test_a_false_share_of_a_mask_key_is_found_out_with_one_more_than_t() -> None:
    this = MaskedRound([*COHORT, 34, 55])
    this.share()
    reported = this.report(silent=[8])
    this.unmask(reported)
    this.server._shares[8][5] = bytes(SHARE_BYTES)
    assert (this.total(reported) == this.expected(reported)).all()
    assert [(client, reason) for client, reason, _ in this.server.blamed()] == [(5, "bad-shares")]
