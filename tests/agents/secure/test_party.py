"""A client's rules in secure aggregation: a server that asks again learns nothing that it did not know."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from masked_round import ROUND, MaskedRound

from seedbus.agents.policies.participation import Participation
from seedbus.agents.secure.masks import CONFIRMATION_BYTES, KEY_BYTES, PUBLIC_BYTES, SEALED_BYTES, Secrets
from seedbus.agents.secure.party import Party
from seedbus.agents.secure.settings import MOST_NEIGHBOURS, SecureAggregation
from seedbus.agents.secure.stages import Stage, pack_clients, pack_subset, pieces, unpack_subset
from seedbus.algorithms.contract import BadPayload, Declined
from seedbus.bus import Envelope, Kind

COHORT = [2, 3, 5, 8, 13, 21]
OTHERS = [2, 3, 5, 8, 21]


def asked(this: MaskedRound, stage: Stage, *body: bytes, round: int = ROUND) -> list[Any] | None:
    """What client 13 answers."""
    told = this.parties[13].answer(Envelope(Kind.ASK, 13, round, 2, [int(stage), *body]))
    return None if told is None else told.body[1:]


def told_by(this: MaskedRound, client: int) -> list[list[Any]]:
    """What a client has answered in the round so far."""
    return [told.body[1:] for told in this.seen if told.client == client]


def shares(this: MaskedRound, neighbours: Sequence[int], keys: bytes) -> list[Any] | None:
    return asked(this, Stage.SHARES, struct.pack(f"<{len(neighbours)}I", *neighbours), keys)


def test_a_client_has_one_set_of_secrets_and_of_neighbours_in_a_round_however_often_it_is_asked() -> None:
    this = MaskedRound(COHORT)
    this.share()
    _, column, keys = this.asks[13].body
    assert [asked(this, Stage.KEYS), asked(this, Stage.SHARES, column, keys)] == told_by(this, 13)
    assert this.mask(13).tolist() == this.mask(13).tolist()
    other_key = Secrets().public(ROUND) + keys[PUBLIC_BYTES:]
    for neighbours, public in ((OTHERS[1:], keys[PUBLIC_BYTES:]), (OTHERS, other_key)):
        refusal = shares(this, neighbours, public)
        assert refusal is not None and refusal[0] == "no-masks" and "it shares once a round" in refusal[1]
    assert asked(this, Stage.KEYS, round=ROUND - 1) is None, "a newer question has overtaken it"
    this.parties[13].forget(13)
    assert asked(this, Stage.SHARES, column, keys) == ["no-masks", f"client 13 has made no keys for round {ROUND}"]


@pytest.mark.parametrize(
    ("crowd", "neighbours", "few", "many"),
    [
        ({"clients": 6}, "all", 4, 5),
        ({"clients": 60, "cohort": 10}, "all", 6, 9),
        ({"clients": 60, "cohort": 10}, 6, 4, 6),
        ({"clients": 60, "cohort": 10, "over_selection": 1.3}, "all", 8, 12),
        ({"clients": 9, "cohort": 5, "selection": {"policy": "poisson"}}, "all", 3, 8),
        ({"clients": MOST_NEIGHBOURS + 1}, "all", 342, MOST_NEIGHBOURS),
        ({"clients": 2}, "all", 1, 1),
    ],
    ids=str,
)
def test_a_client_shares_with_as_many_neighbours_as_its_scenario_says_whatever_a_server_says(
    crowd: dict[str, Any], neighbours: Any, few: int, many: int
) -> None:
    """With t − 1 of the scenario's cohort at least. Of cohorts of any size it knows the quorum only, here five."""
    public, others = Secrets().public(ROUND), [client for client in range(many + 2) if client != 1]
    participation = Participation.model_validate({"quorum": 5 if "selection" in crowd else 2} | crowd)
    this = Party(SecureAggregation(neighbours=neighbours), participation)

    def told(some: Sequence[int]) -> list[Any]:
        this.forget(1)
        this.answer(Envelope(Kind.ASK, 1, ROUND, 2, [int(Stage.KEYS)]))
        body = [int(Stage.SHARES), pack_clients(some), public * len(some)]
        answer = this.answer(Envelope(Kind.ASK, 1, ROUND, 2, body))
        assert answer is not None
        return answer.body[1:]

    for count in (few, many):
        assert len(told(others[:count])[0]) == SEALED_BYTES * count
    for count in range(1, few):
        reason, sentence = told(others[:count])
        assert reason == "no-masks" and f"given {count} neighbours in round 4; by its scenario" in sentence
        assert sentence.endswith(f"with {few} at least")
    for some in ([], [0, 1], others[: many + 1]):
        with pytest.raises(BadPayload, match=f"^{len(some)} neighbours; 1 to {many} others"):
            told(some)


def test_a_client_makes_other_secrets_in_the_next_round_and_forgets_those_before() -> None:
    this = MaskedRound(COHORT)
    this.share()
    _, column, keys = this.asks[13].body
    after = asked(this, Stage.KEYS, round=ROUND + 1)
    assert after is not None
    assert not {*pieces(told_by(this, 13)[0][0], KEY_BYTES, 2)} & {*pieces(after[0], KEY_BYTES, 2)}
    with pytest.raises(Declined, match=r"^0 neighbours of client 13 have shared, and 1 have to"):
        this.parties[13].admit(13, ROUND + 1, b"")
    with pytest.raises(Declined, match=f"has made no keys for round {ROUND}"):
        this.parties[13].admit(13, ROUND, pack_subset(OTHERS, OTHERS))
    assert asked(this, Stage.SHARES, column, keys) is None
    fewer = struct.pack("<4I", 2, 3, 5, 8)
    assert asked(this, Stage.SHARES, fewer, keys[: 4 * PUBLIC_BYTES], round=ROUND + 1) != told_by(this, 13)[1]


