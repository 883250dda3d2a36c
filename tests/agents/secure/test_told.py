"""What the server of secure aggregation takes from a client: one part, if it asked for it, and only a sound one."""

from __future__ import annotations

import pytest
from masked_round import ROUND, MaskedRound

from seedbus.agents.secure.sharing import SHARE_BYTES
from seedbus.agents.secure.stages import DETAIL, Stage
from seedbus.algorithms.contract import BadPayload, ReportRefused
from seedbus.bus import Envelope, Kind

COHORT = [2, 3, 5, 8, 13, 21]


def test_a_part_counts_once_and_from_those_that_were_asked_only() -> None:
    this = MaskedRound(COHORT)
    ask = this.server.ask(Stage.KEYS)[0]
    told = this.parties[2].answer(ask)
    assert told is not None
    this.server.answered(told)
    for again in (told, told._replace(client=99)):
        with pytest.raises(ReportRefused, match=f"client {again.client} is not asked for KEYS in round {ROUND}"):
            this.server.answered(again)
    assert this.server.waiting == {*COHORT[1:]}


def test_a_part_that_no_client_gives_is_a_bad_payload() -> None:
    this = MaskedRound(COHORT)
    this.server.ask(Stage.KEYS)
    for client, reason, detail in ((2, "because", ""), (3, "no-masks", "x" * (DETAIL + 1))):
        with pytest.raises(BadPayload, match=f"refuses its part because of '{reason}'"):
            this.server.answered(Envelope(Kind.TELL, client, ROUND, 2, [int(Stage.KEYS), reason, detail]))
    this = MaskedRound(COHORT)
    this.share()
    this.exchange(this.server.ask(Stage.CONFIRM, this.report()))
    this.server.ask(Stage.UNMASK)
    too_large = b"\xff" * SHARE_BYTES * len(COHORT)
    with pytest.raises(BadPayload, match="no number below the prime"):
        this.server.answered(Envelope(Kind.TELL, 2, ROUND, 2, [int(Stage.UNMASK), too_large]))