def questions() -> dict[str, list[Any]]:
    """What no server asks. Client 13 has masked a report with all others."""
    column, keys = struct.pack("<5I", *OTHERS), Secrets().public(ROUND) * 5
    reported, sealed = pack_subset(OTHERS, OTHERS), bytes(SEALED_BYTES * 5)
    confirmed = bytes(CONFIRMATION_BYTES * 5)
    return {
        "a stage that is no number": [True, column, keys],
        "a fifth stage": [4],
        "no stage": [],
        "keys of nothing": [0, b""],
        "no keys of neighbours": [1, column],
        "neighbours in a list": [1, OTHERS, keys],
        "part of a neighbour": [1, column + b"\0", keys],
        "a neighbour twice": [1, struct.pack("<5I", 2, 2, 3, 5, 8), keys],
        "neighbours that descend": [1, struct.pack("<5I", 3, 2, 5, 8, 21), keys],
        "part of a key": [1, column, keys[:-1]],
        "a key too many": [1, column, keys + keys[:PUBLIC_BYTES]],
        "nothing to confirm": [3],
        "no bit for a neighbour": [3, b""],
        "bits in two bytes": [3, reported + b"\0"],
        "a bit for a sixth neighbour": [3, b"\x3f"],
        "no shares": [2, reported, confirmed],
        "no bit for who confirms": [2, b"", confirmed, sealed],
        "part of a confirmation": [2, reported, confirmed[:-1], sealed],
        "a confirmation too few": [2, reported, confirmed[CONFIRMATION_BYTES:], sealed],
        "part of a share": [2, reported, confirmed, sealed[:-1]],
        "a share too many": [2, reported, confirmed, sealed + bytes(SEALED_BYTES)],
    }


@pytest.mark.parametrize("name", questions())
def test_a_question_that_no_server_asks_is_a_bad_payload_and_changes_nothing(name: str) -> None:
    this = MaskedRound(COHORT)
    this.share()
    reported = this.report()
    this.exchange(this.server.ask(Stage.CONFIRM, reported))
    with pytest.raises(BadPayload):
        this.parties[13].answer(Envelope(Kind.ASK, 13, ROUND, 2, questions()[name]))
    this.exchange(this.server.ask(Stage.UNMASK))
    assert len(told_by(this, 13)) == 4 and (this.total(reported) == this.expected(reported)).all()


def test_a_subset_takes_a_bit_for_each_neighbour() -> None:
    for count in range(20):
        neighbours = [3 * each for each in range(count)]
        for subset in ([], neighbours[::2], neighbours[-1:], neighbours):
            packed = pack_subset(subset, neighbours)
            assert len(packed) == (count + 7) // 8 and unpack_subset(packed, neighbours) == subset


def test_a_client_masks_with_no_fewer_neighbours_than_recover_its_mask() -> None:
    this = MaskedRound(COHORT)
    this.share()
    party = this.parties[13]
    with pytest.raises(Declined, match="3 neighbours of client 13 have shared, and 4 have to"):
        party.admit(13, ROUND, pack_subset({2, 3, 5}, OTHERS))
    party.admit(13, ROUND, pack_subset({2, 3, 5, 8}, OTHERS))


def test_a_client_confirms_a_sum_of_t_at_least_and_of_those_that_it_masked_with() -> None:
    this = MaskedRound(COHORT)
    this.share()

    def confirm(*reported: int) -> list[Any] | None:
        return asked(this, Stage.CONFIRM, pack_subset(reported, OTHERS))

    nothing = ["no-masks", f"client 13 has masked no report in round {ROUND}"]
    assert confirm(2, 3, 5, 8) == nothing
    this.parties[13].admit(13, ROUND, pack_subset(OTHERS[:4], OTHERS))
    assert confirm(2, 3, 5, 8) == nothing
    this.parties[13].mask(13, ROUND, this.reports[13])
    refusal = confirm(2, 3, 5)
    assert refusal is not None and refusal[0] == "no-masks" and refusal[1].endswith("their sum is not to be unmasked")
    with pytest.raises(BadPayload, match="without having shared"):
        confirm(2, 3, 5, 21)
    answer = confirm(2, 3, 5, 8)
    assert answer is not None and len(answer) == 1 and len(answer[0]) == 4 * CONFIRMATION_BYTES
    assert confirm(2, 3, 5, 8) == answer


def test_a_client_gives_no_share_before_it_has_confirmed() -> None:
    this = MaskedRound(COHORT)
    this.share()
    this.report()
    sealed = b"".join(this.server._sealed[sender][13] for sender in OTHERS)
    body = [pack_subset(OTHERS, OTHERS), bytes(CONFIRMATION_BYTES * 5), sealed]
    assert asked(this, Stage.UNMASK, *body) == ["no-masks", f"client 13 has confirmed nothing in round {ROUND}"]
    assert asked(this, Stage.CONFIRM, pack_subset(OTHERS[:4], OTHERS)) is not None
    with pytest.raises(BadPayload, match="of neighbours that have not reported"):
        asked(this, Stage.UNMASK, *body)
